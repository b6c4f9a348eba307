"""``torch.distributed`` of one rank: process groups, collectives that run as kernels, and messages between two ranks.

Ranks are SIPs. A collective launches a kernel on PEs of this SIP, and the host script waits in simulated time until all
kernels have ended. A message launches a kernel on both ranks. ``init_process_group`` takes no IPCQ settings: algorithm,
buffers and wiring are set in the config (ADR-0023 D10).
"""

import weakref
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sipsim.chips.ahbm.collectives.catalog import AUTO
from sipsim.chips.ahbm.collectives.queue_dump import pointer_dump
from sipsim.chips.ahbm.collectives.wirings import ProcessGroup, turn
from sipsim.chips.ahbm.host.layout import DPPolicy, whole
from sipsim.chips.ahbm.host.process_groups import (
    GroupHandle,
    GroupLauncher,
    GroupMember,
    NonMember,
    ProcessGroups,
    check_pes,
)
from sipsim.chips.ahbm.host.records import RunRecords
from sipsim.chips.ahbm.host.stream import Stream, WeakTensors, Work
from sipsim.chips.ahbm.host.tensor import as_one, device_tensor
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.api.bridge import host_call
from sipsim.collectives.call import GROUPS, WORLD, Call, DeviceTensor, GroupCall, OpenCall, check_rows
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES, INTERCUBE, Collective
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import note


class P2POp(NamedTuple):
    """Message of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``; ``peer`` is a rank of the run."""

    op: Callable[..., Any]
    tensor: DeviceTensor
    peer: int
    group: ProcessGroup | None = None
    tag: int = 0


P2POps = Sequence[P2POp]
Tensors = Any
"""A tensor, a list of tensors that a collective treats as one, or None on a rank without a tensor."""


def kernel_parameters(collective: Collective) -> tuple[str, ...]:
    """Return the names of a kernel's first arguments, for messages."""
    tensors = ("the tensor's address",) if collective.in_place else ("the source's address", "the result's address")
    return (*tensors, "the root") if collective.has_root else tensors


class WorldGroup:
    """``torch.distributed.group``: ``WORLD`` is the group of all ranks after ``init_process_group``, else None."""

    def __init__(self, world: Callable[[], GroupHandle | None]) -> None:
        self._world = world

    @property
    def WORLD(self) -> GroupHandle | None:
        """The group of all ranks, or None."""
        return self._world()


def _check_parts(name: str, rows: list[int], total_rows: int, size: int) -> None:
    if len(rows) != size or sum(rows) != total_rows or len(set(rows)) > 1:
        raise ValueError(
            f"all_to_all_single: {name}_split_sizes={rows}: give {size} equal numbers of rows, one per rank, "
            f"{total_rows} rows in total"
        )


class Row:
    """Context manager of :meth:`Distributed.row`. ``begin(name)``: called to wait for the row start."""

    def __init__(self, name: str, records: RunRecords, begin: Callable[[str], None]) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(f"row({name!r}): give the row's name as a line of text")
        self._name = name
        self._records = records
        self._begin = begin

    def __enter__(self) -> None:
        name, records = self._name, self._records
        if records.row is not None:
            raise ValueError(f"row({name!r}) is inside row({records.row!r}); end row({records.row!r}) first")
        self._begin(name)
        records.row = name

    def __exit__(self, *_error: Any) -> None:
        self._records.row = None


BACKEND = "ahbm"


