"""Base firmware of an Ethernet core, which retrains the core's link after an outage while no kernel holds it back.

A kernel has the core's only processor. The firmware runs before and after a kernel, in each call that contains
``run_routing``, and all through a wait that does. After an outage, bytes cross the link when the outage has ended and
the firmware of both ends has run since the link went down; what comes later than the outage's end by this is delayed as
much. Without outages nothing here takes time or costs events.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sipsim.core.engine import Callback, Engine
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import format_exact_time_ps

Ps = int
NEVER_PS = -1
LONGEST_HOLD_PS = 10**9
"""Time for which a link waits for the firmware before the run ends with an error; a kernel may never call it."""


class Firmware:
    """Base firmware of the Ethernet core of link ``link``. ``holder``: name of the kernel that has the core, or ""."""

    def __init__(self, link: str, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        self.holder = ""
        self._waits = 0
        self._ran_ps: Ps = NEVER_PS
        self._last_ps: Ps = NEVER_PS
        self._held: deque[tuple[Ps, Callable[[], None]]] = deque()
        self._alarm: Callback | None = None

    def kernel_started(self, name: str) -> None:
        """Note that a kernel has the core from now on."""
        self._run()
        self.holder = name

    def kernel_ended(self) -> None:
        """Note that the core's kernel has ended."""
        self.holder = ""
        self._run()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all through a call or a loop of the kernel that contains ``run_routing``."""
        self._waits += 1
        self._run()
        try:
            yield
        finally:
            self._waits -= 1
            self._run()

    def has_run_since(self, down_ps: Ps) -> bool:
        """Whether the firmware has run at ``down_ps``, which is not later than now, or since then."""
        return not self.holder or self._waits > 0 or self._ran_ps >= down_ps

    def take(self, down_ps: Ps, up_ps: Ps, arrive: Callable[[], None]) -> None:
        """Call ``arrive`` for a message that has crossed the link after an outage: now, or, if the firmware has not run
        since then, as late after it runs as now is after the outage's end. The order of these calls is kept, also by a
        message without an outage before it, whose ``down_ps`` is 0.
        """
        engine, crossed_ps = self._engine, self._engine.now_ps

        def retrained() -> None:
            late_ps = crossed_ps - up_ps if down_ps and engine.now_ps > crossed_ps else 0
            self._last_ps = max(self._last_ps, engine.now_ps + late_ps)
            if self._last_ps > engine.now_ps:
                engine.at(self._last_ps, arrive)
            else:
                arrive()

        self.when_run(down_ps, retrained)

    def when_run(self, down_ps: Ps, action: Callable[[], None]) -> None:
        """Call ``action`` when the firmware has run since ``down_ps``, now or later, in the order of these calls."""
        self._held.append((down_ps, action))
        now_ps = self._engine.now_ps
        if down_ps > now_ps:
            self._engine.at(down_ps, self._release)
        self._release()

    def _run(self) -> None:
        self._ran_ps = self._engine.now_ps
        if self._held:
            self._release()

    def _release(self) -> None:
        held, now_ps = self._held, self._engine.now_ps
        while held and held[0][0] <= now_ps and self.has_run_since(held[0][0]):
            held.popleft()[1]()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if held and held[0][0] <= now_ps:
            self._alarm = self._engine.at(now_ps + LONGEST_HOLD_PS, self._give_up)

    def _give_up(self) -> None:
        down_ps = self._held[0][0]
        raise KernelMisuse(
            f"{self.holder} has not called run_routing since link {self._link} went down at "
            f"{format_exact_time_ps(down_ps)}, so that the link is not retrained; call run_routing, or a call of the "
            "Ethernet data flow that contains it, in each loop"
        )
