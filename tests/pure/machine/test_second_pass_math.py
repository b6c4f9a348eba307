"""The second pass performs every record of PE_MATH, of views, delays and blocks; a planted error in each is named."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm

from sipsim.dtypes import DTYPES
from sipsim.memory.block import Block
from sipsim.memory.store import MemoryStore
from sipsim.pe import math as pe_math
from sipsim.pe.handles import Array, Handle
from sipsim.record.replay.verdict import Verdict
from sipsim.tl.language import TL

KINDS = {"math", "reduce", "cast", "rearrange", "make", "view", "part", "join"}
KINDS |= {"delay", "dma_read_block", "dma_write_block"}


def kernel(tl: TL) -> None:
    x, y = tl.load(hbm(0, 0), (6, 8), "bf16", stride=20), tl.load(tcm(0, 0), (6, 1), "bf16")
    z = tl.where(x < y, -0.0, 1e-3 / tl.exp(x * 0.123456 - y))
    tl.delay(3)
    total = tl.sum(z, 1)[:, None] + tl.max(x).to("f32")
    flags = tl.broadcast_to(tl.min(x, 0, keep_dims=True), (6, 8)) != tl.reshape(tl.trans(x), (6, 8))
    made = tl.full((6, 8), math.inf, "f32") * math.nan + tl.cast(tl.arange(-4, 4), "f32")
    tl.store(hbm(0, 8192), tl.where(flags, made, total), stride=9)
    tl.store(hbm(0, 16384), tl.gelu(z))
    tl.store(hbm(0, 32768), tl.join([tl.arange(0, 5), tl.arange(5, 9)])[2:7])


def made() -> Bench:
    bench = pair_bench(None, replays=True)
    bf16 = DTYPES["bf16"].numpy
    bench.sip.memory.write_from_host(hbm(0, 0), np.linspace(-6, 5, 120).astype(bf16).tobytes())
    bench.sip.memory.write_from_host(tcm(0, 0), np.linspace(-2, 3, 6).astype(bf16).tobytes())
    bench.kernel(0, 0, kernel)
    return bench


def verdict_of(bench: Bench) -> Verdict:
    bench.run()
    verdict = bench.sip.verdict()
    assert verdict is not None
    return verdict


def test_every_kind_again() -> None:
    bench = made()
    assert verdict_of(bench) == Verdict(records=len(bench.sip.oplog.records))
    assert {each[0] for each in bench.sip.oplog.records} >= KINDS


def _flipped(values: Array) -> Array:
    """With another last bit."""
    data = bytearray(values.tobytes())
    data[-1] ^= 1
    return np.frombuffer(bytes(data), values.dtype).reshape(values.shape)


class Planted:
    """From record ``name`` on: its engine makes values of which a bit is wrong, and tells of them as they are."""

    def __init__(self, kind: str, name: str) -> None:
        fill, write = pe_math._fill, MemoryStore.write_block

        def wrong_fill(result: Handle, values: Array) -> None:
            fill(result, _flipped(values) if result.name == name else values)

        def wrong_write(store: MemoryStore, block: Block, data: bytes) -> None:
            write(store, block, bytes([data[0] ^ 1]) + data[1:])

        if kind == "dma_write_block":
            self.patch = patch.object(MemoryStore, "write_block", wrong_write)
        else:
            self.patch = patch.object(pe_math, "_fill", wrong_fill)


@pytest.mark.parametrize("kind", ["math", "reduce", "cast", "rearrange", "make", "dma_write_block"])
def test_a_planted_error_is_named(kind: str) -> None:
    right = made()
    right.run()
    [first, *_] = [each for each in right.sip.oplog.records if each[0] == kind]
    wrong = made()
    with Planted(kind, str(first[-1])).patch:
        verdict = verdict_of(wrong)
    assert verdict.difference is not None
    assert verdict.difference.record.startswith(f"{kind} ")
    assert verdict.difference.number == 1 + right.sip.oplog.records.index(first)
