"""When a PE that waits for its peer resumes (ADR-0023 D7).

``sleep`` resumes at the event itself. ``poll`` polls at fixed intervals from the start of the wait; the first poll
after the event is computed, and the empty polls before it cost no events.
"""

Ps = int


class Backpressure:
    """``interval_ps`` between two polls; 0 means ``sleep``. ``polls``: whether a wait may end later than its event."""

    def __init__(self, interval_ps: Ps) -> None:
        self.interval_ps = interval_ps
        self.polls = interval_ps > 0

    def wakeup_ps(self, since_ps: Ps, now_ps: Ps) -> Ps:
        """When a wait that began at ``since_ps`` sees an event of ``now_ps``; a poll at that very time sees it."""
        interval = self.interval_ps
        return now_ps + (since_ps - now_ps) % interval if interval else now_ps
