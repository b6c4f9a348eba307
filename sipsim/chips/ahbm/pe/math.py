"""PE_MATH: operations on values in a PE; and commands without work for an engine: constants, delays, views.

:mod:`sipsim.core.arithmetic` computes the values.
"""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import (
    Cast,
    Completion,
    Const,
    Delay,
    Join,
    Make,
    MathOp,
    MathWork,
    Number,
    Rearrange,
    Reduce,
    View,
    math_work,
)
from sipsim.chips.ahbm.pe.engine import CommandEngine, engine_for
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.config.schema import PeMath as PeMathCost
from sipsim.core.arithmetic.operations import along_axis, cast, elementwise
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.task import Task
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import bottleneck
from sipsim.records.oplog import DIGITS, as_text, record_kind, shape_of, values_as_text
from sipsim.records.replay import ReplayPe, WrongRecord, replays

MATH = record_kind("math", "op", "dtype", "shape", "operands", "result")
"""Record with the ``dtype`` of the operands and the ``shape`` of the result; numbers are written exactly."""
REDUCE = record_kind("reduce", "op", "dtype", "shape", "axis", "operand", "result_dtype", "result_shape", "result")
CAST = record_kind("cast", "dtype", "shape", "operand", "result_dtype", "result")
REARRANGE = record_kind("rearrange", "op", "dtype", "shape", "operand", "result_shape", "result")
"""Records with the ``dtype`` and ``shape`` of the operand. ``axis``: ``all`` for all elements, in order."""
MAKE = record_kind("make", "op", "dtype", "shape", "value", "result")
ALL_AXES = "all"

MAKERS: dict[str, Callable[..., Array]] = {
    "full": np.full,
    "arange": lambda dims, start, dtype: np.arange(start, start + dims[0]).astype(dtype),
}
"""Functions by operation: each makes an array from shape, value and NumPy type."""
REARRANGEMENTS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "trans": lambda values, _dims: values.T,
    "broadcast_to": np.broadcast_to,
}


class MathTimes:
    """Times of operations under a config.

    An operation takes a fixed start-up time, then processes its bytes at ``bandwidth_GBps``. Its bytes are the elements
    of the result (in a reduction, of the operand) in the wider type, times the operation's ``passes``. A special
    function takes ``special_factor`` times as long.

    Limits: bytes are counted, not vectors, so a partial last vector takes part of its time. The last steps of a
    reduction, within one vector (64 B by default), take no time; nor does widening to f32. Reads and writes of the TCM
    are pipelined: its latencies add no time.
    """

    def __init__(self, cost: PeMathCost) -> None:
        self._cost = cost
        self.overhead_ps = ns_to_ps(cost.overhead_ns)
        self._bps = gbytes_per_s_to_bps(cost.bandwidth_GBps)

    @cached_property
    def _special_bps(self) -> int:
        return gbytes_per_s_to_bps(self._cost.bandwidth_GBps / self._cost.special_factor)

    def latency_ps(self, nbytes: int, is_special: bool = False) -> int:
        """Return the time of an operation with ``nbytes`` in all passes, start-up included, in ps."""
        return self.overhead_ps + self.span_ps(nbytes, is_special)

    def span_ps(self, nbytes: int, is_special: bool = False) -> int:
        """Return the time to process ``nbytes``, in ps."""
        return drain_ps(nbytes, self._special_bps if is_special else self._bps)


@engine_for(MathOp, Reduce, Cast, Rearrange, Make)
class PeMath(CommandEngine):
    """PE_MATH of one PE. An operation first fetches operands that are still in a slot."""

    starts_later = True
    queue_name = "PE_MATH"

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        self._math = MathTimes(sip.plan.resolved.components.pe_math)
        self._tcm = pe.dma.tcm

    def take(self, command: Any) -> Completion:
        completion, work = self._begin(command), math_work(command)
        self._claim(completion, *command.handles)
        self._enter(completion, partial(self._start, work))
        return completion

    def _start(self, work: MathWork, completion: Completion) -> None:
        self._fetch(completion, partial(self._begin_when_free, work))

    def _begin_when_free(self, work: MathWork, completion: Completion) -> None:
        if self.engine_queue is None:
            self._begin_operation(work, completion)
        else:
            self._pe.units.math.when_free(partial(self._begin_operation, work, completion))

    def _begin_operation(self, work: MathWork, completion: Completion) -> None:
        """Begin an operation: its start-up, then its bytes at the lower rate of PE_MATH and the TCM's ports.

        Without an engine queue the operation does not share the ports with other accesses.
        """
        now_ps, start_ps = self._engine.now_ps, self._engine.now_ps + self._delay_ps(completion)
        delay_ps, span_ps = start_ps - now_ps + self._math.overhead_ps, self._math.span_ps(work.nbytes, work.is_special)
        route, ended = self._tcm.operating(work), partial(self._compute, work, start_ps, completion)
        if self.engine_queue is None:
            self._engine.at(now_ps + delay_ps + bottleneck(route.edges, work.nbytes, span_ps).ps, ended)
        else:
            self._pe.dma.operate(route, work.nbytes, delay_ps, span_ps, ended)

    def _compute(self, work: MathWork, start_ps: int, completion: Completion) -> None:
        unit, now_ps = self._pe.units.math, self._engine.now_ps
        if self.engine_queue is None:
            unit.count(now_ps - start_ps)
        else:
            unit.end(start_ps, now_ps)
            unit.begin_next()
        self._end(completion, *_PERFORM[type(completion.command)](completion.command), work=(work,))


