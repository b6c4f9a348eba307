"""DMA, GEMM and MATH in one PE: how much of their times is hidden behind each other.

    ahbm-launch --sips 1 scripts/benches/overlap.py --blocks 16 64

A product in memory (``tl.gemm_async``) runs beside loads and additions of the same kernel. What both take together is
compared with what each takes alone: hidden is their sum less the time of both. Their dependences and PE_DMA, which
moves the bytes of both, allow no less than ``least``: the longest of either alone and of all bytes at its bandwidth. So
``allowed`` is the part of the sum less ``least`` that is hidden. Where that is below 90 %, the line says what the
product waits for beyond what it waits for alone; the rest is of the loads, which wait behind those of the product.
Each time is measured from a row start on, with pages in the TLB, so that none depends on those before it.
"""

import argparse
from collections import Counter
from typing import Any

from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps

ROWS = 64
ITEMSIZE = 2
WITH_SLACK = ((256, 512, 256), (128, 1024, 256), (256, 256, 512))
WITHOUT_SLACK = ((64, 2048, 64), (1, 2048, 512), (32, 4096, 128))
"""Their operands need PE_DMA about as long as the array."""
BLOCKS = (8, 16, 64)
LEAST_ALLOWED = 0.9
LEAST_SHOWN_PS = 100_000
Parts = dict[str, int]


def product(a: int, b: int, c: int, x: int, shape: tuple[int, int, int], blocks: int, tl: Any) -> None:
    """The product alone."""
    tl.gemm(a, b, c, shape)


def stream(a: int, b: int, c: int, x: int, shape: tuple[int, int, int], blocks: int, tl: Any) -> None:
    """Loads and additions alone: the next block comes while one is added."""
    coming = tl.load_async(x, (ROWS, ROWS))
    total = None
    for at in range(blocks):
        block = tl.wait(coming)
        coming = tl.load_async(x + (at + 1) % blocks * block.nbytes, (ROWS, ROWS))
        total = block if total is None else total + block
    tl.wait(coming)


def both(a: int, b: int, c: int, x: int, shape: tuple[int, int, int], blocks: int, tl: Any) -> None:
    """Both at once."""
    running = tl.gemm_async(a, b, c, shape)
    stream(a, b, c, x, shape, blocks, tl)
    tl.wait(running)


def worker(rank: int, world_size: int, torch: Any) -> None:
    """The table, on rank 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS, help="blocks that a row loads and adds")
    counts = parser.parse_args().blocks
    torch.distributed.init_process_group(backend="ahbm")
    place = DPPolicy(num_cubes=1)
    bps = gbytes_per_s_to_bps(torch._sip.plan.resolved.components.pe_dma.bandwidth_GBps)
    show = print if rank == 0 else lambda *_text, **_how: None
    show("    M     K     N  blocks  product us  stream us   both us  least us  hidden of the shorter, of allowed")
    for m, k, n in (*WITH_SLACK, *WITHOUT_SLACK):
        a, b = torch.ones((m, k), dp=place), torch.ones((k, n), dp=place)
        c, x = torch.zeros((m, n), dp=place), torch.ones((64 * ROWS, ROWS), dp=place)
        for blocks in counts:
            found = [measured(torch, kernel, a, b, c, x, (m, k, n), blocks) for kernel in (product, stream, both)]
            (alone, waits), (streamed, _), (together, more) = found
            nbytes = (m * k + k * n + m * n + (blocks + 1) * ROWS * ROWS) * ITEMSIZE
            least = max(alone, streamed, drain_ps(nbytes, bps))
            hidden = alone + streamed - together
            allowed = hidden / (alone + streamed - least)
            times = "".join(f"{ps / 1e6:>11.3f}" for ps in (alone, streamed, together, least))
            show(f"{m:>5}{k:>6}{n:>6}{blocks:>8}{times}{hidden / min(alone, streamed):>10.1%}{allowed:>10.1%}", end="")
            show(f"  {longer(waits, more)}" if allowed < LEAST_ALLOWED else "")


def longer(alone: Parts, beside: Parts) -> str:
    """What the product waits for longer beside loads than alone."""
    more = sorted(((ps - alone[name], name) for name, ps in beside.items()), reverse=True)
    return ", ".join(f"{name} {ps / 1e6:.3f} us more" for ps, name in more if ps >= LEAST_SHOWN_PS)


def measured(torch: Any, kernel: Any, *args: object) -> tuple[int, Parts]:
    """The time of a kernel, and the parts of that of its product."""
    with torch.ahbm.row(kernel.__name__):
        *operands, _blocks = args
        time_ps(torch, both, *operands, max(BLOCKS))  # its pages are in the TLB from now on
        before = Counter(torch._sip.recorder.composite_ps)
        ps = time_ps(torch, kernel, *args)
    return ps, {name: each - before[name] for name, each in torch._sip.recorder.composite_ps.items()}


def time_ps(torch: Any, kernel: Any, *args: object) -> int:
    """Of a kernel on PE 0 of cube 0."""
    work = torch.launch(kernel, *args, cubes=[0], pes=[0], async_op=True)
    work.wait()
    start_ps, end_ps = work.kernels_ps
    return int(end_ps - start_ps)
