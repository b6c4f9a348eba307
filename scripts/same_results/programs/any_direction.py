"""Messages that come from both sides at the same time, and are taken from any direction, one after the other."""

COUNT = 6


def kernel(tl):
    if tl.rank() % 2:
        for number in range(COUNT):
            for direction in ("E", "W"):
                tl.send(direction, tl.full(4, 10 * tl.rank() + number, "i32"))
    else:
        tl.delay(20_000)  # until then all have come
        taken = []
        for _ in range(2 * COUNT):
            values = tl.recv(shape=4, dtype="i32")
            taken.append((tl.last_polled_dir, int(values.array[0])))
        print(tl.rank(), taken)


def worker(rank, world_size, torch):
    torch.launch(kernel, cubes=0)
