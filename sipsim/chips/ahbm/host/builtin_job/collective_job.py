"""The built-in job: a collective on seeded data, size after size, each result checked exactly.

With a user's algorithm that has a ``reference``, that says what is right.

All ranks start every iteration at one simulated time, so that none contains the skew that the one before left.
It is a host program like a user's script, and uses the same ``torch``.
"""

from functools import partial

import numpy as np

from sipsim.chips.ahbm.host.builtin_job.collective_request import job_layout
from sipsim.chips.ahbm.host.builtin_job.iterations import Buffers, Iterations
from sipsim.chips.ahbm.host.layout.dp_policy import ROWS
from sipsim.chips.ahbm.host.layout.shaped import HostTensor
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.call.base import COLLECTIVES, Array, Call, default_collective
from sipsim.collectives.testdata import Seeded
from sipsim.core.dtypes import DTYPES
from sipsim.records.job import Job


class CollectiveJob:
    """One rank's part of the built-in job."""

    def __init__(self, job: Job, torch: Torch, plan: Plan, rank: int) -> None:
        self._job = job
        self._torch = torch
        self._plan = plan
        self._rank = rank
        self._world_size = plan.system.n_sips
        self._n_cubes = plan.system.n_cubes
        self._dtype = DTYPES[job.dtype]
        self._collective = COLLECTIVES.get(job.collective or default_collective())
        self._dp = job_layout(plan)
        self._rows = self._dp.parts(ROWS)

    def run(self) -> None:
        """Run all sizes; their records are added to the process group's ``runs``."""
        dist = self._torch.distributed
        iterations = Iterations(self._job, dist)
        dist.init_process_group(backend="ahbm")
        for n_elem in self._job.n_elems:
            iterations.run(self._collective, partial(self._buffers, n_elem))

    def _buffers(self, n_elem: int) -> Buffers:
        job, collective = self._job, self._collective
        source_elem, result_elem = collective.elements(n_elem, self._world_size)
        contributions = collective.contributions(self._world_size, self._rows)
        shape = (self._rows, source_elem * self._n_cubes // self._rows)
        seeded = Seeded(self._world_size, shape, self._dtype, job.seed, contributions)
        source = self._zeros(source_elem)
        result = source if collective.in_place else self._zeros(result_elem)
        call = Call(source, result, job.op, collective.default_values)
        expected = self._expected(seeded, call) if job.verify else None
        return Buffers(call, HostTensor(seeded.tensor(self._rank)), expected)

    def _expected(self, seeded: Seeded, call: Call) -> Array | None:
        """This rank's result; None if it may be anything.

        An algorithm of a user may mean something else by a collective that adds: its ``reference`` says what. That of
        an algorithm of this package is the exact sum, which takes less time and memory than all ranks' results.
        """
        algorithm = self._plan.algorithm
        if algorithm.reference is None or not algorithm.is_users or not self._collective.ops:
            return self._collective.expected(seeded, self._rank, call.values)
        tensors = [seeded.tensor(rank) for rank in range(self._world_size)]
        row = algorithm.reference(tensors, self._plan.system)[self._rank]
        if row is None or call.result is None:
            return None
        elements = call.result.elements_per_cube() * self._n_cubes // self._rows
        expected, shape = np.asarray(row), (self._rows, elements)
        if expected.dtype != self._dtype.numpy or expected.shape not in (shape, shape[1:]):
            is_one, must = f"{expected.dtype}{list(expected.shape)}", f"{self._dtype.numpy}{list(shape)}"
            raise ValueError(
                f"algorithm {algorithm.name}: its reference() returned {is_one} for rank {self._rank}; must be {must}"
            )
        return expected

    def _zeros(self, n_elem: int) -> Tensor:
        shape = (self._rows, n_elem * self._n_cubes // self._rows)
        return self._torch.zeros(shape, dtype=self._dtype, dp=self._dp)
