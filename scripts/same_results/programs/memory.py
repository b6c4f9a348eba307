"""Where tensors lie as they come and go: two blocks that are free again are joined, or the last tensor has no room."""

import gc


def address(values, tl):
    print(f"cube {tl.program_id(1)}: {int(values):#x}")


def worker(rank, world_size, torch):
    def tensor(mebibytes):
        """A row of so many MiB on each cube."""
        made = torch.zeros((2, mebibytes << 18), dtype="f32")
        torch.launch(address, made)
        return made

    kept = [tensor(4) for _ in range(3)]
    del kept[:2]
    gc.collect()
    kept.append(tensor(8))
    kept.append(tensor(2))
