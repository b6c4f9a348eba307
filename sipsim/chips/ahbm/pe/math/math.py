"""PE_MATH: the time of operations on values that a PE holds; :mod:`sipsim.core.arithmetic` computes them.

An operation takes a fixed start-up, and goes over its bytes at a bandwidth: elements of its result (a reduction: of its
operand) in the wider of its types, as often as it has ``passes``; a special function ``special_factor`` times as long.

Limits: bytes are counted, not vectors, so a part of the last vector takes a part of its time. The last steps of a
reduction, between the elements of one vector (64 B by default), take no time of their own; nor does widening to f32.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from sipsim.chips.ahbm.pe.commands import Cast, Completion, Make, MathOp, Number, Rearrange, Reduce
from sipsim.chips.ahbm.pe.engine.engines import CommandEngine, PeParts, SipParts, engine_for
from sipsim.chips.ahbm.pe.engine.unit import MATH as MATH_UNIT
from sipsim.chips.ahbm.pe.tcm.handles import Array, Handle
from sipsim.config.schema.components import PeMath as PeMathCost
from sipsim.core.arithmetic.operations import OPERATIONS, along_axis, cast, elementwise
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.records.oplog.oplog import FIELDS, as_text, record_kind, shape_of
from sipsim.records.replay.rules import ReplayPe, replays

MATH = record_kind("math", "op", "dtype", "shape", "operands", "result")
"""``dtype``: of the operands, ``shape``: of the result. A number among the operands is written exactly."""
REDUCE = record_kind("reduce", "op", "dtype", "shape", "axis", "operand", "result_dtype", "result_shape", "result")
CAST = record_kind("cast", "dtype", "shape", "operand", "result_dtype", "result")
REARRANGE = record_kind("rearrange", "op", "dtype", "shape", "operand", "result_shape", "result")
"""``dtype`` and ``shape`` of these: of the operand. ``axis``: ``all`` for all elements, in their order."""
MAKE = record_kind("make", "op", "dtype", "shape", "value", "result")
ALL_AXES = "all"

MAKERS: dict[str, Callable[..., Array]] = {
    "full": np.full,
    "arange": lambda dims, start, dtype: np.arange(start, start + dims[0]).astype(dtype),
}
"""Functions of shape, value and NumPy type."""
REARRANGEMENTS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "trans": lambda values, _dims: values.T,
    "broadcast_to": np.broadcast_to,
}


class PeMath:
    """The times of operations by the config."""

    def __init__(self, cost: PeMathCost) -> None:
        self._cost = cost
        self._overhead_ps = ns_to_ps(cost.overhead_ns)
        self._bps = gbytes_per_s_to_bps(cost.bandwidth_GBps)

    @cached_property
    def _special_bps(self) -> int:
        return gbytes_per_s_to_bps(self._cost.bandwidth_GBps / self._cost.special_factor)

    def latency_ps(self, nbytes: int, is_special: bool = False) -> int:
        """Time of one operation that goes over ``nbytes``, those of all passes."""
        return self._overhead_ps + drain_ps(nbytes, self._special_bps if is_special else self._bps)


@engine_for(MathOp, Reduce, Cast, Rearrange, Make)
class MathEngine(CommandEngine):
    """Operands that are still in a slot are fetched first."""

    starts_later = True
    queue_name = "PE_MATH"

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        self._math = PeMath(sip.plan.resolved.components.pe_math)

    def take(self, command: Any) -> Completion:
        completion = self._begin(command)
        self._claim(completion, *command.handles)
        self._enter(completion, self._start)
        return completion

    def _start(self, completion: Completion) -> None:
        self._fetch(completion, self._work)

    def _work(self, completion: Completion) -> None:
        latency_ps = self._math.latency_ps(*completion.command.work)
        start_ps, unit = max(completion.start_ps, self._engine.now_ps), self._pe.units[MATH_UNIT]
        if self.queue is None:
            unit.count(latency_ps)
        else:
            start_ps = unit.take(start_ps, latency_ps)
        self._engine.at(start_ps + latency_ps, partial(self._compute, completion))

    def _compute(self, completion: Completion) -> None:
        self._end(completion, *_PERFORM[type(completion.command)](completion.command))


def work_of_record(kind: str, fields: Sequence[Any]) -> tuple[int, bool]:
    """What ``work`` of its command was, by a record of PE_MATH."""
    named = dict(zip(FIELDS[kind], fields, strict=True))
    dtype, to = named["dtype"], named.get("result_dtype", named["dtype"])
    elements = math.prod(shape_of(named["shape"]))
    if kind == MATH:
        operation = OPERATIONS[named["op"]]
        return elements * DTYPES[dtype].itemsize * operation.passes, operation.is_special
    if kind == REARRANGE:
        elements = math.prod(shape_of(named["result_shape"]))
    width = DTYPES[dtype].itemsize
    return elements * (max(width, DTYPES[to].itemsize) if kind == CAST else width), False


def _operate(command: MathOp) -> tuple[object, ...]:
    op, operands, result, dims, _ = command
    dtype = command.of_type
    if dims is None:
        handles = command.handles
        names = ",".join([each.name for each in handles])
        _fill(result, elementwise(op, tuple([each.array for each in handles]), dtype))
    else:
        names = ",".join([each.name if isinstance(each, Handle) else repr(each) for each in operands])
        _fill(result, elementwise(op, tuple([_array(each, dtype.numpy) for each in operands]), dtype))
    return MATH, op, dtype.name, as_text(result.shape), names, result.name


def _array(operand: Handle | Number, dtype: "np.dtype[Any]") -> Array:
    return operand.array if isinstance(operand, Handle) else np.array(operand, dtype)


def _reduce(command: Reduce) -> tuple[object, ...]:
    op, operand, axis, dims, result = command
    _fill(result, _reduced(op, operand.array, operand.dtype, axis, dims))
    of = operand.dtype.name, as_text(operand.shape), ALL_AXES if axis is None else axis, operand.name
    return REDUCE, op, *of, result.dtype.name, as_text(dims), result.name


def _reduced(op: str, values: Array, dtype: DType, axis: int | None, dims: tuple[int, ...]) -> Array:
    flat = values.reshape(-1) if axis is None else values
    return along_axis(op, flat, dtype, axis or 0).reshape(dims)


def _cast(command: Cast) -> tuple[object, ...]:
    operand, result = command
    _fill(result, cast(operand.array, result.dtype))
    return CAST, operand.dtype.name, as_text(operand.shape), operand.name, result.dtype.name, result.name


def _rearrange(command: Rearrange) -> tuple[object, ...]:
    op, operand, dims, result = command
    _fill(result, np.ascontiguousarray(REARRANGEMENTS[op](operand.array, dims)))
    of = operand.dtype.name, as_text(operand.shape), operand.name
    return REARRANGE, op, *of, as_text(dims), result.name


def _make(command: Make) -> tuple[object, ...]:
    op, dims, value, result = command
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
"""Fills the result of a command; the kind of its record and the fields."""


@replays(MATH)
def replay_math(pe: ReplayPe, op: str, dtype: str, _shape: str, operands: str, _result: str) -> Array:
    """The operation on the values of its operands."""
    kind = DTYPES[dtype]
    return elementwise(op, tuple([_operand(pe, each, kind) for each in operands.split(",")]), kind)


def _operand(pe: ReplayPe, text: str, dtype: DType) -> Array:
    """A handle by its name, or a number."""
    return pe.value(text) if text.startswith("h") else np.array(_number(text), dtype.numpy)


def _number(text: str) -> Number:
    """Of a record: ``repr`` of an int or a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


@replays(REDUCE)
def replay_reduce(pe: ReplayPe, op: str, *fields: Any) -> Array:
    """The reduction of the values of its operand."""
    dtype, _shape, axis, operand, _to, dims, _result = fields
    return _reduced(op, pe.value(operand), DTYPES[dtype], None if axis == ALL_AXES else axis, shape_of(dims))


@replays(CAST)
def replay_cast(pe: ReplayPe, _dtype: str, _shape: str, operand: str, to: str, _result: str) -> Array:
    """The values of its operand in the other type."""
    return cast(pe.value(operand), DTYPES[to])


@replays(REARRANGE)
def replay_rearrange(pe: ReplayPe, op: str, *fields: Any) -> Array:
    """The values of its operand, moved."""
    _dtype, _shape, operand, dims, _result = fields
    return np.ascontiguousarray(REARRANGEMENTS[op](pe.value(operand), shape_of(dims)))


@replays(MAKE)
def replay_make(_pe: ReplayPe, op: str, dtype: str, shape: str, value: str, _result: str) -> Array:
    """What it made."""
    return MAKERS[op](shape_of(shape), _number(value), DTYPES[dtype].numpy)
