"""Values that a kernel makes itself: they take no time, and are recorded so that a replay has them."""

import numpy as np

from sipsim.chips.ahbm.pe.commands import Completion, Const
from sipsim.chips.ahbm.pe.engine.engines import CommandEngine, engine_for
from sipsim.chips.ahbm.pe.tcm.handles import Array
from sipsim.core.dtypes import DTYPES
from sipsim.records.oplog.oplog import DIGITS, as_text, record_kind, shape_of, values_as_text
from sipsim.records.replay.rules import ReplayPe, WrongRecord, replays

CONST = record_kind("const", "dtype", "shape", "values", "result")


@engine_for(Const)
class ConstEngine(CommandEngine):
    """The values are those of now, whatever becomes of the kernel's array."""

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
    """The values, or those of the first pass where only their hash was recorded."""
    if values.startswith(DIGITS):
        data = bytes.fromhex(values.removeprefix(DIGITS))
    else:
        told = pe.told
        data = b"" if told is None else told if isinstance(told, bytes) else told.tobytes()
        found = values_as_text(data)
        if found != values:
            raise WrongRecord(f"expected values with {values}, got some with {found}")
    return np.frombuffer(data, DTYPES[dtype].numpy).reshape(shape_of(shape))
