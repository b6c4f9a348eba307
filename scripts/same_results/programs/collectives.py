"""Calls of ``torch.distributed`` over all ranks: types, several at a time, pointers."""

import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (rank, world_size, True)
    whole, half = torch.full((2, 8), rank + 1, dtype="i32"), torch.ones((4, 700), dtype="f16")
    real = torch.zeros(2, 3000, dtype="f32")
    real.copy_(torch.from_numpy(np.random.default_rng(rank).standard_normal(real.shape)))
    dist.all_reduce(whole)
    dist.all_reduce(half, op="sum")
    works = [dist.all_reduce(each, async_op=True) for each in (real, whole)]
    print([work.is_completed() for work in works])
    works[1].wait()
    works[0].wait()
    dist.intercube_all_reduce(real)
    print(rank, whole.numpy()[0, 0], half.numpy()[0, 0], float(real.numpy()[0, 0]))
    print(dist.pointer_dump())
