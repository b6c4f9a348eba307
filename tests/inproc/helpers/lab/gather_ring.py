"""An algorithm for ``lab.gather`` on a ring of SIPs, a ring for each cube. A piece fits a slot. Not a test."""

import lab.gather  # noqa: F401 - the launcher, too, knows the collective by this
from lab.scatter_ring import kernel_args, neighbors  # noqa: F401 - the same ring


def kernel(source, result, root, n_elem, tl):
    """Pieces go eastwards to the root. The other ranks leave their own piece in their result, where anything may be."""
    rank, size, piece = tl.program_id(2), tl.num_programs(2), n_elem * source.dtype.itemsize
    mine, row = tl.load(source + tl.program_id(1) * piece, n_elem), result + tl.program_id(1) * piece * size
    tl.store(row + rank * piece, mine)
    away = (root - rank) % size
    if away:
        tl.send("global_E", mine)
        for _ in range(size - 1 - away):
            tl.send("global_E", tl.recv("global_W", n_elem, source.dtype))
        return
    for back in range(1, size):
        tl.store(row + (rank - back) % size * piece, tl.recv("global_W", n_elem, source.dtype))
