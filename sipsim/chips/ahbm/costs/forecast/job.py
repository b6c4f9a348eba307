"""The forecast of the built-in job: size after size, what
:class:`~sipsim.chips.ahbm.costs.forecast.kernels.CountedLaunch` counts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sipsim.chips.ahbm.costs.forecast.counted import Uncountable
from sipsim.chips.ahbm.costs.forecast.kernels import CountedLaunch
from sipsim.chips.ahbm.costs.forecast.times import CommandTimes
from sipsim.chips.ahbm.host.layout.dp_policy import DPPolicy
from sipsim.chips.ahbm.host.memory.allocator import AddressSpace
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.api.forecast import STEPS, JobForecast, SizeForecast
from sipsim.collectives.call.base import COLLECTIVES, Call, default_collective
from sipsim.core.dtypes import DTYPES
from sipsim.records.job import Job


def forecast(job: Job, plan: Plan) -> JobForecast:
    """What a built-in job takes.

    Raises:
        Uncountable: when the algorithm's kernels cannot be counted.
    """
    if job.algorithms:
        raise Uncountable("programs of collectives over a group")
    times = CommandTimes(plan)
    known: dict[int, SizeForecast] = {}
    for n_elem in job.n_elems:
        if n_elem not in known:
            known[n_elem] = _size(n_elem, job, plan, times)
    sizes = tuple(known[n_elem] for n_elem in job.n_elems)
    gap_ps = plan.barrier_tree.gap_ps if plan.system.n_sips > 1 else 0
    return JobForecast(sizes=sizes, iterations=job.warmup + job.iters, gap_ps=gap_ps)


def _size(n_elem: int, job: Job, plan: Plan, times: CommandTimes) -> SizeForecast:
    launch, system = CountedLaunch(plan, times), plan.system
    kernels: list[Callable[..., None]] = []
    args: list[tuple[Any, ...]] = []
    spaces: list[AddressSpace] = []
    nbytes = elements = 0
    for sip in range(system.n_sips):
        world = plan.world.on_sip(sip)
        space = AddressSpace(MemoryStore(sip, system.capacities, system.spaces_of_cubes), sip, plan.hbm_room_bytes)
        call = _call(n_elem, job, plan, space)
        tensors = call.tensors()
        nbytes, elements = sum(tensor.nbytes for tensor in tensors), tensors[0].numel()
        kernels.append(world.algorithm.kernel)
        pointers = [tensor.pointer() for tensor in tensors if isinstance(tensor, Tensor)]
        args.append((*pointers, *call.values, *world.kernel_args(system, sip, call.n_elem())))
        spaces.append(space)
    launch.run(kernels, args, [space.translate for space in spaces])
    ends_ps = np.sort(np.array(launch.ends_ps))
    if not len(ends_ps):
        raise Uncountable("the kernels have no commands")
    first_ps = int(ends_ps[0]) - launch.start_ps
    duration_ps = max(int(ends_ps[-1]), launch.done_ps)
    at = (np.arange(STEPS + 1) * (len(ends_ps) - 1)) // STEPS
    return SizeForecast(
        n_elem=n_elem,
        nbytes=nbytes,
        elements=elements,
        counts=dict(launch.counts),
        commands=len(ends_ps),
        duration_ps=duration_ps,
        # What is left before the first command ends includes the launch.
        curve_ps=(first_ps, *(int(time_ps) for time_ps in ends_ps[at[1:-1]]), duration_ps),
    )


def _call(n_elem: int, job: Job, plan: Plan, space: AddressSpace) -> Call:
    collective = COLLECTIVES.get(job.collective or default_collective())
    dtype, cubes = DTYPES[job.dtype], plan.system.n_cubes
    of_source, of_result = collective.elements(n_elem, plan.system.n_sips)

    def zeros(elements: int) -> Tensor:
        return Tensor(MemoryStore(0, {}), space, (cubes, elements), dtype, DPPolicy(num_cubes=cubes))

    source = zeros(of_source)
    return Call(source, source if collective.in_place else zeros(of_result), job.op, collective.default_values)
