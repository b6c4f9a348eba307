"""Ranks that name each other as other neighbours than these name them."""

from ring import kernel, kernel_args  # noqa: F401


def neighbors(rank, world_size, neighbor_map):
    return {"E": 0} if rank else {"E": 1}
