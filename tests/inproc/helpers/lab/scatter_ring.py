"""An algorithm for ``lab.scatter`` on a ring of SIPs, a ring for each cube. A piece fits a slot. Not a test."""

import lab.scatter  # noqa: F401 - the launcher, too, knows the collective by this


def neighbors(rank, world_size, neighbor_map, system):
    return {f"global_{port}": (rank + step * system.n_cubes) % world_size for port, step in (("E", 1), ("W", -1))}


def kernel_args(world_size, n_elem):
    return (n_elem,)


def kernel(source, result, root, n_elem, tl):
    """The root sends the pieces eastwards, that for the furthest rank first; the last one to arrive is the own one."""
    rank, size, piece = tl.program_id(2), tl.num_programs(2), n_elem * source.dtype.itemsize
    mine, steps = result + tl.program_id(1) * piece, (rank - root) % size
    if not steps:
        rows = source + tl.program_id(1) * piece * size
        for further in range(size - 1, 0, -1):
            tl.send("global_E", tl.load(rows + (root + further) % size * piece, n_elem))
        tl.store(mine, tl.load(rows + root * piece, n_elem))
        return
    for _ in range(size - 1 - steps):
        tl.send("global_E", tl.recv("global_W", n_elem, source.dtype))
    tl.store(mine, tl.recv("global_W", n_elem, source.dtype))
