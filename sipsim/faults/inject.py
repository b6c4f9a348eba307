"""Faults as they strike, inside a SIP's process at their simulated time. Which and when says ``sipsim.faults.plan``.

No event is put into the queue, so that nothing that is simulated, counted or told to the broker depends on a fault
that has not struck yet: the engine is run up to a fault's time first, and from there in another step.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable

from sipsim.engine import Engine
from sipsim.faults.plan import JOIN_PS, Fault

Ps = int
Execute = Callable[[Fault], None]


class FaultHook:
    """The faults of one process, yet to strike. ``execute`` does what cannot be taken back.

    ``mute``: whether nothing must be sent any more. ``slower``: how many times as long everything takes.
    """

    def __init__(self, engine: Engine, faults: tuple[Fault, ...], execute: Execute) -> None:
        self.mute = False
        self.slower = 1
        self._pending = sorted(faults, key=lambda fault: fault.at_ps)
        self._run_before = engine.run_before
        self._engine = engine
        self._strike = execute

    def look(self, now_ps: Ps) -> None:
        """Everything before ``now_ps`` has been simulated: let happen what is due. ``JOIN_PS``: nothing has been."""
        while self._pending and self._pending[0].at_ps <= now_ps:
            fault = self._pending.pop(0)
            print(f"fault {fault} is injected", file=sys.stderr, flush=True)
            if fault.kind == "mute":
                self.mute = True
            elif fault.kind == "slow":
                self.slower = fault.value
            else:
                self._strike(fault)

    def joining(self) -> None:
        """Before the SIP joins."""
        self.look(JOIN_PS)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """``Engine.run_before``, which stops at every fault on the way. A fault after the last event never comes."""
        at_ps = self._pending[0].at_ps if self._pending else None
        if at_ps is None or (horizon_ps is not None and at_ps >= horizon_ps):
            return self._run_slowly(horizon_ps, most_events)
        if not self._run_slowly(at_ps, most_events):
            return False
        if horizon_ps is None and self._engine.next_ps() is None:
            return True
        self.look(at_ps)
        return False

    def _run_slowly(self, horizon_ps: Ps | None, most_events: int) -> bool:
        began_ns = time.perf_counter_ns()
        reached = self._run_before(horizon_ps, most_events)
        if self.slower > 1:
            time.sleep((self.slower - 1) * (time.perf_counter_ns() - began_ns) / 1e9)
        return reached


def execute(fault: Fault) -> None:
    """Do it to this very process."""
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "exit":
        sys.stdout.flush()
        os._exit(fault.value)
    elif fault.kind == "hang":
        # In C, where Python's lock is never let go, and no signal handler runs.
        sum(itertools.repeat(0))


def install(engine: Engine, faults: tuple[Fault, ...], act: Execute = execute) -> FaultHook | None:
    """Let ``faults`` happen to whoever runs ``engine``; None when there are none, at no cost.

    Whoever sends asks ``mute`` first, and calls ``joining`` before it joins.
    """
    if not faults:
        return None
    hook = FaultHook(engine, faults, act)
    engine.run_before = hook.run_before  # type: ignore[method-assign]
    return hook
