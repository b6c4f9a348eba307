"""Values that a kernel makes itself: they take no time, and are recorded so that a replay has them."""

from hashlib import sha256

import numpy as np

from sipsim.pe.commands import Completion, Const
from sipsim.pe.engines import CommandEngine, engine_for
from sipsim.record.oplog import as_text, record_kind

CONST = record_kind("const", "dtype", "shape", "values", "result")
MOST_BYTES = 32
"""Of values that are recorded themselves, as hexadecimal digits; of more, the SHA-256 is."""


@engine_for(Const)
class ConstEngine(CommandEngine):
    """The values are those of now, whatever becomes of the kernel's array."""

    def take(self, command: Const) -> Completion:
        completion = self._begin(command)
        result = command.result
        result.array = np.array(command.values)
        result.array.flags.writeable = False
        data = result.array.tobytes()
        text = f"0x{data.hex()}" if len(data) <= MOST_BYTES else f"sha256:{sha256(data).hexdigest()}"
        self._end(completion, CONST, result.dtype.name, as_text(result.shape), text, result.name)
        return completion
