"""A SIP with matrices in the HBM of PE 0, and kernels with products on it. Not a test."""

from typing import Any, NamedTuple

import numpy as np
from hardware import Bench, Kernel, hbm, pair_bench

from sipsim.core.dtypes import DTYPES

PLACES = {"a": 0, "b": 2**24, "c": 2**25, "bias": 3 * 2**24}


class Case(NamedTuple):
    """A product; rows of a matrix are ``pad`` elements longer than it needs."""

    m: int
    k: int
    n: int
    dtype: str = "f16"
    out: str = ""
    pad: int = 0


def ptr(name: str) -> int:
    return hbm(0, PLACES[name])


def values(case: Case, seed: int = 1, largest: int | None = None) -> dict[str, Any]:
    """Random operands; integers up to ``largest`` if it is given."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[case.dtype]

    def draw(rows: int, columns: int) -> Any:
        if largest is not None or not kind.is_float:
            most = largest or 100
            return rng.integers(-most, most + 1, (rows, columns)).astype(kind.numpy)
        return rng.standard_normal((rows, columns)).astype(kind.numpy)

    return {"a": draw(case.m, case.k), "b": draw(case.k, case.n)}


def put(bench: Bench, name: str, array: Any, pad: int = 0) -> None:
    wide = np.zeros((array.shape[0], array.shape[1] + pad), array.dtype)
    wide[:, : array.shape[1]] = array
    wide[:, array.shape[1] :] = 7
    bench.sip.memory.write(ptr(name), wide.tobytes())


def taken(bench: Bench, case: Case) -> Any:
    kind = DTYPES[case.out or case.dtype].numpy
    data = bench.sip.memory.read(ptr("c"), case.m * (case.n + case.pad) * kind.itemsize)
    return np.frombuffer(data, kind).reshape(case.m, case.n + case.pad)


def strides(case: Case) -> tuple[int, int, int]:
    return case.k + case.pad, case.n + case.pad, case.n + case.pad


def run_gemm(
    case: Case, given: dict[str, Any], settings: dict[str, Any] | None = None, epilogue: object = ()
) -> tuple[Bench, Any]:
    """Run one ``tl.gemm`` on PE 0; the bench, and c with its padding."""
    bench = pair_bench(settings)
    for name, array in given.items():
        put(bench, name, array, case.pad if name != "bias" else 0)

    def body(tl: Any) -> None:
        tl.gemm(
            ptr("a"),
            ptr("b"),
            ptr("c"),
            (case.m, case.k, case.n),
            strides=strides(case),
            dtype=case.dtype,
            out_dtype=case.out or case.dtype,
            epilogue=epilogue,
        )

    run(bench, body)
    return bench, taken(bench, case)


def run(bench: Bench, *bodies: Kernel) -> None:
    for pe, body in enumerate(bodies):
        bench.kernel(0, pe, body)
    bench.run()