def _operate(command: MathOp) -> tuple[object, ...]:
    op, result, dtype = command.op, command.result, command.of_type
    if command.dims is None:
        handles = command.handles
        names = ",".join([each.name for each in handles])
        _fill(result, elementwise(op, tuple([each.array for each in handles]), dtype))
    else:
        names = ",".join([each.name if isinstance(each, Handle) else repr(each) for each in command.operands])
        _fill(result, elementwise(op, tuple([_array(each, dtype.numpy) for each in command.operands]), dtype))
    return MATH, op, dtype.name, as_text(result.shape), names, result.name


def _array(operand: Handle | Number, dtype: "np.dtype[Any]") -> Array:
    return operand.array if isinstance(operand, Handle) else np.array(operand, dtype)


def _reduce(command: Reduce) -> tuple[object, ...]:
    op, operand, axis, dims, result = command.op, command.operand, command.axis, command.shape, command.result
    _fill(result, _reduced(op, operand.array, operand.dtype, axis, dims))
    fields = operand.dtype.name, as_text(operand.shape), ALL_AXES if axis is None else axis, operand.name
    return REDUCE, op, *fields, result.dtype.name, as_text(dims), result.name


def _reduced(op: str, values: Array, dtype: DType, axis: int | None, dims: tuple[int, ...]) -> Array:
    flat = values.reshape(-1) if axis is None else values
    return along_axis(op, flat, dtype, axis or 0).reshape(dims)


def _cast(command: Cast) -> tuple[object, ...]:
    operand, result = command.operand, command.result
    _fill(result, cast(operand.array, result.dtype))
    return CAST, operand.dtype.name, as_text(operand.shape), operand.name, result.dtype.name, result.name


def _rearrange(command: Rearrange) -> tuple[object, ...]:
    op, operand, dims, result = command.op, command.operand, command.shape, command.result
    _fill(result, np.ascontiguousarray(REARRANGEMENTS[op](operand.array, dims)))
    fields = operand.dtype.name, as_text(operand.shape), operand.name
    return REARRANGE, op, *fields, as_text(dims), result.name


def _make(command: Make) -> tuple[object, ...]:
    op, dims, value, result = command.op, command.shape, command.value, command.result
    _fill(result, MAKERS[op](dims, value, result.dtype.numpy))
    return MAKE, op, result.dtype.name, as_text(dims), repr(value), result.name


def _fill(result: Handle, values: Array) -> None:
    values.flags.writeable = False
    result.array = values


_PERFORM: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    MathOp: _operate,
    Reduce: _reduce,
    Cast: _cast,
    Rearrange: _rearrange,
    Make: _make,
}
"""Functions that fill the result of a command and return the kind and fields of its record."""


@replays(MATH)
def replay_math(pe: ReplayPe, op: str, dtype: str, _shape: str, operands: str, _result: str) -> Array:
    """Return the operation's result from the values of its operands."""
    kind = DTYPES[dtype]
    return elementwise(op, tuple([_operand(pe, each, kind) for each in operands.split(",")]), kind)


def _operand(pe: ReplayPe, text: str, dtype: DType) -> Array:
    """Return the values of a handle, or a number as an array."""
    return pe.value(text) if text.startswith("h") else np.array(_number(text), dtype.numpy)


def _number(text: str) -> Number:
    """Parse the ``repr`` of an int or a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


@replays(REDUCE)
def replay_reduce(pe: ReplayPe, op: str, *fields: Any) -> Array:
    """Return the reduction of the operand's values."""
    dtype, _shape, axis, operand, _to, dims, _result = fields
    return _reduced(op, pe.value(operand), DTYPES[dtype], None if axis == ALL_AXES else axis, shape_of(dims))


@replays(CAST)
def replay_cast(pe: ReplayPe, _dtype: str, _shape: str, operand: str, to: str, _result: str) -> Array:
    """Return the operand's values in the other type."""
    return cast(pe.value(operand), DTYPES[to])


@replays(REARRANGE)
def replay_rearrange(pe: ReplayPe, op: str, *fields: Any) -> Array:
    """Return the operand's values, rearranged."""
    _dtype, _shape, operand, dims, _result = fields
    return np.ascontiguousarray(REARRANGEMENTS[op](pe.value(operand), shape_of(dims)))


@replays(MAKE)
def replay_make(_pe: ReplayPe, op: str, dtype: str, shape: str, value: str, _result: str) -> Array:
    """Return the values that the command made."""
    return MAKERS[op](shape_of(shape), _number(value), DTYPES[dtype].numpy)


CONST = record_kind("const", "dtype", "shape", "values", "result")


