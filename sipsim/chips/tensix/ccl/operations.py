"""Collective operations of a host script, with names as in ``ttnn``: the choice of workers, pages and fabric."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from sipsim.chips.tensix.arguments import Count, Natural, Within, checked, one_of, whole
from sipsim.chips.tensix.ccl.schedules import (
    all_to_all,
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
    Store,
    Tensor,
    dtype_of,
    from_pages,
    pieces,
    to_pages,
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
from sipsim.chips.tensix.durations import Operation, OperationFacts
from sipsim.chips.tensix.fabric.connection import FabricEndpoint
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.fabric.packet import Direction
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams
from sipsim.chips.tensix.programs import ComputeConfig, DataMovementConfig, KernelSpec, Program
from sipsim.collectives.call import PART, WORLD
from sipsim.collectives.reduction import NO_OP
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

READER, WRITER = DataMovementConfig(processor=1, noc=0), DataMovementConfig(processor=0, noc=1)
TOPOLOGIES = ("line", "ring")
REDUCTIONS, SUM = ("reduce_scatter", "all_reduce"), "sum"
MOST_WORKERS = 2
"""The most workers per link: one that sends, and one that copies."""


@checked("tt")
class Collectives:
    """Calls of a host script for the tensors of one chip and for collective operations. Operations are enqueued like
    programs. ``open_fabric``: ``tt.open_fabric``.
    """

    def __init__(self, chip: Any, l1_base: int, open_fabric: Callable[..., Fabric]) -> None:
        self._chip = chip
        self._params = chip.plan.params
        self._base = l1_base
        self._open_fabric = open_fabric
        self._store = Store(chip.plan.floor_plan, self._params, l1_base)
        self._fabrics: dict[tuple[str, int], Fabric] = {}
        self._endpoints: dict[tuple[int, int, Direction], FabricEndpoint] = {}
        self._counts: dict[Core, dict[int, int]] = {}
        self._tasks: list[Task] = []
        self._operation = Operation()

    # --- tensors --------------------------------------------------------------------------------------------------

    def tensor(self, array: "np.ndarray[Any, Any]", memory: str = "dram", slices: Count = 1) -> Tensor:
        """Make a tensor of this chip from an array, in ``memory``, ``dram`` or ``l1``. Each of ``slices`` along the
        first dimension begins a new run of adjacent pages, so that an operation can move a slice in whole runs.

        Raises:
            KernelMisuse: for an unknown element type or memory, or a tensor that does not fit.
        """
        if not isinstance(array, np.ndarray):
            raise KernelMisuse(f"a tensor is made from a NumPy array, not a {type(array).__name__}; give an array")
        tensor = self._store.make(array.shape, dtype_of(array), memory, slices)
        data, size = to_pages(array, tensor.pages), tensor.pages.page_bytes
        for page in range(tensor.pages.n_pages):
            core, address = tensor.place(page)
            self._chip.metal.write(core, address, data[page * size : (page + 1) * size])
        return tensor

    def to_numpy(self, tensor: Tensor) -> "np.ndarray[Any, Any]":
        """Wait until all kernels have ended, then return the elements of a tensor."""
        self._chip.wait_for_kernels()
        size = tensor.pages.page_bytes
        places = (tensor.place(page) for page in range(tensor.pages.n_pages))
        data = b"".join(self._chip.tiles.memory(core).read(address, size) for core, address in places)
        return from_pages(data, tensor.shape, tensor.dtype, tensor.pages)

    # --- operations -----------------------------------------------------------------------------------------------

    def all_gather(
        self,
        tensor: Tensor,
        dim: Within = 0,
        *,
        topology: str = "line",
        num_links: Count | None = None,
        bidirectional: bool = True,
        num_workers_per_link: Within | None = None,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue an all-gather: concatenate the chips' tensors along a dimension, in the order of the fabric's chips.
        Every chip of the fabric must make the same calls. The default ``fabric`` contains all chips.

        Raises:
            KernelMisuse: if an argument does not fit these chips or this tensor.
        """
        fabric = fabric or self._fabric(topology, num_links)
        output = self._gather(tensor, dim, fabric, bidirectional, num_workers_per_link, chunks_per_sync)
        return self._note(
            "all_gather", tensor, dim, output, fabric, bidirectional=bidirectional, chunks_per_sync=chunks_per_sync
        )

    def reduce_scatter(
        self,
        tensor: Tensor,
        dim: Within = 0,
        *,
        topology: str = "line",
        num_links: Count | None = None,
        bidirectional: bool = True,
        is_direct: bool | None = None,
        slice_packets: Natural = 0,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue a reduce-scatter: each chip gets one slice of the sum of all tensors. ``is_direct``: whether chips of
        a ring send slices straight to the owners; if None, only for small tensors. ``slice_packets``: packets of one
        slice that a ring worker forwards before the next slice, 0 for all. For other arguments see :meth:`all_gather`.
        """
        fabric = fabric or self._fabric(topology, num_links)
        output = self._scatter(tensor, dim, fabric, bidirectional, is_direct, slice_packets, chunks_per_sync)
        options = {"bidirectional": bidirectional, "is_direct": is_direct, "slice_packets": slice_packets}
        return self._note("reduce_scatter", tensor, dim, output, fabric, **options, chunks_per_sync=chunks_per_sync)

    def all_reduce(
        self,
        tensor: Tensor,
        dim: Within = 0,
        *,
        topology: str = "line",
        num_links: Count | None = None,
        bidirectional: bool = True,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue an all-reduce, which sums all tensors: a reduce-scatter along ``dim``, then an all-gather."""
        fabric = fabric or self._fabric(topology, num_links)
        scattered = self._scatter(tensor, dim, fabric, bidirectional, None, 0, chunks_per_sync)
        output = self._gather(scattered, dim, fabric, bidirectional, None, chunks_per_sync)
        return self._note(
            "all_reduce", tensor, dim, output, fabric, bidirectional=bidirectional, chunks_per_sync=chunks_per_sync
        )

    def all_to_all(
        self,
        tensor: Tensor,
        dim: Within = 0,
        *,
        topology: str = "line",
        num_links: Count | None = None,
        bidirectional: bool = True,
        num_workers_per_link: Within | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue an all-to-all: slice ``j`` of chip ``i`` becomes slice ``i`` of chip ``j``. A chip sends to near and
        far destinations in turn. For other arguments see :meth:`all_gather`.
        """
        fabric = fabric or self._fabric(topology, num_links)
        workers = _workers(num_workers_per_link)
        call = self._call_plan(fabric, tensor, bidirectional)
        position, size = call.place.position, call.place.size
        along = self._dim(tensor, dim, size)
        output = self._store.like(tensor, tensor.shape, size if along == 0 else 1)

        @cache
        def cut(source: int, to: int) -> list[PageGroup]:
            pages = tensor.pages
            parts = (tensor, pages.slice(along, to, size)), (output, pages.slice(along, source, size))
            return pieces(parts, call.packet_bytes)

        all_to_all(call, lambda to: cut(position, to), lambda source: cut(source, position))
        self._run(call, tensor, cut(position, position), workers or 1, fabric)
        return self._note("all_to_all", tensor, dim, output, fabric, bidirectional=bidirectional)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _gather(
        self, tensor: Tensor, dim: int, fabric: Fabric, is_both: bool, workers: int | None, chunks: int | None
    ) -> Tensor:
        workers = _workers(workers)
        call = self._call_plan(fabric, tensor, is_both)
        size, dim = call.place.size, self._dim(tensor, dim, 1)
        shape = list(tensor.shape)
        shape[dim] *= size
        output = self._store.like(tensor, shape, size if dim == 0 else 1)
        own = range(tensor.pages.n_pages)

        @cache
        def cut(number: int) -> list[PageGroup]:
            return pieces(((tensor, own), (output, output.pages.slice(dim, number, size))), call.packet_bytes)

        if call.place.is_ring:
            ring_all_gather(call, cut, self._chunks(call, cut, chunks))
        else:
            line_all_gather(call, cut)
        self._run(call, tensor, cut(call.place.position), workers, fabric)
        return output

    def _scatter(
        self,
        tensor: Tensor,
        dim: int,
        fabric: Fabric,
        is_both: bool,
        is_direct: bool | None,
        group: int,
        chunks: int | None,
    ) -> Tensor:
        call = self._call_plan(fabric, tensor, is_both)
        place, dim = call.place, self._dim(tensor, dim, fabric.size)
        shape = list(tensor.shape)
        shape[dim] //= place.size
        output = self._store.like(tensor, shape)
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

    def _fabric(self, topology: str, num_links: int | None) -> Fabric:
        """Return the fabric of all chips with this topology, which the first call opens.

        Raises:
            KernelMisuse: if the topology is neither a line nor a ring.
        """
        one_of("topology", topology, TOPOLOGIES)
        key = topology, num_links or 1
        if key not in self._fabrics:
            self._fabrics[key] = self._open_fabric(topology, None, key[1], payload_bytes=self._ccl.packet_bytes)
        return self._fabrics[key]

    def _note(self, name: str, tensor: Tensor, dim: int, result: Tensor, fabric: Fabric, **options: object) -> Tensor:
        """Log a call with the arguments that must be equal on all chips of the fabric, and return ``result``.

        The result's address is one of these arguments, since chips write into one another's results.
        """
        what = f"{name} of {'x'.join(map(str, tensor.shape))} {tensor.dtype}"
        slices = f"slices of {tensor.pages.slice_pages} pages"
        given = *(f"{option}={value}" for option, value in options.items()), slices
        place = f"from {tensor.memory} to 0x{result.base:x}"
        text = PART.join((what, f"dim={dim % len(tensor.shape)}", *given, place))
        is_of_all = fabric.size == self._chip.plan.system.n_sips
        self._chip.call_log.note(text, WORLD if is_of_all else fabric.number + 1, tuple(fabric.chips), self._tasks)
        self._tasks = []
        self._end_operation(name, tensor, result, fabric)
        return result

    def _end_operation(self, name: str, tensor: Tensor, result: Tensor, fabric: Fabric) -> None:
        """Give the facts of the call to its row of results."""
        call, larger = self._chip.call_log.calls[-1], max(tensor, result, key=lambda each: each.nbytes)
        number = self._chip.call_log.number(call.group)
        op = SUM if name in REDUCTIONS else NO_OP
        count, kind = larger.nbytes // larger.dtype.itemsize, f"{name}_{fabric.topology}"
        facts = name, kind, larger.dtype.name, op, count, larger.nbytes, call.group, number, tuple(fabric.chips)
        self._chip.durations.close(self._operation, OperationFacts(*facts))
        self._operation = Operation()

    @property
    def _ccl(self) -> CclParams:
        params: CclParams = self._params.ccl
        return params

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

    @staticmethod
    def _dim(tensor: Tensor, dim: int, slices: int) -> int:
        """Return a dimension, which may be counted from the end, as a number from 0 on.

        Raises:
            KernelMisuse: if the tensor has no such dimension, or the pages do not divide into ``slices``.
        """
        grid = tensor.pages.grid
        dim = whole(f"{tensor}: dim", dim, -len(grid), len(grid) - 1) % len(grid)
        if not tensor.pages.is_tiled and dim == len(grid) - 1:
            raise KernelMisuse(
                f"{tensor}: each row is a page, and operations do not cut pages; take another dimension than {dim}"
            )
        if grid[dim] % slices:
            raise KernelMisuse(f"{tensor}: {grid[dim]} pages along dimension {dim} cannot be cut into {slices} slices")
        return dim

    def _reducing(self, call: CallPlan, tensor: Tensor, output: Tensor, dim: int) -> Cut:
        size = call.place.size
        partials = [self._store.scratch(name, call.fabric, tensor, size) for name in ("forward", "backward")]
        scratch, pages = self._store.scratch("scratch", call.fabric, output, 1), range(output.pages.n_pages)

        @cache
        def cut(number: int) -> list[PageGroup]:
            part = tensor.pages.slice(dim, number, size)
            parts = (tensor, part), *((partial, part) for partial in partials), (scratch, pages), (output, pages)
            return pieces(parts, call.packet_bytes)

        return cut

    def _direct(self, call: CallPlan, tensor: Tensor, output: Tensor, dim: int) -> None:
        place, inbox = call.place, self._store.scratch("inbox", call.fabric, tensor, call.place.size)
        pages = range(output.pages.n_pages)

        def inbox_of(source: int) -> range:
            return range(source * len(pages), (source + 1) * len(pages))

        @cache
        def cut(number: int) -> list[PageGroup]:
            part = tensor.pages.slice(dim, number, place.size)
            return pieces(((tensor, part), (inbox, inbox_of(place.position)), (output, pages)), call.packet_bytes)

        @cache
        def source_of(source: int) -> list[PageGroup]:
            part = tensor.pages.slice(dim, place.position, place.size)
            return [
                each._replace(places=each.places[1:])
                for each in pieces(((tensor, part), (inbox, inbox_of(source)), (output, pages)), call.packet_bytes)
            ]

        direct_reduce_scatter(call, cut, source_of)

    def _call_plan(self, fabric: Fabric, tensor: Tensor, is_both: bool) -> CallPlan:
        """Return a plan with a worker per direction of each parallel link, even for a direction without a router."""
        packet_bytes = min(self._ccl.packet_bytes, fabric.payload_bytes)
        if tensor.pages.page_bytes > packet_bytes:
            what = f"{tensor}: its pages are {tensor.pages.page_bytes} B, more than a packet of {packet_bytes} B"
            raise KernelMisuse(f"{what}; give shorter rows, or longer packets (payload_bytes, ccl.packet_bytes)")
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
        if self._params.ccl.has_barrier:
            call.add_start_barrier()
        return call

    @property
    def _semaphores(self) -> int:
        """The first address of the semaphores of all fabrics."""
        return int(self._params.tensix.l1_KiB) * KIB - KEPT_BYTES

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
        program = Program(operation=self._operation)
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
        self._tasks += self._chip.launches.enqueue(program)

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
        key = id(fabric), worker.link, worker.side
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = fabric.connect(worker.core, worker.side, worker.link)
        return endpoint


def _workers(count: int | None) -> int | None:
    return None if count is None else whole("num_workers_per_link", count, 1, MOST_WORKERS)
