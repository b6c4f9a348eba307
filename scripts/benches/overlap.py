"""DMA, GEMM and MATH in one PE: how much of their times is hidden behind each other.

    ahbm-launch --sips 1 scripts/benches/overlap.py --blocks 16 64

A product in memory (``tl.gemm_async``) runs beside loads and additions of the same kernel. What both take together is
compared with what each takes alone: hidden is their sum less the time of both, and at most their sum less the longer.
"""

import argparse
from typing import Any

from sipsim.host.dp_policy import DPPolicy

ROWS = 64
SHAPES = ((256, 512, 256), (128, 1024, 256), (256, 256, 512))


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
    parser.add_argument("--blocks", type=int, nargs="+", default=[16, 64], help="that are loaded and added; a row each")
    counts = parser.parse_args().blocks
    if rank:
        return
    place = DPPolicy(num_cubes=1)
    print("    M     K     N  blocks  product us  stream us   both us  hidden of what could be")
    for m, k, n in SHAPES:
        a, b = torch.ones((m, k), dp=place), torch.ones((k, n), dp=place)
        c, x = torch.zeros((m, n), dp=place), torch.ones((64 * ROWS, ROWS), dp=place)
        time_ps(torch, both, a, b, c, x, (m, k, n), 64)  # its pages are in the TLB from now on
        for blocks in counts:
            alone, streamed, together = (
                time_ps(torch, kernel, a, b, c, x, (m, k, n), blocks) for kernel in (product, stream, both)
            )
            hidden = (alone + streamed - together) / min(alone, streamed)
            times = "".join(f"{ps / 1e6:>11.3f}" for ps in (alone, streamed, together))
            print(f"{m:>5}{k:>6}{n:>6}{blocks:>8}{times}{hidden:>10.1%}")


def time_ps(torch: Any, kernel: Any, *args: object) -> int:
    """Of a kernel on PE 0 of cube 0."""
    work = torch.launch(kernel, *args, cubes=[0], pes=[0], async_op=True)
    work.wait()
    start_ps, end_ps = work.kernels_ps
    return int(end_ps - start_ps)
