"""Delays: PE_CPU is busy with what the model does not know, such as code of the kernel between its commands."""

from functools import partial

from sipsim.chips.ahbm.pe.commands import Completion, Delay
from sipsim.chips.ahbm.pe.engine.engines import CommandEngine, engine_for
from sipsim.core.task import Task
from sipsim.records.oplog.oplog import record_kind
from sipsim.records.replay.rules import ReplayPe, replays

DELAY = record_kind("delay", "ps")


@engine_for(Delay)
class DelayEngine(CommandEngine):
    """A delay begins when PE_CPU has issued what it was given, and is no command to issue itself."""

    def issue(self, task: Task) -> None:
        self._pe.cpu.catch_up(task)

    def take(self, command: Delay) -> Completion:
        completion = self._begin(command)
        self._engine.at(completion.start_ps + command.ps, partial(self._end, completion, DELAY, command.ps))
        return completion


@replays(DELAY)
def replay_delay(_pe: ReplayPe, _ps: int) -> None:
    """Nothing."""
