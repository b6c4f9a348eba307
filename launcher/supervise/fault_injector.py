"""Injection of faults of the launcher, the broker, agents and hosts (``sipsim.node.faults``). Callers pass times."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

from launcher.supervise.stall import log
from sipsim.core.units import format_time_ps
from sipsim.node.faults import Fault, FaultPlan

CUT_PROGRAM = "AHBM_CUT"
PS_PER_S = 10**12
END_S = 5.0
"""How long the program that disconnects a host may run after the end of the run."""


class FaultInjector:
    """Injector of a run's faults: broker faults at simulated times, other faults at wall times since ``began_s``.

    ``on_host(kind, host)`` disconnects or kills the agent of ``host``, and returns whether the agent was reached.
    """

    def __init__(self, faults: tuple[str, ...], on_host: Callable[[str, str], bool], began_s: float) -> None:
        plan = FaultPlan.of(faults)
        self._on_host = on_host
        self._began_s = began_s
        self._by_wall = list(plan.for_launcher())
        self._broker_ps = plan.for_broker()
        self._cutting: list[subprocess.Popen[bytes]] = []

    @property
    def needs_status(self) -> bool:
        """Whether the injector needs the simulated time of the run."""
        return self._broker_ps is not None

    def due(self, now_s: float) -> list[Fault]:
        """Return the wall-time faults that are due at ``now_s`` and that no earlier call has returned."""
        since_ps = (now_s - self._began_s) * PS_PER_S
        found = [fault for fault in self._by_wall if fault.at_ps <= since_ps]
        del self._by_wall[: len(found)]
        return found

    def seconds_left(self, now_s: float, at_most: float) -> float:
        """Return how many seconds the loop may sleep before :meth:`inject_due` must be called."""
        if not self._by_wall:
            return at_most
        return min(at_most, max(self._by_wall[0].at_ps / PS_PER_S - (now_s - self._began_s), 0.0))

    def broker_dies(self, now_ps: int) -> bool:
        """Whether the broker's fault is due at ``now_ps``, which every SIP has reached; true only once."""
        is_due = self._broker_ps is not None and now_ps >= self._broker_ps
        if is_due:
            self._broker_ps = None
        return is_due

    def unfired(self, now_s: float, end_ps: int) -> list[str]:
        """Return a line for each fault that the run did not reach; ``end_ps``: the simulated end time of the run."""
        lines = []
        if self._broker_ps is not None:
            late = "" if self._broker_ps >= end_ps else ", before every SIP had reported the time of the fault"
            fault = Fault("broker", self._broker_ps)
            lines.append(f"fault {fault} was not injected: the run ended at {format_time_ps(end_ps)}{late}")
        after = f"the run ended after {now_s - self._began_s:.1f} s"
        return lines + [f"fault {fault} was not injected: {after}" for fault in self._by_wall]

    def inject_due(self, now_s: float) -> None:
        """Inject the faults that are due."""
        for fault in self.due(now_s):
            log(f"fault {fault} is injected")
            if fault.kind == "launcher":
                os.kill(os.getpid(), signal.SIGKILL)
            elif not (fault.kind == "cut" and self._cut(fault.host)) and not self._on_host(fault.kind, fault.host):
                log(f"fault {fault}: the agent of {fault.host} cannot be reached")

    def close(self) -> None:
        """Wait for the programs that disconnect hosts; kill a program that runs longer than ``END_S``."""
        for process in self._cutting:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            if process.poll() is None:
                process.kill()
                process.wait()

    def _cut(self, host: str) -> bool:
        """Start the user's program that disconnects a host; return whether it has started."""
        program = os.environ.get(CUT_PROGRAM)
        if not program:
            return False
        try:
            self._cutting.append(subprocess.Popen([program, host], stdin=subprocess.DEVNULL, stdout=2))
        except OSError as error:
            log(f"{CUT_PROGRAM}={program}: the program cannot be started: {error.strerror}")
            return False
        return True
