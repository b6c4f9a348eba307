"""Backpressure of a PE that waits for its peer (ADR-0023 D7): PE_CPU polls, or sleeps until an event wakes it.

``sleep``: the event wakes PE_CPU, which takes ``pe_cpu.wakeup_ns`` (interrupt entry, restore, return), however long the
wait was.

``poll``: PE_CPU reads the pointer in a loop. One read takes ``pe_cpu.poll_ns``; only the read that sees the event adds
this time to the wait. A read at the time of the event sees it. The first read begins ``poll_interval_ns`` after the
wait began. With ``poll_interval_max_ns`` the loop backs off to free the TCM port and save power: each interval is twice
the previous one, up to this maximum (Anderson, "The performance of spin lock alternatives", IEEE TPDS 1990; Agarwal and
Cherian, "Adaptive backoff synchronization techniques", ISCA 1989). Without this key the interval is constant. Reads
that see no event are computed and need no simulator events.

**Crossover.** Let p be the first interval, P the longest, c the time of a read, W the time of a wake-up. Reads begin at

    t(k) = p * (2**k - 1)            while p * 2**k <= P, then at intervals of P

An event that is uniformly distributed over the interval from t(k) is seen p * 2**k / 2 + c later on average; with
``sleep`` W later. Polling is faster while p * 2**k < 2 * (W - c), and slower in every later interval. The first of
these begins after a wait of

    t(m) = p * (2**m - 1),    m the least with p * 2**m >= 2 * (W - c)

(:meth:`Backpressure.crossing_ps`). If P < 2 * (W - c), polling is always faster on average. A loop with a
constant short interval is always faster too: only a loop that backs off has a crossover.
**Limits**: a read does not delay other accesses to the TCM; only the awaited event wakes a sleeping kernel.
"""

from sipsim.config.schema import IpcqKnobs, PeCpu
from sipsim.core.units import ns_to_ps

Ps = int


class Backpressure:
    """Model of the delay, in ps, from an event until the waiting PE_CPU sees the event.

    ``interval_ps``: time to the first read, 0 if PE_CPU sleeps. ``most_ps``: longest interval, 0 if all are equal.
    ``poll_ps``: time of a read. ``wake_ps``: time of a wake-up. ``delays``: whether a wait may end after its event.
    ``is_free``: reads and wake-ups take no time at a constant interval; then a posted receive is polled for at once.
    """

    def __init__(self, interval_ps: Ps, most_ps: Ps = 0, poll_ps: Ps = 0, wake_ps: Ps = 0) -> None:
        self.polls = interval_ps > 0
        self.interval_ps = max(interval_ps, poll_ps) if self.polls else 0
        self.most_ps = max(most_ps, self.interval_ps) if self.polls else 0
        self.poll_ps = poll_ps if self.polls else 0
        self.wake_ps = 0 if self.polls else wake_ps
        self.delays = self.polls or wake_ps > 0
        self.is_free = not (self.poll_ps or self.wake_ps) and self.most_ps == self.interval_ps
        self._doublings = (-(-self.most_ps // self.interval_ps) - 1).bit_length() if self.polls else 0

    def seen_ps(self, since_ps: Ps, event_ps: Ps) -> Ps:
        """Return when a wait that began at ``since_ps`` sees an event; an event before ``since_ps`` is seen at once."""
        if event_ps <= since_ps:
            return since_ps
        if not self.polls:
            return event_ps + self.wake_ps
        return since_ps + self._first_poll_ps(event_ps - since_ps) + self.poll_ps

    def crossing_ps(self, wake_ps: Ps) -> Ps | None:
        """Return the least wait, in ps, for which a poll is slower on average than a wake-up; None if there is none."""
        least_ps = 2 * (wake_ps - self.poll_ps)
        for number in range(self._doublings + 1):
            interval_ps = min(self.interval_ps << number, self.most_ps)
            if interval_ps >= least_ps:
                return self.interval_ps * ((1 << number) - 1)
        return None

    def _first_poll_ps(self, wait_ps: Ps) -> Ps:
        """Return the time of the first read at or after ``wait_ps``; both times count from the start of the wait."""
        number = (-(-wait_ps // self.interval_ps)).bit_length()
        if number <= self._doublings:
            return self.interval_ps * ((1 << number) - 1)
        grown_ps = self.interval_ps * ((1 << self._doublings) - 1)
        return grown_ps + -(-(wait_ps - grown_ps) // self.most_ps) * self.most_ps


def backpressure_of(knobs: IpcqKnobs, cost: PeCpu) -> Backpressure:
    """Return the backpressure model of a config."""
    if knobs.backpressure != "poll":
        return Backpressure(0, wake_ps=ns_to_ps(cost.wakeup_ns))
    most_ps = ns_to_ps(knobs.poll_interval_max_ns or 0)
    return Backpressure(ns_to_ps(knobs.poll_interval_ns), most_ps, ns_to_ps(cost.poll_ns))
