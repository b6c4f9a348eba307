"""The built-in job: a collective on seeded data, size after size, each result checked exactly.

It is a host program like a user's script, and uses the same ``torch``.
"""

from sipsim.dtypes import DTYPES
from sipsim.host.dp_policy import DPPolicy
from sipsim.host.seeded import NONE_WRONG, Mismatch, compare, expected_row, seeded_tensor
from sipsim.host.tensor import HostTensor, Tensor
from sipsim.host.torch_api import Torch
from sipsim.plan.job import Job, RunRecord


class CollectiveJob:
    """One rank's part of the built-in job."""

    def __init__(self, job: Job, torch: Torch, rank: int, world_size: int, n_cubes: int) -> None:
        self._job = job
        self._torch = torch
        self._rank = rank
        self._world_size = world_size
        self._n_cubes = n_cubes
        self._dtype = DTYPES[job.dtype]

    def run(self) -> None:
        """Run all sizes; their records are added to the process group's ``runs``."""
        self._torch.distributed.init_process_group(backend="ahbm")
        for n_elem in self._job.n_elems:
            self._run_size(n_elem)

    def _run_size(self, n_elem: int) -> None:
        job, dist = self._job, self._torch.distributed
        shape = (self._n_cubes, n_elem)
        contributions = self._world_size * self._n_cubes
        data = HostTensor(seeded_tensor(self._rank, shape, self._dtype, job.seed, contributions))
        dp = DPPolicy(num_cubes=self._n_cubes)
        tensor = self._torch.zeros(shape, dtype=self._dtype, dp=dp)
        expected = expected_row(self._world_size, shape, self._dtype, job.seed) if job.verify else None
        first_ps, last_ps, wrong = None, 0, NONE_WRONG
        for iteration in range(job.warmup + job.iters):
            tensor.copy_(data)
            work = dist.start_all_reduce(tensor, job.op)
            work.wait()
            if iteration >= job.warmup:
                first_ps = work.start_ps if first_ps is None else first_ps
                last_ps = work.end_ps or 0
            if expected is not None:
                wrong = _sum(wrong, compare(tensor.numpy(), expected))
        dist.record(self._record(tensor, first_ps or 0, last_ps, wrong))

    def _record(self, tensor: Tensor, start_ps: int, end_ps: int, wrong: Mismatch) -> RunRecord:
        job = self._job
        return RunRecord(
            collective=job.collective,
            algorithm=self._torch.distributed.algorithm_name(),
            dtype=job.dtype,
            op=job.op,
            count=tensor.numel(),
            nbytes=tensor.nbytes,
            iters=job.iters,
            start_ps=start_ps,
            end_ps=end_ps,
            wrong=wrong.elements if job.verify else None,
            first_wrong=wrong.first,
        )


def _sum(a: Mismatch, b: Mismatch) -> Mismatch:
    return Mismatch(a.elements + b.elements, a.first or b.first)
