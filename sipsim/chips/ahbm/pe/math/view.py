"""Views: values that a PE holds, in another shape, or in part, or several as one. No part of the PE takes part, so they
take no time.

They share the room of their operands in the TCM, which returns when none is referred to any more. An operand that is
still in a slot is fetched first, as by any command that names it. Handles that are joined were placed one behind the
other when they were made (where each lies is the compiler's: ``sipsim.chips.ahbm.pe.tcm.room``), so a handle is joined
once at most, and neither a view nor a message in its slot is: these lie elsewhere.
"""

import math
from typing import Any

import numpy as np

from sipsim.chips.ahbm.pe.commands import Completion, Join, View
from sipsim.chips.ahbm.pe.engine.engines import CommandEngine, engine_for
from sipsim.chips.ahbm.pe.tcm.handles import Array, Handle
from sipsim.core.task import Task
from sipsim.records.oplog.oplog import as_text, record_kind, shape_of
from sipsim.records.replay.rules import ReplayPe, replays

VIEW = record_kind("view", "dtype", "shape", "operand", "result_shape", "result")
PART = record_kind("part", "dtype", "shape", "operand", "first", "result_shape", "result")
JOIN = record_kind("join", "dtype", "operands", "result")
VIEWS = (VIEW, PART, JOIN)
"""All kinds."""


class NoWork(CommandEngine):
    """PE_CPU has no command to issue."""

    def issue(self, task: Task) -> None:
        self._pe.cpu.catch_up(task)


@engine_for(View)
class ViewEngine(NoWork):
    """Of one handle."""

    def take(self, command: View) -> Completion:
        completion = self._begin(command)
        self._claim(completion, command.operand)
        self._fetch(completion, self._view)
        return completion

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        return (command.operand,)

    def _view(self, completion: Completion) -> None:
        operand, dims, result, first = completion.command
        result.array = _part(operand.array, first, dims)
        result.room = operand.room
        of, is_whole = (operand.dtype.name, as_text(operand.shape), operand.name), result.nbytes == operand.nbytes
        fields = (*of, *(() if is_whole else (first,)), as_text(dims), result.name)
        del operand, result
        self._end(completion, VIEW if is_whole else PART, *fields)


@engine_for(Join)
class JoinEngine(NoWork):
    """Of several handles, which keep their room: it is that of the whole."""

    def take(self, command: Join) -> Completion:
        completion = self._begin(command)
        operands, result = command
        result.array = np.concatenate([each.array.reshape(-1) for each in operands])
        result.array.flags.writeable = False
        result.room = tuple([each.room for each in operands])
        fields = result.dtype.name, ",".join([each.name for each in operands]), result.name
        del operands, result, command
        self._end(completion, JOIN, *fields)
        return completion


@replays(VIEW)
def replay_view(pe: ReplayPe, _dtype: str, _shape: str, operand: str, dims: str, _result: str) -> Array:
    """The values of its operand in the other shape."""
    return pe.value(operand).reshape(shape_of(dims))


@replays(PART)
def replay_part(pe: ReplayPe, _dtype: str, _shape: str, operand: str, first: int, dims: str, _result: str) -> Array:
    """Some of the values of its operand."""
    return _part(pe.value(operand), first, shape_of(dims))


@replays(JOIN)
def replay_join(pe: ReplayPe, _dtype: str, operands: str, _result: str) -> Array:
    """The values of all its operands."""
    return np.concatenate([pe.value(each).reshape(-1) for each in operands.split(",")])


def _part(values: Array, first: int, dims: tuple[int, ...]) -> Array:
    return values.reshape(-1)[first : first + math.prod(dims)].reshape(dims)
