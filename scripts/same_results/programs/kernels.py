"""Words of kernels: sends from addresses and handles, receives that wait, come later, copy, or take any direction."""

import numpy as np


def words(rows, spare, tl):
    me, size = tl.rank(), tl.world_size()
    mine, place = rows + tl.program_id(1) * 16, spare + tl.program_id(1) * 16
    tl.send("E", src_addr=mine, shape=4)
    tl.send("W", tl.load(mine, 4))
    later = tl.recv_async("W", 4, "i32")
    from_east = tl.recv("E", 4, "i32", dst_addr=place)
    from_west = tl.wait(later)
    assert later.is_completed()
    assert from_west.array[0] == (me - 1) % size
    assert from_east.array[0] == tl.load(place, 4).array[0] == (me + 1) % size
    tl.send("E", from_west)
    anything = tl.recv(shape=4, dtype="i32")
    assert anything.array[0] == (me - 2) % size
    assert tl.last_polled_dir == "W"
    tl.store(mine, tl.add(anything, from_east))


def shows(tl):
    print(
        "rank",
        tl.rank(),
        "of",
        tl.world_size(),
        [tl.program_id(axis) for axis in range(3)],
        [tl.num_programs(axis) for axis in range(3)],
        tl.has_direction("E"),
        tl.has_direction("N"),
        tl.ipcq_slots("E"),
    )


def left_over(rows, tl):
    for element in range(3):
        tl.send("E", src_addr=rows + tl.program_id(1) * 16 + element * 4, shape=1)
    tl.recv("W", 1, "i32")


def worker(rank, world_size, torch):
    rows = torch.zeros(2, 4, dtype="i32")
    rows.copy_(torch.from_numpy(np.array([[rank * 2] * 4, [rank * 2 + 1] * 4])))
    started = torch.launch(words, rows, torch.zeros(2, 4, dtype="i32"), async_op=True)
    started.wait()
    torch.launch(shows)
    torch.launch(left_over, rows)
    print(rows.numpy().tolist())
    print(torch.distributed.pointer_dump())
