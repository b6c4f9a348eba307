"""``torch.distributed`` on the simulated machine: the process group, and collectives that run as kernels.

Each registered collective is a method here, under its name (:mod:`sipsim.ccl.collectives`).

``init_process_group`` takes no IPCQ settings (ADR-0023 D10): algorithm, buffers and wiring come from the config.
Ranks are SIPs. A collective launches its kernel on the PEs of its communicator on this SIP, and the host
script waits, in simulated time, until all of them have ended.
"""

from collections.abc import Callable, Sequence
from types import MethodType

from sipsim.ccl.collectives.base import COLLECTIVES, Call, Collective, DeviceTensor
from sipsim.ccl.collectives.group import GroupCollective
from sipsim.ccl.groups.process_group import ProcessGroup
from sipsim.ccl.groups.select import AUTO
from sipsim.ccl.hangs.diagnostics import pointer_dump
from sipsim.ccl.seeded import Mismatch
from sipsim.host.bridge.base import host_call
from sipsim.host.futures import Outputs
from sipsim.host.group_runs import GroupRuns
from sipsim.host.groups import GroupHandle, NonMember, ProcessGroups
from sipsim.host.kernel_queue import KernelQueue, Work
from sipsim.host.places import allowed_pes
from sipsim.host.point_to_point import P2POp, PairRuns, PointToPoint
from sipsim.host.run_records import RunRecords
from sipsim.host.torch_names import TorchNames, WorldGroup
from sipsim.host.views import as_one
from sipsim.record.calls import GROUPS, WORLD, GroupCall
from sipsim.sip.sip import Sip

BACKEND = "ahbm"


