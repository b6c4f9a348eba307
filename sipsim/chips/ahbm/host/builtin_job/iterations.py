"""The rows of the built-in job, each from a row start, and their iterations: each on fresh data, from a start common to
all ranks, and checked.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup
from sipsim.chips.ahbm.host.distributed.distributed import Distributed
from sipsim.chips.ahbm.host.layout.shaped import HostTensor
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.collectives.call.base import Array, Call, Collective
from sipsim.collectives.testdata import NONE_WRONG, Mismatch, compare
from sipsim.records.job import Job


class Buffers(NamedTuple):
    """A rank's ``call``, the data of its source, and its result; None if that may be anything, or is not checked."""

    call: Call
    data: HostTensor
    expected: Array | None


class Iterations:
    """The iterations of one rank, in all rows of its job. The first row starts at time 0."""

    def __init__(self, job: Job, dist: Distributed) -> None:
        self._job = job
        self._dist = dist
        self._is_first = True

    def run(
        self,
        collective: Collective,
        make_buffers: Callable[[], Buffers | None],
        group: ProcessGroup | None = None,
        algorithm: str = "",
    ) -> None:
        """Run a row, and add its record. The buffers are made at its start, and end with it; without any this rank only
        takes part in the common starts.
        """
        job, dist = self._job, self._dist
        times, wrong = [], NONE_WRONG
        if not self._is_first:
            dist.begin_row()
        self._is_first = False
        dist.records.row = ""
        dist.count_from_here(job.warmup + job.iters)
        buffers = make_buffers()
        for iteration in range(job.warmup + job.iters):
            if buffers is not None:
                _refresh(buffers)
            if iteration:
                dist.start_together()
            if buffers is None:
                continue
            work = dist.start_collective(collective, buffers.call, group, algorithm)
            work.wait()
            times += [work.times] if iteration >= job.warmup else []
            wrong = _sum(wrong, _wrong(buffers))
        if buffers is not None:
            dist.record(collective, buffers.call, work, times, wrong if job.verify else None)


def _refresh(buffers: Buffers) -> None:
    """What the iteration before left must not count as this one's result."""
    source, result = buffers.call.source, buffers.call.result
    assert isinstance(source, Tensor)
    assert isinstance(result, Tensor)
    if result is not source:
        result.fill_(0)
    source.copy_(buffers.data)


def _wrong(buffers: Buffers) -> Mismatch:
    result = buffers.call.result
    if buffers.expected is None or result is None:
        return NONE_WRONG
    return compare(np.atleast_2d(result.numpy()), buffers.expected)


def _sum(a: Mismatch, b: Mismatch) -> Mismatch:
    return Mismatch(a.elements + b.elements, a.first or b.first)
