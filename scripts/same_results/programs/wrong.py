"""The ring of ring.py, but each rank sends on what it has added up: wrong numbers."""

from ring import kernel_args, reference  # noqa: F401


def kernel(t_ptr, n_elem, world_size, tl):
    here = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    total = tl.load(here, n_elem)
    for _ in range(world_size - 1):
        tl.send("E", total)
        total = total + tl.recv("W", n_elem, t_ptr.dtype)
    tl.store(here, total)
