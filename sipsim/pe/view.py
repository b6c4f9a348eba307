"""Views: values that a PE holds, in another shape. No part of the PE takes part, so they take no time.

They share the room of their operand in the TCM, which returns when neither is referred to any more. An operand that is
still in a slot is fetched first, as by any command that names it.
"""

from sipsim.pe.commands import Completion, View
from sipsim.pe.engines import CommandEngine, engine_for
from sipsim.pe.handles import Array
from sipsim.record.oplog import as_text, record_kind, shape_of
from sipsim.record.replay.rules import ReplayPe, replays
from sipsim.task import Task

VIEW = record_kind("view", "dtype", "shape", "operand", "result_shape", "result")


@engine_for(View)
class ViewEngine(CommandEngine):
    """PE_CPU has no command to issue."""

    def issue(self, task: Task) -> None:
        self._pe.cpu.catch_up(task)

    def take(self, command: View) -> Completion:
        completion = self._begin(command)
        self._claim(completion, command.operand)
        self._fetch(completion, (command.operand,), self._view)
        return completion

    def _view(self, completion: Completion) -> None:
        operand, dims, result = completion.command
        result.array = operand.array.reshape(dims)
        result.room = operand.room
        fields = operand.dtype.name, as_text(operand.shape), operand.name, as_text(dims), result.name
        del operand, result
        self._end(completion, VIEW, *fields)


@replays(VIEW)
def replay_view(pe: ReplayPe, _dtype: str, _shape: str, operand: str, dims: str, _result: str) -> Array:
    """The values of its operand in the other shape."""
    return pe.value(operand).reshape(shape_of(dims))