class ReduceOp:
    """The reductions, by their PyTorch names."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "prod"
    AVG = "avg"


class Distributed(TorchNames, PointToPoint):
    """The module-like object ``torch.distributed`` of one rank."""

    ReduceOp = ReduceOp
    P2POp = P2POp

    def __init__(self, sip: Sip, queue: KernelQueue, recorded_io_dir: str) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._queue = queue
        self.bridge = queue.bridge
        self._world = sip.plan.world.on_sip(sip.sip)
        self._places = self._world.places_on(sip.sip)
        self._initialized = False
        self._groups = ProcessGroups(sip.plan, sip.sip, self._note_group)
        self._runs_of_groups = GroupRuns(sip, queue)
        self._world_group: GroupHandle | None = None
        self.records = RunRecords(sip, recorded_io_dir)
        self.calls: list[GroupCall] = []
        self._pairs = PairRuns(sip, queue, self.records, self.calls.append)
        self.group = WorldGroup(lambda: self._world_group)
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
        self._world_group = self._groups.make(None)

    @host_call
    def new_group(
        self, ranks: Sequence[int] | None = None, *, pes: Sequence[int] = (), **_pytorch_arguments: object
    ) -> GroupHandle:
        """A group of these ranks, in this order; None: of all. Every rank of the run calls it, in one order.

        On a rank that is not in it, the result equals ``GroupMember.NON_GROUP_MEMBER``, and is only good for
        ``destroy_process_group``. ``pes``: of each cube, which may work for the group; empty: all.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: for ranks that do not exist or are named twice.
            ConfigError: when a SIP has no room for another group's rings.
        """
        self._check_initialized()
        return self._groups.make(ranks, pes)

    @host_call
    def destroy_process_group(self, group: GroupHandle | None = None) -> None:
        """Give back a group's rings, once its collectives have ended; every rank of the run calls it, in one order.

        Without a group, or with that of all ranks: leave all of them.

        Raises:
            ValueError: for a group that was destroyed before.
        """
        if not self._initialized:
            return
        leaves = group is None or group is self._world_group
        for each in self._groups.live() if group is None or leaves else [group]:
            if isinstance(each, ProcessGroup) and self._groups.is_live(each):
                self._runs_of_groups.close(each)
                self._pairs.close(each)
            self._groups.destroy(each)
        if leaves:
            self._initialized, self._world_group = False, None

    def is_initialized(self) -> bool:
        """Whether this rank is in the process group."""
        return self._initialized

    def get_rank(self, group: GroupHandle | None = None) -> int:
        """This SIP's number, or its rank in a group; -1 outside of it."""
        if group is None:
            return self._sip.sip
        return -1 if isinstance(group, NonMember) else group.group.sips.index(self._sip.sip)

    @host_call
    def pointer_dump(self) -> str:
        """This SIP's queue pairs as text: the four pointers of each, and its receive addresses."""
        return pointer_dump(self._sip)

    def algorithm_name(self) -> str:
        """The algorithm that ``ccl.yaml`` chooses."""
        return self._world.algorithm.name

    def get_world_size(self, group: GroupHandle | None = None) -> int:
        """The number of SIPs, or of ranks of a group; -1 outside of it."""
        if group is None:
            return self._plan.system.n_sips
        return -1 if isinstance(group, NonMember) else group.group.size

    def is_row_a_cube(self, tensor: DeviceTensor) -> bool:
        """Whether a tensor has a row on the lead PE of each cube of the SIP, as that of ADR-0032 (D2).

        Or as an algorithm that is wired before the run takes it: every tensor for one of the user's.
        """
        cubes, dp, wired = self._plan.system.n_cubes, tensor.dp, self._plan.algorithm
        if (wired.is_users and not wired.is_schedule) or (dp.cube, dp.pe) == wired.layout:
            return True
        return (dp.cube, dp.num_cubes, dp.num_pes) == ("row_wise", cubes, 1) and cubes > 1 and tensor.shape[0] == cubes

    def runs_all_reduce(self, algorithm: str) -> bool:
        """Whether the algorithm that a call names, or else the config, is one of ``all_reduce`` over SIPs."""
        named = self._plan.catalog.get(algorithm) if algorithm not in ("", AUTO) else self._plan.algorithm
        return "all_reduce" in named.collectives

    def collective(self, name: str) -> Callable[..., Work | None]:
        """The method of a collective; a dotted name is a module that registers a collective under that name.

        Raises:
            UnknownName: when there is none.
        """
        return MethodType(COLLECTIVES.get(name).method, self)

    @host_call
    def run_collective(
        self,
        name: str,
        call: Call,
        async_op: bool,
        group: GroupHandle | None = None,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Launch an algorithm's kernel, and record the run; blocks unless ``async_op``. None outside of the group.

        Lists of tensors in the call become one. ``pes``: of each cube, which may work; empty: those of the group.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: a call that the collective refuses.
        """
        if isinstance(group, NonMember):
            return None
        collective = COLLECTIVES.get(name)
        work = Work(self._queue, name)
        work.has_own_row = True
        call = call._replace(source=as_one(call.source), result=as_one(call.result))
        work.outputs = Outputs(call.result)
        self._launch(work, collective, call, group, algorithm, tuple(pes))
        if async_op:
            return work
        work.wait()
        return None

    @host_call
    def start_collective(
        self, collective: Collective, call: Call, group: GroupHandle | None = None, algorithm: str = "", name: str = ""
    ) -> Work:
        """Launch an algorithm's kernel; nothing is recorded. ``name``: of what is no collective by itself, and belongs
        to no row.
        """
        work = Work(self._queue, name or collective.name)
        self._launch(work, collective, call, group, algorithm)
        return work

    def _launch(
        self,
        work: Work,
        collective: Collective,
        call: Call,
        group: GroupHandle | None,
        algorithm: str,
        pes: tuple[int, ...] = (),
    ) -> None:
        self._check_initialized()
        # At the start, not at the launch: an earlier collective may still write to the tensor, and is no run yet.
        if work.name == collective.name:
            work.is_of_row = True
            work.on_start = lambda: self.records.note_start(work, call)
        if isinstance(collective, GroupCollective):
            self._launch_in_group(work, collective, call, group, algorithm, pes)
        else:
            self._launch_wired(work, collective, call, group)

    def _launch_in_group(
        self,
        work: Work,
        collective: GroupCollective,
        call: Call,
        group: GroupHandle | None,
        algorithm: str,
        pes: tuple[int, ...],
    ) -> None:
        chosen = self._member(collective.name, group)
        pes = allowed_pes(self._plan, pes) or chosen.pes
        name = "" if work.name == collective.name else work.name
        ready = self._runs_of_groups.ready(collective, call, chosen, algorithm, pes, name)
        self._note_call(work, chosen.number, chosen.group.sips, chosen.calls, ready.text, ready.algorithm.name)
        self._on_end(work, collective, ready.call)
        self._runs_of_groups.launch(work, ready)

    def _member(self, what: str, group: GroupHandle | None) -> ProcessGroup:
        """A group that this rank is in; None: that of all."""
        self._check_initialized()
        chosen = self._world_group if group is None else group
        if isinstance(chosen, ProcessGroup) and not self._groups.is_live(chosen):
            raise ValueError(f"{what}: {chosen!r} was destroyed")
        if not isinstance(chosen, ProcessGroup):
            raise ValueError(f"{what}: {chosen!r} is no group that this rank is in")
        return chosen

    def _launch_wired(self, work: Work, collective: Collective, call: Call, group: GroupHandle | None) -> None:
        """Run the algorithm that was wired before the run, on the ranks of its wiring."""
        if group is not None and group is not self._world_group:
            raise ValueError(f"{collective.name} runs on all SIPs; a group's collectives are elementwise")
        system, wired = self._plan.system, self._world
        layout = wired.algorithm.layout
        collective.check(call, system.n_sips, system.n_cubes, *(() if layout is None else (layout,)))
        wired.check_holders(call, self._sip.sip)
        more = wired.kernel_args(system, self._sip.sip, call.n_elem())
        wired.algorithm.check_takes(more, collective.kernel_takes)
        args = (*call.tensors(), *call.values, *more)
        self._on_end(work, collective, call)
        sized, how = call.sized(), ", ".join(map(str, (call.op, *call.values)))
        text = f"{collective.name} of {sized.numel()} {sized.dtype} ({how})"
        everyone = self._member(collective.name, None)
        everyone.calls += 1
        self._note_call(work, WORLD, everyone.group.sips, everyone.calls, text, wired.algorithm.name)
        self._queue.launch(work, wired.algorithm.kernel, args, self._places)

    def _note_call(self, work: Work, group: int, sips: tuple[int, ...], number: int, text: str, algorithm: str) -> None:
        work.algorithm, work.text = algorithm, text
        work.group, work.sips, work.number = group, sips, number
        self.calls.append(GroupCall(text, group, () if group == WORLD else sips))

    def _on_end(self, work: Work, collective: Collective, call: Call) -> None:
        if work.has_own_row:
            work.on_end = lambda: self.records.note_end(work, collective, call)

    def _note_group(self, what: str) -> None:
        self.calls.append(GroupCall(what, GROUPS))

    def _check_initialized(self) -> None:
        if not self._initialized:
            raise RuntimeError("call torch.distributed.init_process_group(backend='ahbm') first")

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
        """Add a completed collective to the records, by its timed iterations."""
        self.records.add(collective, call, works, wrong)
