"""The built-in job of a collective over a group: seeded data, size after size, each result checked exactly."""

from collections.abc import Iterator

import numpy as np

from sipsim.ccl.collectives.base import NO_OP, Array, Call
from sipsim.ccl.collectives.group import GroupCollective, combine_all
from sipsim.ccl.schedule.blocks import RANKS, VECTOR, units
from sipsim.ccl.seeded import NONE_WRONG, Mismatch, compare, seeded_values
from sipsim.dtypes import DTYPES, DType
from sipsim.host.dp_policy import DPPolicy
from sipsim.host.tensor import HostTensor, Tensor
from sipsim.host.torch_api import Torch
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan

LEAST_SHARD_BYTES = 1024


def spread(sizes: tuple[int, ...], itemsize: int, n_cubes: int, n_pes: int) -> DPPolicy:
    """A layout in which tensors of these numbers of elements lie on as many PEs of a SIP as can share them equally.

    No shard is smaller than ``LEAST_SHARD_BYTES``, but for a tensor on one PE.
    """
    for cubes, pes in ((n_cubes, n_pes), (n_cubes, 1), (1, n_pes)):
        shards = cubes * pes
        if all(size % shards == 0 and size // shards * itemsize >= LEAST_SHARD_BYTES for size in sizes):
            return DPPolicy("row_wise", "row_wise", cubes, pes)
    return DPPolicy("row_wise", "row_wise", 1, 1)


class GroupData:
    """The sources of all ranks of a group of ``size``: elements of a unit, known by their place alone.

    Sums are of small integers, every partial sum exact; factors of a product are 2 and 1/2 (odd integers in integer
    types), of either sign, so that a lost one shows in every element.
    """

    def __init__(self, collective: GroupCollective, n_elem: int, size: int, dtype: DType, op: str, seed: int) -> None:
        self._collective = collective
        self._n_elem = n_elem
        self._size = size
        self._dtype = dtype
        self._op = op
        self._seed = seed

    def source(self, rank: int) -> Array:
        """A rank's whole source."""
        return self._values(rank, 0, self._collective.elements(self._n_elem, self._size)[0])

    def result(self, rank: int, root: int) -> Array | None:
        """A rank's result, exactly; None if it needs none."""
        collective, size = self._collective, self._size
        found = []
        for unit in range(units(collective.cut, size)):
            if collective.needs(unit, rank, size, root):
                holders = (each for each in range(size) if collective.holds(unit, each, size, root))
                terms = (self._unit(holder, unit) for holder in holders)
                found.append(_folded(self._op, terms, size) if collective.combines else next(terms))
        return np.concatenate(found) if found else None

    def _unit(self, rank: int, unit: int) -> Array:
        cut, n_elem = self._collective.cut, self._n_elem
        is_whole = cut == VECTOR or (cut == RANKS and self._collective.gathers)
        return self._values(rank, 0 if is_whole else unit % self._size * n_elem, n_elem)

    def _values(self, rank: int, start: int, count: int) -> Array:
        source = self._collective.elements(self._n_elem, self._size)[0]
        values = seeded_values(rank * source + start, count, self._dtype, self._seed, self._size)
        if self._op != "prod":
            return values.astype(self._dtype.numpy)
        if not self._dtype.is_float:
            return (values * 2 + 1).astype(self._dtype.numpy)
        factor = 2.0 if rank % 2 else 0.5
        return np.where(values < 0, -factor, factor).astype(self._dtype.numpy)


def _folded(op: str, terms: Iterator[Array], size: int) -> Array:
    total = None
    for term in terms:
        total = term if total is None else combine_all("sum" if op == "avg" else op, [total, term])
    assert total is not None
    return total / np.asarray(size, total.dtype) if op == "avg" else total


class GroupJob:
    """One rank's part of the job."""

    def __init__(self, job: Job, collective: GroupCollective, torch: Torch, plan: Plan, rank: int) -> None:
        self._job = job
        self._collective = collective
        self._torch = torch
        self._plan = plan
        self._rank = rank
        self._size = plan.system.n_sips
        self._dtype = DTYPES[job.dtype]
        self._is_first = True

    def run(self) -> None:
        """Run all sizes; their records are added to the process group's ``runs``."""
        self._torch.distributed.init_process_group(backend="ahbm")
        for n_elem in self._job.n_elems:
            self._run_size(n_elem)

    def _run_size(self, n_elem: int) -> None:
        job, dist, collective = self._job, self._torch.distributed, self._collective
        op = job.op if collective.ops else NO_OP
        of_source, of_result = collective.elements(n_elem, self._size)
        data = GroupData(collective, n_elem, self._size, self._dtype, op, job.seed)
        system = self._plan.system
        layout = spread((of_source, of_result), self._dtype.itemsize, system.n_cubes, system.n_pes)
        own = HostTensor(data.source(self._rank))
        source = self._zeros(of_source, layout)
        result = source if collective.in_place else self._zeros(of_result, layout)
        call = Call(source, result, op, (0,) if collective.has_root else ())
        expected = data.result(self._rank, 0) if job.verify else None
        works, wrong = [], NONE_WRONG
        for iteration in range(job.warmup + job.iters):
            if not collective.in_place:
                # What the iteration before left must not count as this one's result.
                result.fill_(0)
            source.copy_(own)
            if not self._is_first:
                dist.start_together()
            self._is_first = False
            if iteration == 0:
                dist.count_from_here(job.warmup + job.iters)
            work = dist.start_collective(collective, call)
            work.wait()
            if iteration >= job.warmup:
                works.append(work)
            if expected is not None:
                more = compare(result.numpy().reshape(1, -1), expected)
                wrong = Mismatch(wrong.elements + more.elements, wrong.first or more.first)
        dist.record(collective, call, works, wrong if job.verify else None)

    def _zeros(self, n_elem: int, layout: DPPolicy) -> Tensor:
        return self._torch.zeros((n_elem,), dtype=self._dtype, dp=layout)
