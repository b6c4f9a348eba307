"""One message from rank 0 to rank 1, and an answer: nothing is under way beside them. Argument: elements."""

import sys

COUNT = int(sys.argv[1])


def kernel(tl):
    if tl.rank() == 0:
        tl.send("E", tl.full(COUNT, 7, "f16"))
        tl.recv("E", 1, "i32")
    elif tl.rank() == 1:
        assert (tl.recv("W", COUNT, "f16").array == 7).all()
        tl.delay(10_000)  # the credit is back
        tl.send("W", tl.full(1, 1, "i32"))
    tl.delay(10_000)  # the end of the kernel is told alone


def worker(rank, world_size, torch):
    torch.launch(kernel, cubes=0)
