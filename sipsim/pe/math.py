"""PE_MATH: the time of an element-wise operation; NumPy computes its values."""

from collections.abc import Callable
from functools import partial

import numpy as np

from sipsim.arithmetic.operations import elementwise
from sipsim.config.components import PeMath as PeMathCost
from sipsim.dtypes import DTYPES
from sipsim.pe.commands import Completion, MathOp
from sipsim.pe.engines import CommandEngine, PeParts, SipParts, engine_for
from sipsim.pe.handles import Array
from sipsim.pe.unit import MATH as MATH_UNIT
from sipsim.record.oplog import as_text, record_kind
from sipsim.record.replay.rules import ReplayPe, replays
from sipsim.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps

MATH = record_kind("math", "op", "dtype", "shape", "operands", "result")
OPERATIONS: dict[str, Callable[..., Array]] = {"add": np.add}
"""By the name that an operation has in the op log. Rounded once, in the operands' type; i32 wraps."""


class PeMath:
    """A fixed start-up and a bandwidth over the bytes of the result."""

    def __init__(self, cost: PeMathCost) -> None:
        self._overhead_ps = ns_to_ps(cost.overhead_ns)
        self._bandwidth_bps = gbytes_per_s_to_bps(cost.bandwidth_GBps)

    def latency_ps(self, nbytes: int) -> int:
        """Time of one operation whose result has ``nbytes``."""
        return self._overhead_ps + drain_ps(nbytes, self._bandwidth_bps)


@engine_for(MathOp)
class MathEngine(CommandEngine):
    """Operands that are still in a slot are fetched first."""

    starts_later = True
    queue_name = "PE_MATH"

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        self._math = PeMath(sip.plan.resolved.components.pe_math)

    def take(self, command: MathOp) -> Completion:
        completion = self._begin(command)
        self._claim(completion, *command.operands)
        self._enter(completion, self._start)
        return completion

    def _start(self, completion: Completion) -> None:
        self._fetch(completion, completion.command.operands, self._add_up)

    def _add_up(self, completion: Completion) -> None:
        latency_ps = self._math.latency_ps(completion.command.operands[0].nbytes)
        start_ps = max(completion.start_ps, self._engine.now_ps)
        if self.queue is not None:
            start_ps = self._pe.units[MATH_UNIT].take(start_ps, latency_ps)
        self._engine.at(start_ps + latency_ps, partial(self._compute, completion))

    def _compute(self, completion: Completion) -> None:
        op, operands, result = completion.command
        with np.errstate(over="ignore", invalid="ignore"):
            values = OPERATIONS[op](*(each.array for each in operands))
        values.flags.writeable = False
        result.array = values
        names = ",".join([each.name for each in operands])
        fields = op, result.dtype.name, as_text(result.shape), names, result.name
        del operands, result
        self._end(completion, MATH, *fields)


@replays(MATH)
def replay_math(pe: ReplayPe, op: str, dtype: str, _shape: str, operands: str, _result: str) -> Array:
    """The operation on the values of its operands."""
    return elementwise(op, tuple(map(pe.value, operands.split(","))), DTYPES[dtype])
