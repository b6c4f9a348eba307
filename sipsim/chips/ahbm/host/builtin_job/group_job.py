"""The built-in job of a collective over a group: seeded data, size after size, each result checked exactly."""

from functools import partial

from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup
from sipsim.chips.ahbm.host.builtin_job.group_data import GroupData
from sipsim.chips.ahbm.host.builtin_job.iterations import Buffers, Iterations
from sipsim.chips.ahbm.host.layout.dp_policy import DPPolicy
from sipsim.chips.ahbm.host.layout.shaped import HostTensor
from sipsim.chips.ahbm.host.process_groups.groups import NonMember
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import System
from sipsim.collectives.call.base import Call
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.core.dtypes import DTYPES
from sipsim.records.job import Job

LEAST_SHARD_BYTES = 1024


def layout_of(job: Job, sizes: tuple[int, ...], system: System) -> DPPolicy:
    """The layout of tensors of these numbers of elements: that of the job, or else over all that can share them."""
    if job.layout is not None:
        return DPPolicy("row_wise", "row_wise", *job.layout)
    return spread(sizes, DTYPES[job.dtype].itemsize, system.n_cubes, system.n_pes)


def spread(sizes: tuple[int, ...], itemsize: int, n_cubes: int, n_pes: int) -> DPPolicy:
    """A layout in which tensors of these numbers of elements lie on as many PEs of a SIP as can share them equally.

    No shard is smaller than ``LEAST_SHARD_BYTES``, but for a tensor on one PE.
    """
    for cubes, pes in ((n_cubes, n_pes), (n_cubes, 1), (1, n_pes)):
        shards = cubes * pes
        if all(size % shards == 0 and size // shards * itemsize >= LEAST_SHARD_BYTES for size in sizes):
            return DPPolicy("row_wise", "row_wise", cubes, pes)
    return DPPolicy("row_wise", "row_wise", 1, 1)


class GroupJob:
    """One rank's part of the job. A rank outside of all groups only takes part in the common starts."""

    def __init__(self, job: Job, collective: GroupCollective, torch: Torch, plan: Plan, rank: int) -> None:
        self._job = job
        self._collective = collective
        self._torch = torch
        self._system = plan.system
        self._sips = next((sips for sips in job.groups if rank in sips), ())
        self._group: ProcessGroup | None = None
        if not job.groups:
            self._sips = tuple(range(plan.system.n_sips))
        self._rank = self._sips.index(rank) if self._sips else -1

    def run(self) -> None:
        """Run all sizes with all algorithms; their records are added to the process group's ``runs``."""
        dist = self._torch.distributed
        iterations = Iterations(self._job, dist)
        dist.init_process_group(backend="ahbm")
        made = [dist.new_group(sips) for sips in self._job.groups]
        self._group = next((group for group in made if not isinstance(group, NonMember)), None)
        for n_elem, algorithms in zip(self._job.n_elems, self._job.algorithms, strict=True):
            for algorithm in algorithms:
                iterations.run(self._collective, partial(self._buffers, n_elem), self._group, algorithm)

    def _buffers(self, n_elem: int) -> Buffers | None:
        if not self._sips:
            return None
        job, collective, size = self._job, self._collective, len(self._sips)
        of_source, of_result = collective.elements(n_elem, size)
        data = GroupData(collective, n_elem, self._sips, DTYPES[job.dtype], job.op, job.seed)
        layout = layout_of(job, (of_source, of_result), self._system)
        source = self._zeros(of_source, layout)
        result = source if job.in_place else self._zeros(of_result, layout)
        # As in torch.distributed a root is named by its rank in the run.
        call = Call(source, result, job.op, (self._sips[job.root],) if collective.has_root else ())
        expected = data.result(self._rank, job.root) if job.verify else None
        return Buffers(call, HostTensor(data.source(self._rank)), expected)

    def _zeros(self, n_elem: int, layout: DPPolicy) -> Tensor:
        return self._torch.zeros((n_elem,), dtype=DTYPES[self._job.dtype], dp=layout)
