"""Faults that are the launcher's to make: to itself, the broker, agents and hosts (see ``sipsim.faults.plan``).

``FaultSchedule`` is pure and says what is due; ``FaultInjector`` does what needs no host, the host pool the rest.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from launcher.supervise.watchdog import log
from sipsim.faults.plan import Fault, FaultPlan

CUT_PROGRAM = "AHBM_CUT"
PS_PER_S = 10**12
END_S = 5.0
"""For a program that cuts a host off to end, once the run has."""


class FaultSchedule:
    """When what is due: the broker by simulated time, the others by wall time since the run began."""

    def __init__(self, plan: FaultPlan, began_s: float) -> None:
        self._began_s = began_s
        self._by_wall = list(plan.for_launcher())
        self._broker_ps = plan.for_broker()

    @property
    def asks_status(self) -> bool:
        """Whether it must be known how far the run is."""
        return self._broker_ps is not None

    def due(self, now_s: float) -> list[Fault]:
        """What has become due by now; each is told once."""
        since_ps = (now_s - self._began_s) * PS_PER_S
        found = [fault for fault in self._by_wall if fault.at_ps <= since_ps]
        del self._by_wall[: len(found)]
        return found

    def seconds_left(self, now_s: float) -> float | None:
        """Until the next one by wall time."""
        if not self._by_wall:
            return None
        return max(self._by_wall[0].at_ps / PS_PER_S - (now_s - self._began_s), 0.0)

    def broker_dies(self, now_ps: int) -> bool:
        """Whether the broker's time has come, now that every SIP has got to ``now_ps``; told once."""
        is_due = self._broker_ps is not None and now_ps >= self._broker_ps
        if is_due:
            self._broker_ps = None
        return is_due


class FaultInjector:
    """One run's. ``on_host(kind, host)`` cuts off or kills an agent, and says whether it could."""

    def __init__(self, faults: tuple[str, ...], on_host: Callable[[str, str], bool]) -> None:
        self._on_host = on_host
        self._timetable = FaultSchedule(FaultPlan.of(faults), time.monotonic())
        self._cutting: list[subprocess.Popen[bytes]] = []

    @property
    def asks_status(self) -> bool:
        """As ``FaultSchedule`` has it."""
        return self._timetable.asks_status

    def patience_s(self, at_most: float) -> float:
        """How long the loop may sleep before it must look."""
        left_s = self._timetable.seconds_left(time.monotonic())
        return at_most if left_s is None else min(at_most, left_s)

    def broker_dies(self, now_ps: int) -> bool:
        """As ``FaultSchedule`` has it."""
        return self._timetable.broker_dies(now_ps)

    def look(self) -> None:
        """Break what is due."""
        for fault in self._timetable.due(time.monotonic()):
            log(f"fault {fault} strikes")
            if fault.kind == "launcher":
                os.kill(os.getpid(), signal.SIGKILL)
            elif not (fault.kind == "cut" and self._cut(fault.host)) and not self._on_host(fault.kind, fault.host):
                log(f"fault {fault}: {fault.host} cannot be reached for that")

    def close(self) -> None:
        """Leave no program behind."""
        for process in self._cutting:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            if process.poll() is None:
                process.kill()
                process.wait()

    def _cut(self, host: str) -> bool:
        """By the user's program, if there is one."""
        program = os.environ.get(CUT_PROGRAM)
        if not program:
            return False
        try:
            self._cutting.append(subprocess.Popen([program, host], stdin=subprocess.DEVNULL, stdout=2))
        except OSError as error:
            log(f"{CUT_PROGRAM}={program}: {error.strerror}")
            return False
        return True
