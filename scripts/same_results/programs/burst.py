"""Sends all chunks before it receives one: a deadlock as soon as a row has more chunks than a ring has slots."""

from ring import kernel_args  # noqa: F401


def kernel(t_ptr, n_elem, world_size, tl):
    itemsize = t_ptr.dtype.itemsize
    row = t_ptr + tl.program_id(1) * n_elem * itemsize
    chunk = tl.ipcq_slots("E")[1] // itemsize
    chunks = [(row + start * itemsize, min(chunk, n_elem - start)) for start in range(0, n_elem, chunk)]
    totals = moving = [tl.load(here, length) for here, length in chunks]
    for _ in range(world_size - 1):
        for values in moving:
            tl.send("E", values)
        moving = [tl.recv("W", values.shape, values.dtype) for values in moving]
        totals = [total + values for total, values in zip(totals, moving, strict=True)]
    for (here, _), total in zip(chunks, totals, strict=True):
        tl.store(here, total)
