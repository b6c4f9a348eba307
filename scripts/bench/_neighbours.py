"""A wiring: PE 0 of cube 0 has PE 0 of cube 1 to its E."""


def neighbors(rank, world_size, neighbor_map):
    return [{"E": 1}, {"W": 0}][rank]


def kernel_args(world_size, n_elem):
    return ()


def kernel(tl):
    pass
