"""Executes injected faults inside a SIP's process at their simulated time; ``sipsim.node.faults.plan`` parses them.

No event enters the queue: the engine runs up to the fault's time, and from there in another step. So neither the
simulation nor its counts depend on a fault that has not been executed.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable

from sipsim.core.engine import Engine
from sipsim.core.errors import note
from sipsim.node.faults.plan import JOIN_PS, Fault

Ps = int
Execute = Callable[[Fault], None]


class FaultHook:
    """The pending faults of one process. ``execute`` carries out those that end or stop it.

    ``mute``: whether the process must send nothing more. ``slower``: the factor by which it is slowed.
    """

    def __init__(self, engine: Engine, faults: tuple[Fault, ...], execute: Execute) -> None:
        self.mute = False
        self.slower = 1
        self._pending = sorted(faults, key=lambda fault: fault.at_ps)
        self._run_before = engine.run_before
        self._engine = engine
        self._execute = execute

    def execute_due(self, now_ps: Ps) -> None:
        """Execute the faults due at ``now_ps``, once all events before it have run. ``JOIN_PS``: before joining."""
        while self._pending and self._pending[0].at_ps <= now_ps:
            fault = self._pending.pop(0)
            note(f"fault {fault} is injected")
            if fault.kind == "mute":
                self.mute = True
            elif fault.kind == "slow":
                self.slower = fault.value
            else:
                self._execute(fault)

    def before_join(self) -> None:
        """Execute the faults due before the SIP joins."""
        self.execute_due(JOIN_PS)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """``Engine.run_before`` that stops at every fault. A fault after the last event is never executed."""
        at_ps = self._pending[0].at_ps if self._pending else None
        if at_ps is None or (horizon_ps is not None and at_ps >= horizon_ps):
            return self._run_slowly(horizon_ps, most_events)
        if not self._run_slowly(at_ps, most_events):
            return False
        if horizon_ps is None and self._engine.next_ps() is None:
            return True
        self.execute_due(at_ps)
        return False

    def _run_slowly(self, horizon_ps: Ps | None, most_events: int) -> bool:
        # CPU time: on a loaded host the clock would count the others' work too, and make it slower still.
        began_ns = time.process_time_ns()
        reached = self._run_before(horizon_ps, most_events)
        if self.slower > 1:
            time.sleep((self.slower - 1) * (time.process_time_ns() - began_ns) / 1e9)
        return reached


def execute(fault: Fault) -> None:
    """Kill, stop, end or hang this process."""
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "exit":
        sys.stdout.flush()
        os._exit(fault.value)
    elif fault.kind == "hang":
        # A loop in C: the GIL is never released, and no signal handler runs.
        sum(itertools.repeat(0))


def install(engine: Engine, faults: tuple[Fault, ...], act: Execute = execute) -> FaultHook | None:
    """Hook ``faults`` into ``engine``; None, at no cost, when there are none.

    The process checks ``mute`` before it sends, and calls ``before_join`` before it joins.
    """
    if not faults:
        return None
    hook = FaultHook(engine, faults, act)
    engine.run_before = hook.run_before  # type: ignore[method-assign]
    return hook
