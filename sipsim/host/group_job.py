"""The built-in job of a collective over a group: seeded data, size after size, each result checked exactly."""

from typing import NamedTuple

from sipsim.ccl.collectives.base import Array, Call
from sipsim.ccl.collectives.group import GroupCollective
from sipsim.ccl.groups.process_group import ProcessGroup
from sipsim.ccl.seeded import NONE_WRONG, Mismatch, compare
from sipsim.dtypes import DTYPES
from sipsim.host.dp_policy import DPPolicy
from sipsim.host.group_data import GroupData
from sipsim.host.groups import NonMember
from sipsim.host.tensor import HostTensor, Tensor
from sipsim.host.torch_api import Torch
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan
from sipsim.system.system import System

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


class _Buffers(NamedTuple):
    """Of a size: a rank's ``call``, the data of its source, and its result; None if it is not checked."""

    call: Call
    data: HostTensor
    expected: Array | None


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
        self._is_first = True

    def run(self) -> None:
        """Run all sizes with all algorithms; their records are added to the process group's ``runs``."""
        dist = self._torch.distributed
        dist.init_process_group(backend="ahbm")
        made = [dist.new_group(sips) for sips in self._job.groups]
        self._group = next((group for group in made if not isinstance(group, NonMember)), None)
        for n_elem, algorithms in zip(self._job.n_elems, self._job.algorithms, strict=True):
            for algorithm in algorithms:
                # Tensors of its own, so that no row finds pages in the TLBs that the one before has looked up.
                self._run_row(self._buffers(n_elem) if self._sips else None, algorithm)

    def _buffers(self, n_elem: int) -> _Buffers:
        job, collective, size = self._job, self._collective, len(self._sips)
        of_source, of_result = collective.elements(n_elem, size)
        data = GroupData(collective, n_elem, self._sips, DTYPES[job.dtype], job.op, job.seed)
        layout = layout_of(job, (of_source, of_result), self._system)
        source = self._zeros(of_source, layout)
        result = source if job.in_place else self._zeros(of_result, layout)
        # As in torch.distributed a root is named by its rank in the run.
        call = Call(source, result, job.op, (self._sips[job.root],) if collective.has_root else ())
        expected = data.result(self._rank, job.root) if job.verify else None
        return _Buffers(call, HostTensor(data.source(self._rank)), expected)

    def _run_row(self, buffers: _Buffers | None, algorithm: str) -> None:
        job, dist = self._job, self._torch.distributed
        works, wrong = [], NONE_WRONG
        for iteration in range(job.warmup + job.iters):
            if buffers is not None:
                _refresh(buffers)
            if not self._is_first:
                dist.start_together()
            self._is_first = False
            if iteration == 0:
                dist.count_from_here(job.warmup + job.iters)
            if buffers is None:
                continue
            work = dist.start_collective(self._collective, buffers.call, self._group, algorithm)
            work.wait()
            works += [work] if iteration >= job.warmup else []
            wrong = _sum(wrong, _wrong(buffers))
        if buffers is not None:
            found = wrong if job.verify else None
            dist.record(self._collective, buffers.call, works, found)

    def _zeros(self, n_elem: int, layout: DPPolicy) -> Tensor:
        return self._torch.zeros((n_elem,), dtype=DTYPES[self._job.dtype], dp=layout)


def _refresh(buffers: _Buffers) -> None:
    """What the iteration before left must not count as this one's result."""
    source, result = buffers.call.source, buffers.call.result
    assert isinstance(source, Tensor)
    assert isinstance(result, Tensor)
    if result is not source:
        result.fill_(0)
    source.copy_(buffers.data)


def _wrong(buffers: _Buffers) -> Mismatch:
    result = buffers.call.result
    if buffers.expected is None or result is None:
        return NONE_WRONG
    return compare(result.numpy().reshape(1, -1), buffers.expected)


def _sum(a: Mismatch, b: Mismatch) -> Mismatch:
    return Mismatch(a.elements + b.elements, a.first or b.first)
