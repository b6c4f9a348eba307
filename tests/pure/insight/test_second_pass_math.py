"""The second pass performs every record of PE_MATH, of views, delays and blocks, from its fields alone."""

import math

import numpy as np
from hardware import hbm, pair_bench, tcm

from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.dtypes import DTYPES
from sipsim.records.replay import Verdict

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


def test_every_kind_again() -> None:
    bench = pair_bench(None, replays=True)
    bf16 = DTYPES["bf16"].numpy
    bench.sip.memory.write_from_host(hbm(0, 0), np.linspace(-6, 5, 120).astype(bf16).tobytes())
    bench.sip.memory.write_from_host(tcm(0, 0), np.linspace(-2, 3, 6).astype(bf16).tobytes())
    bench.kernel(0, 0, kernel)
    bench.run()
    assert bench.sip.verdict() == Verdict(records=len(bench.sip.oplog.records))
    assert {each[0] for each in bench.sip.oplog.records} >= KINDS