@engine_for(Const)
class ConstEngine(CommandEngine):
    """Engine that records values that a kernel computed in Python, for the replay. The values take no time.

    The result is a copy: the kernel may change its array afterwards.
    """

    def take(self, command: Const) -> Completion:
        completion = self._begin(command)
        result = command.result
        result.array = np.array(command.values)
        result.array.flags.writeable = False
        text = values_as_text(result.array.tobytes())
        self._end(completion, CONST, result.dtype.name, as_text(result.shape), text, result.name)
        return completion


@replays(CONST)
def replay_const(pe: ReplayPe, dtype: str, shape: str, values: str, _result: str) -> Array:
    """Return the recorded values; if only their hash was recorded, the values of the first pass."""
    if values.startswith(DIGITS):
        data = bytes.fromhex(values.removeprefix(DIGITS))
    else:
        first = pe.recorded
        data = b"" if first is None else first if isinstance(first, bytes) else first.tobytes()
        first_pass = values_as_text(data)
        if first_pass != values:
            raise WrongRecord(f"the record states values with {values}, the first pass has values with {first_pass}")
    return np.frombuffer(data, DTYPES[dtype].numpy).reshape(shape_of(shape))


DELAY = record_kind("delay", "ps")


@engine_for(Delay)
class DelayEngine(CommandEngine):
    """Engine that keeps PE_CPU busy for a given time, for example for kernel code between commands.

    A delay begins when all earlier commands are issued; it has no issue time.
    """

    def issue(self, task: Task) -> None:
        self._pe.cpu.catch_up(task)

    def take(self, command: Delay) -> Completion:
        completion = self._begin(command)
        self._engine.at(
            completion.start_ps + command.ps, partial(self._end, completion, DELAY, command.ps, work=(command.ps,))
        )
        return completion


@replays(DELAY)
def replay_delay(_pe: ReplayPe, _ps: int) -> None:
    """Do nothing: a delay changes no values."""


VIEW = record_kind("view", "dtype", "shape", "operand", "result_shape", "result")
PART = record_kind("part", "dtype", "shape", "operand", "first", "result_shape", "result")
JOIN = record_kind("join", "dtype", "operands", "result")
VIEWS = (VIEW, PART, JOIN)
"""Kinds of the records of views."""


class NoWork(CommandEngine):
    """Base class of the engines of views, which take no time: existing values in another shape, in part, or joined.

    PE_CPU has nothing to issue. A view shares the TCM space of its operands, which is freed when no view or operand is
    referenced any more. An operand that is still in a slot is fetched first, as by every command that uses it.
    """

    def issue(self, task: Task) -> None:
        self._pe.cpu.catch_up(task)


@engine_for(View)
class ViewEngine(NoWork):
    """Engine that makes a view of one handle."""

    def take(self, command: View) -> Completion:
        completion = self._begin(command)
        self._claim(completion, command.operand)
        self._fetch(completion, self._view)
        return completion

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        return (command.operand,)

    def _view(self, completion: Completion) -> None:
        command: View = completion.command
        operand, dims, result, first = command.operand, command.dims, command.result, command.first
        result.array = _part(operand.array, first, dims)
        result.room, result.offset = operand.room, operand.offset + first * operand.dtype.itemsize
        source, is_whole = (operand.dtype.name, as_text(operand.shape), operand.name), result.nbytes == operand.nbytes
        fields = (*source, *(() if is_whole else (first,)), as_text(dims), result.name)
        del operand, result, command
        self._end(completion, VIEW if is_whole else PART, *fields)


@engine_for(Join)
class JoinEngine(NoWork):
    """Engine that makes one view of several handles; the view holds the TCM space of all these handles.

    The model assumes that the compiler placed joined handles contiguously (``sipsim.chips.ahbm.pe.tcm``). So a handle
    can be joined only once, and views and messages in their slots cannot be joined.
    """

    def take(self, command: Join) -> Completion:
        completion = self._begin(command)
        operands, result = command.operands, command.result
        result.array = np.concatenate([each.array.reshape(-1) for each in operands])
        result.array.flags.writeable = False
        result.room = tuple([each.room for each in operands])
        fields = result.dtype.name, ",".join([each.name for each in operands]), result.name
        del operands, result, command
        self._end(completion, JOIN, *fields)
        return completion


@replays(VIEW)
def replay_view(pe: ReplayPe, _dtype: str, _shape: str, operand: str, dims: str, _result: str) -> Array:
    """Return the operand's values in the other shape."""
    return pe.value(operand).reshape(shape_of(dims))


@replays(PART)
def replay_part(pe: ReplayPe, _dtype: str, _shape: str, operand: str, first: int, dims: str, _result: str) -> Array:
    """Return some of the operand's values."""
    return _part(pe.value(operand), first, shape_of(dims))


@replays(JOIN)
def replay_join(pe: ReplayPe, _dtype: str, operands: str, _result: str) -> Array:
    """Return the values of all operands, concatenated."""
    return np.concatenate([pe.value(each).reshape(-1) for each in operands.split(",")])


def _part(values: Array, first: int, dims: tuple[int, ...]) -> Array:
    return values.reshape(-1)[first : first + math.prod(dims)].reshape(dims)
