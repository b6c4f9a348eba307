"""Operations over a fabric: the program of one chip, with a worker for each link and direction, and its output."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from sipsim.chips.tensix.ccl.calls import Calls
from sipsim.chips.tensix.ccl.participants import TOPOLOGIES
from sipsim.chips.tensix.ccl.placement import MemoryConfig
from sipsim.chips.tensix.ccl.schedules import (
    all_to_all,
    broadcast,
    copies,
    direct_reduce_scatter,
    line_all_gather,
    line_reduce_scatter,
    mixed,
    ring_all_gather,
    ring_reduce_scatter,
)
from sipsim.chips.tensix.ccl.tensors import (
    KEPT_BYTES,
    KIB,
    SEMAPHORE_BYTES,
    PageGroup,
    Part,
    Store,
    Tensor,
    pieces,
    segments_of,
)
from sipsim.chips.tensix.ccl.workers import (
    SIDES,
    CallPlan,
    Cut,
    PacketOp,
    Place,
    Semaphores,
    Worker,
    adder,
    reader,
    writer,
)
from sipsim.chips.tensix.fabric.connection import FabricEndpoint
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.fabric.packet import Direction
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams
from sipsim.chips.tensix.programs import ComputeConfig, DataMovementConfig, KernelSpec, Program
from sipsim.core.errors import KernelMisuse

READER, WRITER = DataMovementConfig(processor=1, noc=0), DataMovementConfig(processor=0, noc=1)
Moves = Callable[[int, int], tuple[Part, Part] | None]
"""A function from two positions to the segments that the first chip sends to the second one, and their places there."""


class FabricOperations:
    """Operations of one chip over fabrics. Each method enqueues the chip's program and returns the output.

    ``l1_base``: the first address of a worker that programs may use.
    """

    def __init__(self, chip: Any, calls: Calls, store: Store, l1_base: int) -> None:
        self._chip = chip
        self._calls = calls
        self._store = store
        self._base = l1_base
        self._ccl: CclParams = chip.plan.params.ccl
        self._semaphores = int(chip.plan.params.tensix.l1_KiB) * KIB - KEPT_BYTES
        self._endpoints: dict[tuple[Fabric, int, Direction], FabricEndpoint] = {}
        self._counts: dict[Core, dict[int, int]] = {}

    def all_gather(
        self,
        tensor: Tensor,
        dim: int,
        config: MemoryConfig | None,
        fabric: Fabric,
        is_both: bool,
        workers: int | None,
        chunks: int | None,
    ) -> Tensor:
        """Gather along ``dim``. ``is_both``: whether packets of a ring take both directions. ``workers``: per link,
        None for the chip's default. ``chunks``: packets between increments, None for the default.
        """
        call = self._call_plan(fabric, tensor, is_both)
        size = call.place.size
        dim, output = self._store.gathered(tensor, dim, config, size)
        source, target = segments_of((tensor, output), dim, 1)

        @cache
        def cut(number: int) -> list[PageGroup]:
            parts = (source, source.all()), (target, target.slice(dim, number, size))
            return pieces(parts, call.packet_bytes)

        if call.place.is_ring:
            ring_all_gather(call, cut, self._chunks(call, cut, chunks))
        else:
            line_all_gather(call, cut)
        self._run(call, tensor, cut(call.place.position), workers, fabric)
        return output

    def reduce_scatter(
        self,
        tensor: Tensor,
        dim: int,
        config: MemoryConfig | None,
        fabric: Fabric,
        is_both: bool = True,
        is_direct: bool | None = None,
        group: int = 0,
        chunks: int | None = None,
    ) -> Tensor:
        """Sum slices along ``dim``. ``is_direct``: whether slices go straight to the owners. ``group``: packets of a
        slice before the next slice, 0 for all. For other arguments see :meth:`all_gather`.
        """
        call = self._call_plan(fabric, tensor, is_both)
        place = call.place
        dim, output = self._store.scattered(tensor, dim, config, place.size)
        if is_direct is None:
            is_direct = place.is_ring and is_both and tensor.nbytes <= self._ccl.direct_bytes
        if is_direct:
            self._direct(call, tensor, output, dim)
        else:
            cut = self._reducing(call, tensor, output, dim)
            chunks = chunks or self._most_chunks(call)
            if place.is_ring:
                ring_reduce_scatter(call, cut, chunks, group)
            else:
                line_reduce_scatter(call, cut, chunks)
        self._run(call, tensor, (), 1, fabric)
        return output

    def broadcast(self, tensor: Tensor, config: MemoryConfig | None, fabric: Fabric, root: int) -> Tensor:
        """Send the whole tensor of the chip at position ``root`` to all chips."""
        call = self._call_plan(fabric, tensor, True)
        output = self._store.like(tensor, tensor.shape, 1, config)
        source, target = segments_of((tensor, output), 0, 1)
        groups = pieces(((source, source.all()), (target, target.all())), call.packet_bytes)
        broadcast(call, groups, root)
        self._run(call, tensor, groups if fabric.position == root else (), 1, fabric)
        return output

    def move(
        self, tensor: Tensor, output: Tensor, moves: Moves, fabric: Fabric, is_both: bool = True, workers: int = 1
    ) -> Tensor:
        """Move segments of tensors into outputs, between each two chips. A chip sends to near and far ones in turn."""
        call = self._call_plan(fabric, tensor, is_both)
        position = call.place.position

        @cache
        def cut(origin: int, to: int) -> list[PageGroup]:
            parts = moves(origin, to)
            return pieces(parts, call.packet_bytes) if parts else []

        all_to_all(call, lambda to: cut(position, to), lambda origin: cut(origin, position))
        self._run(call, tensor, cut(position, position), workers, fabric)
        return output

    def _reducing(self, call: CallPlan, tensor: Tensor, output: Tensor, dim: int) -> Cut:
        size, scratch = call.place.size, partial(self._store.scratch, fabric=call.fabric)
        partials = [scratch(name, like=tensor, slices=size) for name in ("forward", "backward")]
        every = tensor, *partials, scratch("scratch", like=output, slices=1), output
        *cuts, handed, target = segments_of(every, dim, size)

        @cache
        def cut(number: int) -> list[PageGroup]:
            part = cuts[0].slice(dim, number, size)
            whole = ((each, each.all()) for each in (handed, target))
            return pieces([*((each, part) for each in cuts), *whole], call.packet_bytes)

        return cut

    def _direct(self, call: CallPlan, tensor: Tensor, output: Tensor, dim: int) -> None:
        size = call.place.size
        scratch = self._store.scratch("inbox", call.fabric, tensor, size)
        source, inbox, target = segments_of((tensor, scratch, output), dim, size)
        each, count = target.all(), len(target.all())
        boxes = [(inbox, range(number * count, (number + 1) * count)) for number in range(size)]

        @cache
        def cut(number: int) -> list[PageGroup]:
            return pieces([(source, source.slice(dim, number, size)), *boxes, (target, each)], call.packet_bytes)

        direct_reduce_scatter(call, cut)

    def _chunks(self, call: CallPlan, cut: Cut, chunks: int | None) -> int:
        """Return ``chunks`` or, if None, the default number of packets between increments of an all-gather's worker: at
        most half a slice, so that a relay begins before the whole slice has arrived.
        """
        if chunks is not None:
            return chunks
        place, most = call.place, self._most_chunks(call)
        packets = len(cut(0)) // call.num_links // (2 if place.is_ring and place.is_both else 1)
        return max(min(most, packets // 2), 1)

    def _most_chunks(self, call: CallPlan) -> int:
        """Return the packets between increments, a maximum except for reductions (CCL_bandwidth.md of tt-metal)."""
        return self._ccl.chunks_per_sync(call.place.is_ring)

    def _call_plan(self, fabric: Fabric, tensor: Tensor, is_both: bool) -> CallPlan:
        """Return a plan with a worker per direction of each parallel link, even for a direction without a router."""
        packet_bytes = min(self._ccl.packet_bytes, fabric.payload_bytes)
        if tensor.pages.is_tiled and tensor.pages.page_bytes > packet_bytes:
            what = f"{tensor}: its tiles are {tensor.pages.page_bytes} B, more than a packet of {packet_bytes} B"
            rows = "layout='row_major', or " if tensor.dtype.has_rows else ""
            raise KernelMisuse(f"{what}; give {rows}longer packets (payload_bytes, ccl.packet_bytes)")
        if fabric.topology not in TOPOLOGIES:
            raise KernelMisuse(f"the fabric has topology {fabric.topology}; operations need {' or '.join(TOPOLOGIES)}")
        is_ring = fabric.topology == "ring"
        place = Place(fabric.position, fabric.size, is_ring, is_both or not is_ring)
        call = CallPlan(place, fabric.num_links, packet_bytes, fabric.number, {})
        words = self._words(fabric)
        for link in range(fabric.num_links):
            for number, side in enumerate(SIDES):
                core = self._chip.plan.floor_plan.workers[2 * link + number]
                counts = self._counts.setdefault(core, {})
                call.workers[link, side] = Worker(link, side, core, words, counts)
        if self._ccl.has_barrier:
            call.add_start_barrier()
        return call

    def _words(self, fabric: Fabric) -> Semaphores:
        """Return the semaphores of a fabric.

        Raises:
            KernelMisuse: if a system has so many links that the semaphores of the fabric's number do not fit.
        """
        first = self._semaphores
        words = Semaphores.at(first, fabric.number)
        if words.end > first + SEMAPHORE_BYTES:
            what = f"a fabric whose first link is number {fabric.number} of the system has no room for the semaphores"
            raise KernelMisuse(f"{what} of operations ({SEMAPHORE_BYTES} B); open the fabric on chips of lower rank")
        return words

    def _run(self, call: CallPlan, tensor: Tensor, own: Sequence[PageGroup], count: int | None, fabric: Fabric) -> None:
        """Enqueue the program of a call. ``own``: page groups that this chip copies to the output. ``count``: workers
        per link, 1 or 2, where the second only copies; None for the chip's default.
        """
        program = Program(operation=self._calls.operation)
        for worker in call.workers.values():
            if worker.is_idle:
                continue
            mine = copies(call.share(own, worker.link)) if worker is self._copier(call, worker.link) else []
            if self._has_copier(mine, count):
                core = self._chip.plan.floor_plan.workers[2 * fabric.num_links + worker.link]
                helper = Worker(worker.link, worker.side, core, worker.words, {})
                helper.packets = mine
            else:
                helper, worker.packets = None, mixed(worker.packets, mine)
            self._add(program, worker, tensor, fabric)
            if helper is not None:
                self._add(program, helper, tensor, None)
            worker.settle()
        self._calls.enqueue(program)

    def _has_copier(self, mine: Sequence[PacketOp], count: int | None) -> bool:
        least = self._ccl.copier_bytes
        if count is None:
            count = 2 if least is not None and sum(each.nbytes for each in mine) >= least else 1
        return count > 1 and bool(mine)

    @staticmethod
    def _copier(call: CallPlan, link: int) -> Worker:
        return next(worker for (each, _), worker in call.workers.items() if each == link and not worker.is_idle)

    def _add(self, program: Program, worker: Worker, tensor: Tensor, fabric: Fabric | None) -> None:
        """Add the kernels of a worker to a program."""
        worker.set_up(self._ccl, self._base, tensor.dtype, self._endpoint(worker, fabric) if fabric else None)
        self._chip.declared.exclude(worker.core, range(self._semaphores, self._semaphores + SEMAPHORE_BYTES))
        program.add(KernelSpec(writer, worker.core, WRITER, (worker,), False))
        if worker.packets:
            program.add(KernelSpec(reader, worker.core, READER, (worker,), False))
        if worker.adds:
            program.add(KernelSpec(adder, worker.core, ComputeConfig(), (worker,), False))

    def _endpoint(self, worker: Worker, fabric: Fabric) -> FabricEndpoint | None:
        if worker.side not in fabric.ways():
            return None
        self._endpoints = {key: each for key, each in self._endpoints.items() if not key[0].has_ended}
        key = fabric, worker.link, worker.side
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = fabric.connect(worker.core, worker.side, worker.link)
        return endpoint
