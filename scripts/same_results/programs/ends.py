"""Ways in which the script of one rank ends, after a first collective."""

import os
import sys
import time


def inner(key):
    return {"a": 1}[key]


def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones(2, 8))
    how = sys.argv[1] if rank == 1 else "goes on"
    print("rank", rank, how, flush=True)
    if how == "raises":
        inner("b")
    elif how == "exits":
        sys.exit("no licence")
    elif how == "returns":
        return
    elif how == "dies":
        os._exit(7)
    elif how == "sleeps":
        time.sleep(600)
    torch.distributed.all_reduce(torch.ones(2, 8))
