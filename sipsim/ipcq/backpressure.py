"""When a PE that waits for its peer notices that it may go on (ADR-0023 D7).

``sleep`` is woken by the event itself. ``poll`` looks again at fixed intervals, from the moment at which it began to
wait; the first look that finds something is computed, and the empty ones before it cost no events.
"""

Ps = int


class Backpressure:
    """``interval_ps`` between two looks; 0 sleeps until woken."""

    def __init__(self, interval_ps: Ps) -> None:
        self._interval_ps = interval_ps

    def wakeup_ps(self, since_ps: Ps, now_ps: Ps) -> Ps:
        """When what happens now is seen by who has waited since ``since_ps``; a look at this very moment sees it."""
        interval = self._interval_ps
        return now_ps + (since_ps - now_ps) % interval if interval else now_ps
