"""What a kernel of SIP 1 does wrong; the word after the script chooses."""

import sys


def direction(t_ptr, tl):
    tl.send("N", tl.load(t_ptr, 4))


def large(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4096))


def size(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4))
    tl.recv("W", 8, "f16")


def dtype(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4))
    tl.recv("W", 2, "f32")


def outside(t_ptr, tl):
    tl.load(t_ptr + 4096, 4096)


def number(t_ptr, tl):
    tl.load(t_ptr, 4) + 1


def word(t_ptr, tl):
    tl.subtract(tl.load(t_ptr, 4), 1)


def divides(t_ptr, tl):
    tl.load(t_ptr, 4)
    1 / (tl.program_id(2) - 1)


def generator(t_ptr, tl):
    yield


def quiet(t_ptr, tl):
    pass


def chosen(t_ptr, name, tl):
    globals()[name](t_ptr, tl)


def worker(rank, world_size, torch):
    tensor = torch.zeros(2, 4096, dtype="f16")
    if sys.argv[1] == "generator":
        torch.launch(generator, tensor)
    torch.launch(chosen, tensor, sys.argv[1] if rank == 1 or sys.argv[1] in ("size", "dtype", "nowhere") else "quiet")


def nowhere(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4))
    tl.recv("W", 4, "f16", dst_addr=tl.program_id(2) << 52 | 1 << 45)
