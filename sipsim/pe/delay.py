"""Delays: PE_CPU is busy with what the model does not know, such as code of the kernel between its commands."""

from functools import partial

from sipsim.pe.commands import Completion, Delay
from sipsim.pe.engines import CommandEngine, engine_for
from sipsim.record.oplog import record_kind
from sipsim.record.replay.rules import ReplayPe, replays
from sipsim.task import Task

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
