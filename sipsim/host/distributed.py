"""``torch.distributed`` on the simulated machine: the process group, and collectives that run as kernels.

Each registered collective is a method here, under its name (:mod:`sipsim.ccl.collectives`).

``init_process_group`` takes no IPCQ settings (ADR-0023 D10): algorithm, buffers and wiring come from the config.
Ranks are SIPs. A collective launches its kernel on the PEs of its communicator on this SIP, and the host
script waits, in simulated time, until all of them have ended.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MethodType

import numpy as np

from sipsim.ccl.collectives.base import COLLECTIVES, Call, Collective, DeviceTensor
from sipsim.ccl.hangs.diagnostics import pointer_dump
from sipsim.ccl.seeded import Mismatch
from sipsim.errors import OutputError
from sipsim.host.bridge.base import host_call
from sipsim.host.kernel_queue import KernelQueue, Work
from sipsim.plan.job import RunRecord
from sipsim.record.resources import PeakMemory
from sipsim.sip.sip import Sip

BACKEND = "ahbm"


class ReduceOp:
    """The reductions, by their PyTorch names."""

    SUM = "sum"


class Distributed:
    """The module-like object ``torch.distributed`` of one rank."""

    ReduceOp = ReduceOp

    def __init__(self, sip: Sip, queue: KernelQueue, recorded_io_dir: str) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._queue = queue
        self.bridge = queue.bridge
        self._recorded_io_dir = recorded_io_dir
        self._world = sip.plan.world.on_sip(sip.sip)
        self._places = self._world.places_on(sip.sip)
        self._initialized = False
        self.runs: list[RunRecord] = []
        self.calls: list[str] = []
        self.on_record: Callable[[RunRecord], None] = lambda _record: None
        self.memory = PeakMemory()
        for name in COLLECTIVES.names():
            setattr(self, name, self.collective(name))

    def init_process_group(self, backend: str = BACKEND, **_pytorch_arguments: object) -> None:
        """Join the process group of all SIPs; PyTorch's other arguments are accepted and ignored.

        Raises:
            ValueError: for another backend, or a second call.
        """
        if backend != BACKEND:
            raise ValueError(f"backend {backend!r} is not available; allowed: {BACKEND!r}")
        if self._initialized:
            raise ValueError("init_process_group was called twice")
        self._initialized = True

    def destroy_process_group(self) -> None:
        """Leave the process group."""
        self._initialized = False

    def is_initialized(self) -> bool:
        """Whether this rank is in the process group."""
        return self._initialized

    def get_rank(self) -> int:
        """This SIP's number."""
        return self._sip.sip

    @host_call
    def pointer_dump(self) -> str:
        """This SIP's queue pairs as text: the four pointers of each, and its receive addresses."""
        return pointer_dump(self._sip)

    def algorithm_name(self) -> str:
        """The algorithm that ``ccl.yaml`` chooses."""
        return self._world.algorithm.name

    def get_world_size(self) -> int:
        """The number of SIPs."""
        return self._plan.system.n_sips

    def collective(self, name: str) -> Callable[..., Work | None]:
        """The method of a collective; a dotted name is a module that registers a collective under that name.

        Raises:
            UnknownName: when there is none.
        """
        return MethodType(COLLECTIVES.get(name).method, self)

    @host_call
    def run_collective(self, name: str, call: Call, async_op: bool) -> Work | None:
        """Launch the configured algorithm's kernel, and record the run; blocks unless ``async_op``.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: a call that the collective refuses.
        """
        collective = COLLECTIVES.get(name)
        work = Work(self._queue, name)
        work.has_own_row = True
        work.on_end = lambda: self._note_run(work, collective, call)
        self._launch(work, collective, call)
        if async_op:
            return work
        work.wait()
        return None

    @host_call
    def start_collective(self, collective: Collective, call: Call) -> Work:
        """Launch the configured algorithm's kernel; nothing is recorded."""
        work = Work(self._queue, collective.name)
        self._launch(work, collective, call)
        return work

    def _launch(self, work: Work, collective: Collective, call: Call) -> None:
        if not self._initialized:
            raise RuntimeError("call torch.distributed.init_process_group(backend='ahbm') first")
        system, group = self._plan.system, self._world
        layout = group.algorithm.layout
        collective.check(call, system.n_sips, system.n_cubes, *(() if layout is None else (layout,)))
        group.check_holders(call, self._sip.sip)
        more = group.kernel_args(system, self._sip.sip, call.n_elem())
        group.algorithm.check_takes(more, collective.kernel_takes)
        args = (*call.tensors(), *call.values, *more)
        # At the start, not at the launch: an earlier collective may still write to the tensor, and is no run yet.
        work.is_of_row = True
        work.on_start = lambda: self._start_run(work, call)
        self._queue.launch(work, group.algorithm.kernel, args, self._places)
        sized, how = call.sized(), ", ".join(map(str, (call.op, *call.values)))
        self.calls.append(f"{collective.name} of {sized.numel()} {sized.dtype} ({how})")

    @host_call
    def start_together(self) -> None:
        """Block the host script until the common start of all ranks (``sipsim.io.barrier``)."""
        host = self._queue.host_task()

        def start(span: int) -> None:
            host.span = span
            host.resume()

        self._sip.network.barrier.enter(start, host.span)
        host.wait("the common start of an iteration")

    def count_from_here(self, iterations: int) -> None:
        """What is used from here on belongs to the next run that is recorded, of so many iterations."""
        self._sip.usage.mark(iterations)

    def record(
        self,
        collective: Collective,
        call: Call,
        works: Sequence[Work],
        wrong: Mismatch | None = None,
    ) -> None:
        """Add a completed collective to ``runs``, by its timed iterations; sample memory, which is at its peak now."""
        self.memory.sample()
        sized, busbw = call.sized(), collective.busbw_factor(self._plan.system.n_sips)
        self.runs.append(
            RunRecord(
                collective=collective.name,
                algorithm=self._world.algorithm.name,
                dtype=sized.dtype.name,
                op=call.op,
                count=sized.numel(),
                nbytes=sized.nbytes,
                busbw=(busbw.numerator, busbw.denominator),
                spans_ps=tuple((work.start_ps, work.end_ps or 0) for work in works),
                kernels_ps=tuple(work.kernels_ps for work in works),
                wrong=wrong.elements if wrong is not None else None,
                first_wrong=wrong.first if wrong is not None else "",
                values=call.values,
                usage=self._sip.usage.so_far(),
            )
        )
        self.on_record(self.runs[-1])

    def _start_run(self, work: Work, call: Call) -> None:
        work.run = len(self.runs)
        if work.has_own_row and self._recorded_io_dir:
            self._record_io("in", call.source)

    def _note_run(self, work: Work, collective: Collective, call: Call) -> None:
        if self._recorded_io_dir:
            self._record_io("out", call.result)
        self.record(collective, call, [work])

    def _record_io(self, when: str, tensor: DeviceTensor) -> None:
        path = Path(self._recorded_io_dir) / f"{len(self.runs)}-{self._sip.sip}-{when}.npy"
        rows = tensor.numpy().reshape(self._plan.system.n_cubes, -1).view(tensor.dtype.stored)
        try:
            np.save(path, rows)
        except OSError as error:
            what = f"{path.parent}: data for the check cannot be written: {error.strerror or error}"
            raise OutputError(
                f"{what}; make room there, set TMPDIR to another folder, or give --no-verify-data"
            ) from None