class ReduceOp:
    """Operators of reductions, by their PyTorch names."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "prod"
    AVG = "avg"


class Distributed:
    """``torch.distributed`` of one rank."""

    ReduceOp = ReduceOp
    P2POp = P2POp
    GroupMember = GroupMember
    _token: Any = None
    _device: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, sip: Sip, stream: Stream, recorded_io_dir: str) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._stream = stream
        self.bridge = stream.bridge
        self._world = sip.plan.world.on_sip(sip.sip)
        self._places = self._world.places_on(sip.sip)
        self._initialized = False
        self._groups = ProcessGroups(sip.plan, sip.sip, self._note_group)
        self._world_group: GroupHandle | None = None
        self.records = RunRecords(sip, recorded_io_dir)
        self._launcher = GroupLauncher(sip, stream, self.records, self._note_call)
        self.calls: list[GroupCall] = []
        self._open_row: OpenCall | None = None
        self.group = WorldGroup(lambda: self._world_group)
        self._has_noted_meaning = False

    def init_process_group(self, backend: str = BACKEND, **_pytorch_arguments: object) -> None:
        """Join the process group of all SIPs; PyTorch's other arguments are accepted and ignored.

        Raises:
            ValueError: for another backend, or a second call.
        """
        if backend != BACKEND:
            raise ValueError(f"backend {backend!r} is not available; allowed: {BACKEND!r}")
        if self._initialized:
            raise ValueError("init_process_group was called twice; call it once, or destroy_process_group before")
        self._initialized = True
        self._world_group = self._groups.make(None)

    @host_call
    def new_group(
        self, ranks: Sequence[int] | None = None, *, pes: Sequence[int] = (), **_pytorch_arguments: object
    ) -> GroupHandle:
        """Make a group of ``ranks`` in this order, or of all ranks. All ranks of the run make these calls in one order.

        On a rank outside of the group the result equals ``GroupMember.NON_GROUP_MEMBER``; only
        ``destroy_process_group`` takes it. ``pes``: PEs of each cube that may work for the group, or empty for all.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: for ranks that do not exist or are named twice.
            ConfigError: when a SIP has no room for another group's rings.
        """
        self._check_initialized()
        return self._groups.make(ranks, pes)

    @host_call
    def destroy_process_group(self, group: GroupHandle | None = None) -> None:
        """Wait for a group's collectives, then free its rings; all ranks of the run make this call, in one order.

        If ``group`` is None or the group of all ranks, destroy all groups.

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
                self._launcher.close(each)
            self._groups.destroy(each)
        if leaves:
            self._initialized, self._world_group = False, None

    def is_initialized(self) -> bool:
        """Return whether this rank has joined the process group of all SIPs and has not left this group."""
        return self._initialized

    def get_rank(self, group: GroupHandle | None = None) -> int:
        """Return this SIP's rank in the run, or its rank in ``group``; -1 if the SIP is not in the group."""
        if group is None:
            return self._sip.sip
        return -1 if isinstance(group, NonMember) else _process_group(group).group.sips.index(self._sip.sip)

    @host_call
    def pointer_dump(self) -> str:
        """Return this SIP's queue pairs as text, each with its four pointers and its receive addresses."""
        return pointer_dump(self._sip)

    def algorithm_name(self) -> str:
        """Return the name of the algorithm that ``ccl.yaml`` selects."""
        return self._world.algorithm.name

    def get_world_size(self, group: GroupHandle | None = None) -> int:
        """Return the number of SIPs in the run, or of ranks in ``group``; -1 if this SIP is not in the group."""
        if group is None:
            return self._plan.system.n_sips
        return -1 if isinstance(group, NonMember) else _process_group(group).group.size

    def is_intercube(self, tensor: DeviceTensor) -> bool:
        """Return whether ``all_reduce`` of a tensor, called without a group and an algorithm, is ``intercube``.

        This holds for a tensor with a row per cube under ``defaults.all_reduce: intercube``, and for every tensor if
        the config names a user's kernel that is wired before the run. Rank 0 prints a note once where a reader of the
        script may expect the other meaning.
        """
        device_tensor("all_reduce", tensor)
        wired, is_set = self._plan.algorithm, self._plan.resolved.ccl.defaults.all_reduce == "intercube"
        is_users_kernel = wired.is_users and not wired.is_schedule
        if not is_set and is_users_kernel:
            self._note_meaning(
                f"all_reduce runs algorithm {wired.name} of the config, a kernel of yours that is wired "
                'before the run; for an elementwise all_reduce over ranks pass algorithm="auto"'
            )
        elif not is_set and self._has_row_per_cube(tensor):
            self._note_meaning(
                "all_reduce of a tensor with a row per cube is elementwise over ranks, as in PyTorch; for the "
                "sum of all rows of all ranks (ADR-0032) call intercube_all_reduce, or pass "
                "--set defaults.all_reduce=intercube"
            )
        return is_users_kernel or (is_set and self._has_row_per_cube(tensor))

    def _note_meaning(self, line: str) -> None:
        if not self._has_noted_meaning and not self._sip.sip:
            note(line)
        self._has_noted_meaning = True

    def _has_row_per_cube(self, tensor: DeviceTensor) -> bool:
        """Return whether a tensor has a row on the lead PE of each cube (ADR-0032 D2), or the layout of the algorithm
        that is wired before the run.
        """
        cubes, dp = self._plan.system.n_cubes, tensor.dp
        if cubes == 1 or dp.num_cubes != cubes:
            return False
        as_adr = (dp.cube, dp.num_pes, tensor.shape[0]) == ("row_wise", 1, cubes)
        return as_adr or (dp.cube, dp.pe) == self._plan.algorithm.layout

    def all_gather(
        self,
        tensor_list: Tensors,
        tensor: DeviceTensor,
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy all ranks' tensors, in rank order, into ``tensor_list``: a list with a tensor per rank, or one tensor.

        All collectives raise RuntimeError before ``init_process_group``, and ValueError for tensors that do not fit.
        """
        return self.run_collective("all_gather", Call(tensor, tensor_list), async_op, group, algorithm, pes)

    def all_reduce(
        self,
        tensor: DeviceTensor,
        op: str = "sum",
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Combine each element of ``tensor`` over the ranks of a group, in place; shape and layout are free.

        Without a group and an algorithm, the config may give the call the meaning of ``intercube``, as in scripts of
        ADR-0032 (``defaults.all_reduce``, or a user's kernel as ``defaults.algorithm``).
        """
        name = INTERCUBE if group is None and not algorithm and self.is_intercube(tensor) else "all_reduce"
        return self.run_collective(name, Call(tensor, tensor, op), async_op, group, algorithm, pes)

    def all_to_all(
        self,
        output_list: Tensors,
        input_list: Tensors,
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy this rank's part of rank ``i``'s input into part ``i`` of ``output_list``; both are lists or tensors."""
        return self.run_collective("all_to_all", Call(input_list, output_list), async_op, group, algorithm, pes)

    def broadcast(
        self,
        tensor: DeviceTensor,
        src: int = 0,
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy the tensor of rank ``src`` of the run into the tensors of all other ranks of the group."""
        call = Call(tensor, tensor, values=(src,))
        return self.run_collective("broadcast", call, async_op, group, algorithm, pes)

    def gather(
        self,
        tensor: DeviceTensor,
        gather_list: Tensors = None,
        dst: int = 0,
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy all ranks' tensors into ``gather_list`` (a list or a tensor) of rank ``dst``; other ranks give None."""
        call = Call(tensor, gather_list, values=(dst,))
        return self.run_collective("gather", call, async_op, group, algorithm, pes)

    def intercube_all_reduce(self, tensor: DeviceTensor, op: str = "sum", async_op: bool = False) -> Work | None:
        """Set every row (one per cube) of every rank to the sum of all rows of all ranks (ADR-0032)."""
        return self.run_collective(INTERCUBE, Call(tensor, tensor, op), async_op)

    def reduce(
        self,
        tensor: DeviceTensor,
        dst: int = 0,
        op: str = "sum",
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Combine all ranks' tensors into the tensor of rank ``dst``; the other tensors do not change."""
        call = Call(tensor, tensor, op, (dst,))
        return self.run_collective("reduce", call, async_op, group, algorithm, pes)

    def reduce_scatter(
        self,
        output: DeviceTensor,
        input_list: Tensors,
        op: str = "sum",
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy this rank's part of the combined inputs into ``output``; ``input_list``: list or tensor."""
        return self.run_collective("reduce_scatter", Call(input_list, output, op), async_op, group, algorithm, pes)

    def scatter(
        self,
        tensor: DeviceTensor,
        scatter_list: Tensors = None,
        src: int = 0,
        group: GroupHandle | None = None,
        async_op: bool = False,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Work | None:
        """Copy this rank's part of ``scatter_list`` (a list or a tensor) of rank ``src`` into ``tensor``."""
        call = Call(scatter_list, tensor, values=(src,))
        return self.run_collective("scatter", call, async_op, group, algorithm, pes)

    def collective(self, name: str) -> Callable[..., Work | None]:
        """Return any collective, such as a user's, as a function of ``(output, input, root=0, op="", group=None,
        async_op=False, algorithm="", pes=())``. If ``op`` is empty, it is the collective's first.
        A dotted name is a module that defines a collective of this name.

        Raises:
            UnknownName: when the collective does not exist.
        """
        semantics = COLLECTIVES.get(name)

        def run(
            output: Tensors,
            input: Tensors,  # noqa: A002
            root: int | None = None,
            op: str = "",
            group: GroupHandle | None = None,
            async_op: bool = False,
            algorithm: str = "",
            pes: Sequence[int] = (),
        ) -> Work | None:
            values = (root or 0,) if semantics.has_root or root is not None else ()
            call = Call(input, output, op or (semantics.ops or (NO_OP,))[0], values)
            return self.run_collective(name, call, async_op, group, algorithm, pes)

        return run

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
        """Launch a collective with a result row; wait for its end unless ``async_op``. Non-members get None.

        Lists of tensors in the call become one tensor. ``pes``: PEs of each cube that may work; if empty, the group's.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: for a call that the collective refuses.
            TypeError: for an ``algorithm`` that is not a name, or tensors that are not on the device.
        """
        if isinstance(group, NonMember):
            return None
        if not isinstance(algorithm, str):
            raise TypeError(f"{name}: algorithm={algorithm!r}: give the name of an algorithm, or auto")
        call = call._replace(collective=COLLECTIVES.get(name))
        call = call._replace(source=as_one(name, call.source), result=as_one(name, call.result))
        work = self.start_collective(call, group, algorithm, check_pes(self._plan, pes), is_reported=True)
        return _waited(work, async_op)

    @host_call
    def start_collective(
        self,
        call: Call,
        group: GroupHandle | None = None,
        algorithm: str = "",
        pes: tuple[int, ...] = (),
        name: str = "",
        is_reported: bool = False,
    ) -> Work:
        """Launch the kernel of a collective. ``is_reported``: the launch makes a result row of its own. ``name``: name
        of a launch that counts for no result row, such as a barrier; else empty.
        """
        collective = call.collective
        assert collective is not None
        member = self._member(collective.name, None if collective.per_cube else group)
        work = Work(self._stream, name or collective.name, call=call, counts_for_row=not name, is_reported=is_reported)
        # Numbered at its start, not here: an earlier collective may still write to the tensor, and has no number yet.
        work.on_start = None if name else self.records.on_start
        if is_reported:
            work.on_end, work.outputs = self.records.on_end, WeakTensors(call.result)
        if collective.per_cube:
            self._launch_wired(work, collective, member, group)
        else:
            self._launcher.collective(work, member, algorithm, pes)
        return work

    def _member(self, what: str, group: GroupHandle | None) -> ProcessGroup:
        """Return ``group``, or the group of all ranks if None; raise ValueError if this rank is not in the group."""
        self._check_initialized()
        chosen = self._world_group if group is None else group
        if isinstance(chosen, ProcessGroup) and not self._groups.is_live(chosen):
            raise ValueError(f"{what}: {chosen!r} was destroyed; use a group before its destruction")
        if not isinstance(chosen, ProcessGroup):
            raise ValueError(f"{what}: {chosen!r} is no group of this rank; give a group that contains this rank")
        return chosen

    def _launch_wired(
        self, work: Work, collective: Collective, everyone: ProcessGroup, group: GroupHandle | None
    ) -> None:
        """Launch the algorithm that was wired before the run, on all ranks; ``group``: the argument of the call."""
        if group is not None and group is not self._world_group:
            raise ValueError(f"{collective.name} runs on all SIPs; leave group out, or call another collective")
        if reason := self._plan.why_not_wired:
            raise ValueError(f"{collective.name}: {reason}")
        system, wired, call = self._plan.system, self._world, work.call
        check_rows(collective, call, system.n_sips, system.n_cubes, wired.algorithm.layout)
        wired.check_holders((tensor.dp for tensor in call.tensors()), self._sip.sip)
        extra_args = wired.kernel_args(system, self._sip.sip, call.n_elem())
        wired.algorithm.check_takes(extra_args, kernel_parameters(collective))
        larger, details = call.larger_tensor(), ", ".join(map(str, (call.op, *call.values)))
        everyone.calls += 1
        work.call = call._replace(
            sips=everyone.group.sips,
            number=everyone.calls,
            algorithm=wired.algorithm.name,
            text=f"{collective.name} of {larger.numel()} {larger.dtype} ({details})",
            elements=larger.numel(),
        )
        self._note_call(work.call)
        self._stream.launch(work, wired.algorithm.kernel, (*call.tensors(), *call.values, *extra_args), self._places)

    def _note_call(self, call: Call) -> None:
        nbytes = call.larger_tensor().nbytes if call.collective is None else 0
        self.calls.append(GroupCall(call.text, call.group, () if call.group == WORLD else call.sips, nbytes))

    def _note_group(self, what: str) -> None:
        self.calls.append(GroupCall(what, GROUPS))

    def _check_initialized(self) -> None:
        if not self._initialized:
            raise RuntimeError("call torch.distributed.init_process_group(backend='ahbm') first")

    @host_call
    def start_together(self) -> None:
        """Block the host script until all ranks have made this call; all continue at one simulated time."""
        self._start_together("the common start of an iteration")

    def _start_together(self, what: str, is_row: bool = False) -> None:
        host = self._stream.host_task()

        def start(span: int) -> None:
            host.span = span
            host.resume()

        self._sip.barrier.enter(start, host.span, is_row)
        host.wait(what)

    def row(self, name: str) -> Row:
        """Context manager ``with torch.ahbm.row(name):``. All ranks enter it at one simulated time, with the machine in
        its state of time 0 (:meth:`begin_row`). Results give ``name`` as the row of the collectives inside.

        Raises:
            ValueError: for a name that is not a line of text, or inside another row.
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
        """Return the collectives, messages and row starts that have not ended, in order."""
        return [*self._stream.open_calls(), *filter(None, [self._open_row])]

    @host_call
    def begin_row(self) -> None:
        """Block the host script until all ranks have made this call and all launches have ended; then reset the
        machine to its state of time 0. Tensors that the script can reach stay where they are.

        Raises:
            IpcqInUse: when a message was sent and not received.
        """
        for work in self._stream.unfinished():
            work.wait()
        self._start_together("a row start", is_row=True)
        self._sip.check_row_start()
        for group in self._groups.live():
            if isinstance(group, ProcessGroup):
                self._launcher.close(group)
                group.rows += 1
        self._sip.begin_row(self._stream.host_task().span)
        self._stream.space.begin_row()

    def count_from_here(self, iterations: int) -> None:
        """Reset the usage counters: usage from now on belongs to the next record, of ``iterations`` iterations."""
        self._sip.usage.mark(iterations)

    def all_gather_into_tensor(self, output_tensor: Any, input_tensor: Any, *more: Any, **how: Any) -> Work | None:
        """``all_gather`` into one tensor, in the order of ranks."""
        return self.all_gather(output_tensor, input_tensor, *more, **how)

    def reduce_scatter_tensor(
        self,
        output: Any,
        input: Any,  # noqa: A002
        *more: Any,
        **how: Any,
    ) -> Work | None:
        """``reduce_scatter`` of one tensor whose parts are in the order of ranks."""
        return self.reduce_scatter(output, input, *more, **how)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,  # noqa: A002
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: GroupHandle | None = None,
        *more: Any,
        **how: Any,
    ) -> Work | None:
        """``all_to_all`` of one tensor in equal parts, in the order of ranks. Split sizes: rows of each rank's part.

        Raises:
            ValueError: for split sizes that differ, are not one per rank, or do not add up to the tensor's rows.
        """
        size = self.get_world_size(group)
        for name, tensor, rows in (("output", output, output_split_sizes), ("input", input, input_split_sizes)):
            if rows and not isinstance(group, NonMember):
                _check_parts(name, list(rows), tensor.shape[0], size)
        return self.all_to_all(output, input, group, *more, **how)

    def set_device(self, device: Any) -> None:
        """Set the device that makes the tensors of barriers; the reference is weak."""
        self._device = weakref.ref(device)

    @host_call
    def barrier(self, group: GroupHandle | None = None, async_op: bool = False) -> Work | None:
        """Wait until all ranks of a group have made this call: an all-reduce of one element, without a result row.

        Raises:
            RuntimeError: before ``init_process_group``.
        """
        if isinstance(group, NonMember):
            return None
        if self._token is None:
            self._token = self._device().new_tensor((1,), DTYPES["i32"], DPPolicy(num_cubes=1))
        call = Call(self._token, self._token, "sum", collective=COLLECTIVES.get("all_reduce"))
        return _waited(self.start_collective(call, group, AUTO, name="barrier"), async_op)

    def get_process_group_ranks(self, group: GroupHandle | None = None) -> list[int]:
        """Return a group's ranks of the run, in the group's order; an empty list if this rank is not in the group."""
        if group is None:
            return list(range(self.get_world_size()))
        return [] if isinstance(group, NonMember) else list(group.group.sips)

    def get_group_rank(self, group: GroupHandle, global_rank: int) -> int:
        """Convert a rank of the run to a rank in a group.

        Raises:
            ValueError: when the rank is not in the group.
        """
        ranks = self.get_process_group_ranks(group)
        if global_rank not in ranks:
            raise ValueError(f"rank {global_rank} is not in {group!r}; name a rank of the group")
        return ranks.index(global_rank)

    def get_global_rank(self, group: GroupHandle, group_rank: int) -> int:
        """Convert a rank in a group to a rank of the run.

        Raises:
            ValueError: when the group has no such rank.
        """
        ranks = self.get_process_group_ranks(group)
        if not 0 <= group_rank < len(ranks):
            raise ValueError(f"{group!r} has no rank {group_rank}; its ranks are 0 to {len(ranks) - 1}")
        return ranks[group_rank]

    def new_subgroups(
        self, group_size: int | None = None, group: GroupHandle | None = None, **how: Any
    ) -> tuple[GroupHandle, list[GroupHandle]]:
        """Split all ranks, or a group's, into groups of ``group_size``; return (this rank's group, all groups).

        Every rank of the run makes this call; on a rank outside of ``group`` the first result is ``NON_GROUP_MEMBER``.

        Raises:
            TypeError: for a size that is not a whole number.
            ValueError: when ``group_size`` does not divide the number of ranks.
        """
        size = 0 if group_size is None else whole("new_subgroups: group_size", group_size)
        ranks = list(group.sips) if isinstance(group, NonMember) else self.get_process_group_ranks(group)
        if size < 1 or not ranks or len(ranks) % size:
            raise ValueError(f"new_subgroups: group_size={group_size}: give a divisor of {len(ranks)} ranks")
        groups = [self.new_group(ranks[start : start + size], **how) for start in range(0, len(ranks), size)]
        mine = (each for each in groups if not isinstance(each, NonMember))
        return next(mine, GroupMember.NON_GROUP_MEMBER), groups

    @host_call
    def isend(self, tensor: DeviceTensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> Work:
        """Send a tensor to rank ``dst`` of the run, whose receive has a tensor of the same size, type and layout.

        Messages from one rank to another arrive in the order of their sends; their tags must agree.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: for a rank that is not in the group, or this rank itself.
        """
        return self._launcher.message(tensor, self._member("isend", group), dst, tag, sends=True)

    @host_call
    def irecv(
        self, tensor: DeviceTensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0
    ) -> Work:
        """Receive a tensor from rank ``src`` of the run, the peer of :meth:`isend`.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: without ``src``, or for a rank that is not in the group, or this rank itself.
        """
        if src is None:
            raise ValueError("irecv: name the sender, src; a receive from any rank is not available")
        return self._launcher.message(tensor, self._member("irecv", group), src, tag, sends=False)

    def send(self, tensor: DeviceTensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
        """Send as :meth:`isend` does, and wait until the whole tensor has left."""
        self.isend(tensor, dst, group, tag).wait()

    def recv(
        self, tensor: DeviceTensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0
    ) -> int | None:
        """Receive as :meth:`irecv` does, wait for the end, and return the sender's rank."""
        self.irecv(tensor, src, group, tag).wait()
        return src

    def batch_isend_irecv(self, p2p_op_list: P2POps) -> list[Work]:
        """Start messages in an order that cannot deadlock, however ranks list them; return their works, as listed.

        Each rank starts its messages in the order of :func:`sipsim.chips.ahbm.collectives.wirings.turn`, and messages
        of one turn in the order of groups, then as listed. Two messages of one turn with a common rank have both
        ranks in common, so both ranks start these messages in the same order. The first message that has not ended
        therefore waits for no other message, on whichever PEs it runs, and so it ends.

        Raises:
            TypeError: for an operation that is neither ``isend`` nor ``irecv``.
        """
        if not isinstance(p2p_op_list, list | tuple) or not all(isinstance(each, P2POp) for each in p2p_op_list):
            raise TypeError(f"batch_isend_irecv: {p2p_op_list!r}: give a list of P2POp")
        rank, ordered = self.get_rank(), {}
        for index, each in enumerate(p2p_op_list):
            name = getattr(each.op, "__name__", "")
            if name not in ("isend", "irecv"):
                raise TypeError(f"batch_isend_irecv: {each.op!r} is no operation of P2POp; give isend or irecv")
            group = self._member("batch_isend_irecv", each.group)
            src, dst = (rank, each.peer) if name == "isend" else (each.peer, rank)
            ordered[turn(src, dst, group.group.system.n_sips), group.number, index] = each
        started = {
            index: each.op(each.tensor, each.peer, each.group, each.tag)
            for (_, _, index), each in sorted(ordered.items(), key=itemgetter(0))
        }
        return [started[index] for index in range(len(p2p_op_list))]


def _waited(work: Work, async_op: bool) -> Work | None:
    """Return the work if ``async_op``; else wait for the end of the work and return None."""
    if async_op:
        return work
    work.wait()
    return None


def _process_group(group: object) -> ProcessGroup:
    """Return ``group`` if it is a process group.

    Raises:
        ValueError: for anything else.
    """
    if not isinstance(group, ProcessGroup):
        raise ValueError(f"{group!r} is no process group; give a return value of new_group")
    return group
