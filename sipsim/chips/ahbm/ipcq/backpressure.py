"""When a PE that waits for its peer goes on (ADR-0023 D7): a spin loop, or sleep until an event.

``sleep``: the event wakes PE_CPU, which takes ``pe_cpu.wakeup_ns`` (interrupt entry, restore, return), however long the
wait was.

``poll``: PE_CPU looks again and again. A look takes ``pe_cpu.poll_ns``, and the one that sees the event is paid; a
look at the very time of the event sees it. The first comes ``poll_interval_ns`` after the wait began. With
``poll_interval_max_ns`` the loop backs off: each interval is twice the one before, up to that bound, as a loop does
that leaves the TCM port and the power to others (Anderson, "The performance of spin lock alternatives", IEEE TPDS 1990;
Agarwal and Cherian, "Adaptive backoff synchronization techniques", ISCA 1989). Without, all intervals are alike. The
empty looks are computed and cost no events.

**The crossing.** Let p be the first interval, P the bound, c a look and W a wake-up. Looks come at

    t(k) = p * (2**k - 1)            while p * 2**k <= P, then every P

so an event at a time that is evenly spread over the interval from t(k) is seen p * 2**k / 2 + c later in the mean, and
with ``sleep`` W later. Poll wins while p * 2**k < 2 * (W - c), and loses in every interval from then on, which begin
at the wait

    t(m) = p * (2**m - 1),    m the least with p * 2**m >= 2 * (W - c)

(:meth:`Backpressure.crossing_ps`). If no interval becomes so long, since P < 2 * (W - c), poll always wins in the mean:
so it would with a constant short interval, which is why a loop that spins for long must back off to be worth a study.
**Limits**: a look disturbs nobody else's accesses; a kernel that sleeps is woken by its own event only.
"""

from sipsim.config.schema import IpcqKnobs, PeCpu
from sipsim.core.units import ns_to_ps

Ps = int


class Backpressure:
    """``interval_ps``: until the first look, 0 for ``sleep``; ``most_ps``: the longest interval, 0 for a constant one.

    ``look_ps``: of a look, ``wake_ps``: of a wake-up. ``delays``: whether a wait may end later than its event.
    ``is_free``: looks and wake-ups take no time, and a receive is polled for from its post, whoever waits for it.
    """

    def __init__(self, interval_ps: Ps, most_ps: Ps = 0, look_ps: Ps = 0, wake_ps: Ps = 0) -> None:
        self.polls = interval_ps > 0
        self.interval_ps = max(interval_ps, look_ps) if self.polls else 0
        self.most_ps = max(most_ps, self.interval_ps) if self.polls else 0
        self.look_ps = look_ps if self.polls else 0
        self.wake_ps = 0 if self.polls else wake_ps
        self.delays = self.polls or wake_ps > 0
        self.is_free = not (self.look_ps or self.wake_ps) and self.most_ps == self.interval_ps
        self._doublings = (-(-self.most_ps // self.interval_ps) - 1).bit_length() if self.polls else 0

    def seen_ps(self, since_ps: Ps, event_ps: Ps) -> Ps:
        """When a wait that began at ``since_ps`` sees an event; one that was there already is seen at its begin."""
        if event_ps <= since_ps:
            return since_ps
        if not self.polls:
            return event_ps + self.wake_ps
        return since_ps + self._first_look_ps(event_ps - since_ps) + self.look_ps

    def crossing_ps(self, wake_ps: Ps) -> Ps | None:
        """The wait from which on ``poll`` is slower in the mean than a wake-up; None if it never is."""
        least_ps = 2 * (wake_ps - self.look_ps)
        for number in range(self._doublings + 1):
            interval_ps = min(self.interval_ps << number, self.most_ps)
            if interval_ps >= least_ps:
                return self.interval_ps * ((1 << number) - 1)
        return None

    def _first_look_ps(self, wait_ps: Ps) -> Ps:
        """The first look that is not before ``wait_ps``, from the begin of the wait on."""
        number = (-(-wait_ps // self.interval_ps)).bit_length()
        if number <= self._doublings:
            return self.interval_ps * ((1 << number) - 1)
        grown_ps = self.interval_ps * ((1 << self._doublings) - 1)
        return grown_ps + -(-(wait_ps - grown_ps) // self.most_ps) * self.most_ps


def backpressure_of(knobs: IpcqKnobs, cost: PeCpu) -> Backpressure:
    """That of a config."""
    if knobs.backpressure != "poll":
        return Backpressure(0, wake_ps=ns_to_ps(cost.wakeup_ns))
    most_ps = ns_to_ps(knobs.poll_interval_max_ns or 0)
    return Backpressure(ns_to_ps(knobs.poll_interval_ns), most_ps, ns_to_ps(cost.poll_ns))
