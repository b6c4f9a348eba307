"""Wrong calls of the host API by SIP 0; the word after the script chooses."""

import sys

from sipsim.chips.ahbm.host import DPPolicy

WRONG = {
    "op": lambda torch: torch.distributed.all_reduce(torch.ones(2, 8), op="max"),
    "dtype": lambda torch: torch.zeros(2, 8, dtype="f64"),
    "rows": lambda torch: torch.ones(3, 8),
    "shape": lambda torch: torch.zeros(0, 8),
    "policy": lambda torch: torch.zeros(16, 8, dp=DPPolicy(num_cubes=16)),
    "split": lambda torch: DPPolicy(pe="split"),
    "copy": lambda torch: torch.zeros(2, 8).copy_(torch.from_numpy(torch.zeros(2, 4).numpy())),
    "twice": lambda torch: torch.distributed.init_process_group(),
    "backend": lambda torch: torch.distributed.init_process_group(backend="nccl"),
    "room": lambda torch: torch.zeros(2, 2**31, dtype="f32"),
}


def worker(rank, world_size, torch):
    if sys.argv[1] != "backend":
        torch.distributed.init_process_group()
    if rank == 0:
        WRONG[sys.argv[1]](torch)
