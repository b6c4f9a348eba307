"""Rank 0 should pass its row along a line; the last but one forgets to."""


def pass_on(t_ptr, tl):
    values = tl.load(t_ptr, 4) if tl.rank() == 0 else tl.recv("W", 4, t_ptr.dtype)
    if tl.rank() < tl.world_size() - 2:
        tl.send("E", values)


def worker(rank, world_size, torch):
    torch.launch(pass_on, torch.zeros(2, 4))
