"""Records of PE_MATH name all that they are performed from: the log alone gives the same bits."""

import math
from typing import Any

import numpy as np
from hardware import pair_bench, records_of, tcm

from sipsim.arithmetic.operations import along_axis, cast, elementwise
from sipsim.dtypes import DTYPES
from sipsim.tl.language import TL
from sipsim.tl.values import TensorHandle

Array = np.ndarray[Any, Any]


def test_each_record_is_performed_again_from_its_fields() -> None:
    """A program with every kind, whose results are kept under their names."""
    bench, kept = pair_bench(), dict[str, TensorHandle]()

    def kernel(tl: TL) -> None:
        def keep(x: TensorHandle) -> TensorHandle:
            kept[x.name] = x
            return x

        x = keep(tl.load(tcm(0, 0), (6, 8), "bf16"))
        y = keep(tl.load(tcm(0, 4096), (6, 1), "bf16"))
        keep(keep(x * 0.123456) + y)
        keep(keep(tl.reshape(y, 6))[:, None])
        keep(x[2:5])
        keep(tl.join([keep(tl.arange(0, 3)), keep(tl.arange(7, 9))]))
        keep(tl.where(keep(x < y), -0.0, x))
        keep(1e-3 / keep(tl.exp(y)))
        keep(tl.sum(x, 0))
        keep(tl.max(x, 1, keep_dims=True))
        keep(tl.min(x))
        keep(tl.cast(keep(tl.sum(x)), "i8"))
        keep(tl.trans(x))
        keep(tl.broadcast_to(y, (6, 3)))
        keep(keep(tl.full(3, math.inf, "f32")) * math.nan)
        keep(tl.arange(-2, 2))

    bf16 = DTYPES["bf16"].numpy
    bench.sip.memory.write(tcm(0, 0), np.linspace(-6, 5, 48).astype(bf16).tobytes())
    bench.sip.memory.write(tcm(0, 4096), np.linspace(-2, 3, 6).astype(bf16).tobytes())
    bench.kernel(0, 0, kernel)
    bench.run()
    done = [again(each.kind, each.fields, kept) for kind in KINDS for each in records_of(bench.sip, kind)]
    assert len(done) == len(kept) - 2
    for name, array in done:
        assert array.dtype == kept[name].array.dtype
        assert array.tobytes() == kept[name].array.tobytes(), name


KINDS = ("math", "reduce", "cast", "rearrange", "make", "view", "part", "join")


def again(kind: str, fields: dict[str, Any], known: dict[str, TensorHandle]) -> tuple[str, Array]:
    """The result of a record, and its name."""
    dtype = DTYPES[fields["dtype"]]
    if kind == "join":
        return fields["result"], np.concatenate([known[each].array for each in fields["operands"].split(",")])
    dims = tuple(map(int, fields.get("result_shape", fields["shape"]).split("x")))
    name, op, x = fields["result"], fields.get("op"), fields.get("operand")
    array = None if x is None else known[x].array
    if array is not None:
        assert (fields["dtype"], dtype.numpy, array.shape) == (
            known[x].dtype.name, array.dtype, tuple(map(int, fields["shape"].split("x")))
        )  # fmt: skip
    if kind == "math":
        some = [
            known[each].array if each in known else np.array(float(each), dtype.numpy)
            for each in fields["operands"].split(",")
        ]
        return name, elementwise(op, tuple(some), dtype)
    if kind == "make":
        value = float(fields["value"])
        made = np.full(dims, value) if op == "full" else value + np.arange(dims[0])
        return name, made.astype(dtype.numpy)
    assert array is not None
    if kind == "reduce":
        of, axis = (array.reshape(-1), 0) if fields["axis"] == "all" else (array, fields["axis"])
        return name, along_axis(op, of, dtype, axis).reshape(dims).astype(DTYPES[fields["result_dtype"]].numpy)
    if kind == "cast":
        return name, cast(array, DTYPES[fields["result_dtype"]])
    if op == "trans":
        return name, array.T.copy()
    if kind == "part":
        return name, array.reshape(-1)[fields["first"] :][: math.prod(dims)].reshape(dims)
    return name, array.reshape(dims) if kind == "view" else np.broadcast_to(array, dims).copy()
