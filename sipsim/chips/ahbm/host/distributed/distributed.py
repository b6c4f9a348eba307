"""``torch.distributed`` on the simulated machine: the process group, and collectives that run as kernels.

Each registered collective is a method here (:mod:`sipsim.collectives.collectives`).

``init_process_group`` takes no IPCQ settings (ADR-0023 D10): algorithm, buffers and wiring come from the config.
Ranks are SIPs. A collective launches its kernel on the PEs of its communicator on this SIP, and the host
script waits, in simulated time, until all of them have ended.
"""

from collections.abc import Callable, Sequence
from types import MethodType

from sipsim.chips.ahbm.collectives.queue_dump import pointer_dump
from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup
from sipsim.chips.ahbm.host.distributed.point_to_point import P2POp, PairRuns, PointToPoint
from sipsim.chips.ahbm.host.distributed.rows import Row
from sipsim.chips.ahbm.host.distributed.torch_names import TorchNames, WorldGroup
from sipsim.chips.ahbm.host.process_groups.group_runs import GroupRuns
from sipsim.chips.ahbm.host.process_groups.groups import GroupHandle, NonMember, ProcessGroups
from sipsim.chips.ahbm.host.process_groups.places import allowed_pes
from sipsim.chips.ahbm.host.records import RunRecords
from sipsim.chips.ahbm.host.stream.futures import Outputs
from sipsim.chips.ahbm.host.stream.kernel_queue import KernelQueue, Work, WorkTimes
from sipsim.chips.ahbm.host.views import as_one, device_tensor
from sipsim.chips.ahbm.sip.sip import Sip
from sipsim.chips.api.bridge.base import host_call
from sipsim.collectives.call.base import COLLECTIVES, Call, Collective, DeviceTensor
from sipsim.collectives.call.calls import GROUPS, WORLD, GroupCall, OpenCall
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.collectives.testdata import Mismatch
from sipsim.core.errors import note

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
        self._open_row: OpenCall | None = None
        self._pairs = PairRuns(sip, queue, self.records, self.calls.append)
        self.group = WorldGroup(lambda: self._world_group)
        self._has_told_meaning = False
        for method in map(self.collective, COLLECTIVES.names()):
            setattr(self, method.__name__, method)

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
        if not leaves and not isinstance(group, NonMember):
            _process_group(group)
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
        return -1 if isinstance(group, NonMember) else _process_group(group).group.sips.index(self._sip.sip)

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
        return -1 if isinstance(group, NonMember) else _process_group(group).group.size

    def is_intercube(self, tensor: DeviceTensor) -> bool:
        """Whether ``all_reduce`` of a tensor, without a group or an algorithm, is ``intercube``.

        With ``defaults.all_reduce: intercube`` that of a tensor with a row a cube is. That of every tensor is where the
        config names a kernel of the user's that is wired before the run: it means what that kernel does. Rank 0 says
        once what is meant where a reader of the script may expect the other.
        """
        device_tensor("all_reduce", tensor)
        wired, asked = self._plan.algorithm, self._plan.resolved.ccl.defaults.all_reduce == "intercube"
        is_own = wired.is_users and not wired.is_schedule
        if not asked and is_own:
            self._tell_meaning(
                f"all_reduce runs algorithm {wired.name} of the config, a kernel of yours that is wired "
                'before the run; for the elementwise one over ranks give the call algorithm="auto"'
            )
        elif not asked and self._is_row_a_cube(tensor):
            self._tell_meaning(
                "all_reduce of a tensor with a row a cube is elementwise over ranks, as torch's; for the "
                "sum of all rows of all ranks (ADR-0032) call intercube_all_reduce, or give "
                "--set defaults.all_reduce=intercube"
            )
        return is_own or (asked and self._is_row_a_cube(tensor))

    def _tell_meaning(self, line: str) -> None:
        if not self._has_told_meaning and not self._sip.sip:
            note(line)
        self._has_told_meaning = True

    def _is_row_a_cube(self, tensor: DeviceTensor) -> bool:
        """Whether a tensor is that of ADR-0032 (D2), with a row on the lead PE of each cube, or as the wired algorithm
        takes it.
        """
        cubes, dp = self._plan.system.n_cubes, tensor.dp
        if cubes == 1 or dp.num_cubes != cubes:
            return False
        as_adr = (dp.cube, dp.num_pes, tensor.shape[0]) == ("row_wise", 1, cubes)
        return as_adr or (dp.cube, dp.pe) == self._plan.algorithm.layout

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
        if not isinstance(algorithm, str):
            raise TypeError(f"{name}: algorithm={algorithm!r}: give the name of one, or auto")
        collective = COLLECTIVES.get(name)
        work = Work(self._queue, name)
        work.has_own_row = True
        call = call._replace(source=as_one(name, call.source), result=as_one(name, call.result))
        work.outputs = Outputs(call.result)
        self._launch(work, collective, call, group, algorithm, allowed_pes(self._plan, pes))
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
        pes = pes or chosen.pes
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
        if why := self._plan.why_not_wired:
            raise ValueError(f"{collective.name}: {why}")
        system, wired = self._plan.system, self._world
        layout = wired.algorithm.layout
        collective.check(call, system.n_sips, system.n_cubes, *(() if layout is None else (layout,)))
        wired.check_holders((tensor.dp for tensor in call.tensors()), self._sip.sip)
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
        """Block the host script until the common start of all ranks (``sipsim.chips.ahbm.barrier``)."""
        self._start_together("the common start of an iteration")

    def _start_together(self, what: str, is_row: bool = False) -> None:
        host = self._queue.host_task()

        def start(span: int) -> None:
            host.span = span
            host.resume()

        self._sip.barrier.enter(start, host.span, is_row)
        host.wait(what)

    def row(self, name: str) -> Row:
        """``with torch.ahbm.row(name):`` all ranks begin what is inside together, from the state of time 0, as
        :meth:`begin_row` says. The collectives inside carry the name.

        Raises:
            ValueError: for a name that is no line of text, or inside another row.
            RuntimeError: before ``init_process_group``.
        """
        return Row(name, self.records, self._begin_named_row)

    @host_call
    def _begin_named_row(self, name: str) -> None:
        everyone = self._member("row", None)
        everyone.calls += 1
        text, sips = f"row({name!r})", everyone.group.sips
        self.calls.append(GroupCall(text))
        self._open_row = OpenCall(WORLD, sips, everyone.calls, text)
        self.begin_row()
        self._open_row = None

    def open_calls(self) -> list[OpenCall]:
        """The calls that have not ended, in order."""
        return [*self._queue.open_calls(), *filter(None, [self._open_row])]

    @host_call
    def begin_row(self) -> None:
        """Block the host script until the row start of all ranks: all that is under way on any of them ends, and then
        the machine is as at time 0. Tensors that the script can reach stay where they are.

        Raises:
            IpcqInUse: while a message was not received.
        """
        for work in self._queue.unfinished():
            work.wait()
        self._start_together("a row start", is_row=True)
        self._sip.check_row_start()
        for group in self._groups.live():
            if isinstance(group, ProcessGroup):
                self._runs_of_groups.close(group)
                self._pairs.close(group)
                group.rows += 1
        self._sip.begin_row(self._queue.host_task().span)
        self._queue.space.begin_row()

    def count_from_here(self, iterations: int) -> None:
        """What is used from here on belongs to the next run that is recorded, of so many iterations."""
        self._sip.usage.mark(iterations)

    def record(
        self,
        collective: Collective,
        call: Call,
        last: Work,
        times: Sequence[WorkTimes],
        wrong: Mismatch | None = None,
    ) -> None:
        """Add a completed collective to the records, by its last iteration and the times of those that count."""
        self.records.add(collective, call, last, times, wrong)


def _process_group(group: object) -> ProcessGroup:
    """The argument of a call that needs a process group, checked.

    Raises:
        ValueError: for anything else.
    """
    if not isinstance(group, ProcessGroup):
        raise ValueError(f"{group!r} is no group; give what new_group returns")
    return group
