"""Groups of ranks: collectives in two groups at a time, messages between two ranks, futures, views, a barrier."""

import numpy as np

from sipsim.chips.ahbm.host import DPPolicy


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    halves = [dist.new_group([0, 2], pes=[0, 1]), dist.new_group([1, 3], pes=[0, 1])]
    others, mine = dist.new_group([3, 2, 1, 0], pes=[2, 3]), halves[rank % 2]
    policy = DPPolicy(num_cubes=2)
    values = np.random.default_rng(rank).standard_normal((8, 300))
    tensor = torch.zeros((8, 300), dtype="f32", dp=policy).copy_(torch.from_numpy(values))
    spare = torch.zeros((8, 300), dtype="f32", dp=policy).fill_(rank)
    works = [
        dist.all_reduce(tensor, group=mine, async_op=True),
        dist.broadcast(spare, src=2, group=others, async_op=True),
    ]
    tenfold = works[0].get_future().then(lambda done: done.value()[0].numpy()[0, 0] * 10)
    for work in works:
        work.wait()
    print(rank, tenfold.value(), spare.numpy()[7, 299])
    dist.all_reduce(tensor.narrow(0, 0, 4), op="max", group=mine, algorithm="ring")
    gathered = [torch.zeros((8, 300), dtype="f32", dp=policy) for _ in range(world_size)]
    dist.all_gather(gathered, tensor)
    print(rank, [float(each.numpy().sum()) for each in gathered])
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    if rank % 2:
        dist.send(tensor, dst=after)
        dist.recv(spare, src=before)
    else:
        dist.recv(spare, src=before)
        dist.send(tensor, dst=after)
    for request in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, tensor, before), dist.P2POp(dist.irecv, gathered[0], after)]
    ):
        request.wait()
    dist.barrier()
    print(rank, float(spare.numpy().sum()), float(gathered[0].numpy().sum()))
