"""The built-in job: a collective on seeded data, size after size, each result checked exactly.

All ranks start every iteration at one simulated time, so that none contains the skew that the one before left.
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
        self._is_first = True

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
        spans_ps, wrong = [], NONE_WRONG
        for iteration in range(job.warmup + job.iters):
            tensor.copy_(data)
            if not self._is_first:
                dist.start_together()
            self._is_first = False
            work = dist.start_all_reduce(tensor, job.op)
            work.wait()
            if iteration >= job.warmup:
                spans_ps.append((work.start_ps, work.end_ps or 0))
            if expected is not None:
                wrong = _sum(wrong, compare(tensor.numpy(), expected))
        dist.record(self._record(tensor, tuple(spans_ps), wrong))

    def _record(self, tensor: Tensor, spans_ps: tuple[tuple[int, int], ...], wrong: Mismatch) -> RunRecord:
        job = self._job
        return RunRecord(
            collective=job.collective,
            algorithm=self._torch.distributed.algorithm_name(),
            dtype=job.dtype,
            op=job.op,
            count=tensor.numel(),
            nbytes=tensor.nbytes,
            spans_ps=spans_ps,
            wrong=wrong.elements if job.verify else None,
            first_wrong=wrong.first,
        )


def _sum(a: Mismatch, b: Mismatch) -> Mismatch:
    return Mismatch(a.elements + b.elements, a.first or b.first)
