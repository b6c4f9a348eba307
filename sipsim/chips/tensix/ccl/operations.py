"""Collective operations of a host script, with names as in ``ttnn``: the choice of workers, pages and fabric."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from sipsim.chips.tensix.arguments import Count, Natural, Within, any_whole, checked, one_of, ranks, whole
from sipsim.chips.tensix.ccl.data_mover_operations import DataMoverLine
from sipsim.chips.tensix.ccl.formats import format_of
from sipsim.chips.tensix.ccl.mesh_tensors import AXES, MeshTensor, line_along, lines_along, part_of
from sipsim.chips.tensix.ccl.placement import MemoryConfig, memory_config_of
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
    from_pages,
    pieces,
    segments_of,
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
from sipsim.chips.tensix.lines import Line
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams
from sipsim.chips.tensix.programs import ComputeConfig, DataMovementConfig, KernelSpec, Program
from sipsim.collectives.call import PART, WORLD
from sipsim.collectives.reduction import NO_OP
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

READER, WRITER = DataMovementConfig(processor=1, noc=0), DataMovementConfig(processor=0, noc=1)
TOPOLOGIES = ("line", "ring")
TRANSPORTS = FABRIC, DATA_MOVER = ("fabric", "data_mover")
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
        self._said = set[str]()
        self._endpoints: dict[tuple[Fabric, int, Direction], FabricEndpoint] = {}
        self._counts: dict[Core, dict[int, int]] = {}
        self._tasks: list[Task] = []
        self._operation = Operation()

    # --- tensors --------------------------------------------------------------------------------------------------

    def tensor(
        self,
        array: "np.ndarray[Any, Any]",
        memory_config: str | MemoryConfig = "dram",
        slices: Count = 1,
        layout: str | None = None,
        dtype: str | None = None,
    ) -> Tensor:
        """Make a tensor of this chip from an array. ``memory_config``: a config, or ``dram`` or ``l1`` for pages that
        are interleaved over that memory; each of ``slices`` along the first dimension then begins a new run of adjacent
        pages, so that an operation can move a slice in whole runs. ``layout``: ``tile`` or ``row_major``; by default
        tiles if the last two dimensions divide into whole tiles. ``dtype``: ``bfp8`` or ``bfp4`` for an array of
        floats, which is rounded to tiles of block floating point (:class:`BlockFormat`); by default the array's type.

        Raises:
            KernelMisuse: for an unknown element type or ``dtype``, a layout or config that the array cannot have, a
                shape or elements that a block format does not have, or a tensor that does not fit.
        """
        if not isinstance(array, np.ndarray):
            raise KernelMisuse(f"a tensor is made from a NumPy array, not a {type(array).__name__}; give an array")
        config = memory_config_of(memory_config)
        tensor = self._store.make(array.shape, format_of(array, dtype), config, slices, layout)
        data, size = to_pages(array, tensor.dtype, tensor.pages), tensor.pages.page_bytes
        for page in range(tensor.pages.n_pages):
            core, address = tensor.place(page)
            self._chip.metal.write(core, address, data[page * size : (page + 1) * size])
        return tensor

    def mesh_tensor(
        self,
        array: "np.ndarray[Any, Any]",
        dims: int | Sequence[int | None] = 0,
        memory_config: str | MemoryConfig = "dram",
        slices: Count = 1,
        layout: str | None = None,
        *,
        chips: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> MeshTensor:
        """Make one tensor over many chips from an array, of which each chip stores its part.

        ``dims``: a pair has, for each axis of the mesh (0: down a column; 1: along a row), the dimension that is cut
        along the axis, or None where each chip keeps its own array whole. One number cuts this dimension along a line
        of all chips, or of ``chips``, in the order that operations use. For other arguments see :meth:`tensor`.

        Raises:
            KernelMisuse: as :meth:`tensor`, and if the array cannot be cut so, or the mesh of the chips is unknown.
        """
        if not isinstance(array, np.ndarray):
            raise KernelMisuse(f"a tensor is made from a NumPy array, not a {type(array).__name__}; give an array")
        rows: Sequence[Sequence[int]]
        is_line = not isinstance(dims, Sequence)
        if isinstance(dims, Sequence):
            if chips is not None or len(dims) != len(AXES):
                what = "give one number, or a dimension or None for both axes of the mesh, without chips"
                raise KernelMisuse(f"dims={dims!r}: {what}")
            rows = self._mesh()
            along = [None if each is None else any_whole("a dimension of dims", each) for each in dims]
        else:
            rows = [self._found("line", 1).chips if chips is None else self._ranks(chips)]
            along = [None, any_whole("dims", dims)]
        if not any(self._rank in row for row in rows):
            raise KernelMisuse(f"SIP {self._rank} makes a mesh tensor of chips {list(rows[0])}, without itself")
        part = part_of(array, (along[0], along[1]), rows, self._rank)
        local = self.tensor(part.array, memory_config, slices, layout, dtype)
        return MeshTensor(local, rows, part.dims, is_line)

    def to_numpy(self, tensor: Tensor | MeshTensor) -> "np.ndarray[Any, Any]":
        """Wait until all kernels have ended, then return the elements of a tensor that are on this chip, those of block
        formats in f32.
        """
        self._chip.wait_for_kernels()
        tensor = self._own(tensor)
        size = tensor.pages.page_bytes
        places = (tensor.place(page) for page in range(tensor.pages.n_pages))
        data = b"".join(self._chip.tiles.memory(core).read(address, size) for core, address in places)
        return from_pages(data, tensor.shape, tensor.dtype, tensor.pages)

    # --- operations -----------------------------------------------------------------------------------------------

    def all_gather(
        self,
        tensor: Tensor | MeshTensor,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        cluster_axis: Within | None = None,
        bidirectional: bool = True,
        num_workers_per_link: Within | None = None,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
        transport: str = FABRIC,
    ) -> Tensor | MeshTensor:
        """Enqueue an all-gather: concatenate the chips' tensors along a dimension, in the order of the line or ring.
        Every chip of the line or ring must make the same calls.

        ``memory_config``: that of the result, by default the tensor's; if the tensor's cores cannot have equal shards
        of the result, other cores. The result has the layout of the tensor, ``tile`` or ``row_major``.
        ``chips``: ranks in order along the line or ring; by default one through all chips is found among the links, and
        printed if it is not in the order of ranks. A ring that is not found becomes a line. ``cluster_axis``: 0 for an
        operation in each column of the mesh at the same time, 1 for one in each row. ``fabric``: an open fabric, in
        place of ``topology``, ``num_links``, ``chips`` and ``cluster_axis``. ``transport``: ``fabric``, or
        ``data_mover`` for the algorithm of the CCL developer guide on data movers, which takes no ``fabric``,
        ``num_workers_per_link`` and ``chunks_per_sync``.

        Raises:
            KernelMisuse: if an argument does not fit these chips, this tensor or this transport.
        """
        own, config = self._own(tensor), config_or_none(memory_config)
        given = {"num_workers_per_link": num_workers_per_link, "chunks_per_sync": chunks_per_sync}
        if self._is_over_data_movers(transport, {"fabric": fabric, **given}):
            line = self._data_mover_line(tensor, topology, num_links, chips, cluster_axis, bidirectional)
            dim, output = self._gathered(own, dim, config, line.size)
            program = line.all_gather(own, output, dim, self._operation)
            self._tasks = self._chip.enqueue(program, is_own=True)
            self._note("all_gather", own, dim, output, line, bidirectional=bidirectional)
            return _after(tensor, output, cluster_axis, None)
        with self._open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            output = self._gather(own, dim, config, fabric, bidirectional, num_workers_per_link, chunks_per_sync)
            options = {"bidirectional": bidirectional, "chunks_per_sync": chunks_per_sync}
            return _after(tensor, self._note("all_gather", own, dim, output, fabric, **options), cluster_axis, None)

    def reduce_scatter(
        self,
        tensor: Tensor | MeshTensor,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        cluster_axis: Within | None = None,
        bidirectional: bool = True,
        is_direct: bool | None = None,
        slice_packets: Natural = 0,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
        transport: str = FABRIC,
    ) -> Tensor | MeshTensor:
        """Enqueue a reduce-scatter: each chip gets one slice of the sum of all tensors. ``is_direct``: whether chips of
        a ring send slices straight to the owners; if None, only for small tensors. ``slice_packets``: on the fabric,
        packets of one slice that a ring worker forwards before the next slice, 0 for all; over data movers, the most
        packets of a slice of the tensor slicer, 0 for as many as the pipeline holds; larger slices deadlock. Data
        movers need a ring, and take no ``fabric``, ``is_direct`` or ``chunks_per_sync``. For other arguments see
        :meth:`all_gather`.
        """
        own, config = self._own(tensor), config_or_none(memory_config)
        given: dict[str, object] = {"fabric": fabric, "is_direct": is_direct, "chunks_per_sync": chunks_per_sync}
        if self._is_over_data_movers(transport, given):
            line = self._data_mover_line(tensor, topology, num_links, chips, cluster_axis, bidirectional)
            along, output = self._scattered(own, dim, config, line.size)
            program = line.reduce_scatter(own, output, along, slice_packets, self._operation)
            self._tasks = self._chip.enqueue(program, is_own=True)
            given = {"bidirectional": bidirectional, "slice_packets": slice_packets}
            return _after(tensor, self._note("reduce_scatter", own, dim, output, line, **given), cluster_axis, dim)
        with self._open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            output = self._scatter(own, dim, config, fabric, bidirectional, is_direct, slice_packets, chunks_per_sync)
            options = {"bidirectional": bidirectional, "is_direct": is_direct, "slice_packets": slice_packets}
            self._note("reduce_scatter", own, dim, output, fabric, **options, chunks_per_sync=chunks_per_sync)
            return _after(tensor, output, cluster_axis, dim)

    def all_reduce(
        self,
        tensor: Tensor | MeshTensor,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        cluster_axis: Within | None = None,
        bidirectional: bool = True,
        chunks_per_sync: Count | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor | MeshTensor:
        """Enqueue an all-reduce, which sums all tensors: a reduce-scatter along ``dim``, then an all-gather."""
        own, config = self._own(tensor), config_or_none(memory_config)
        with self._open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            scattered = self._scatter(own, dim, None, fabric, bidirectional, None, 0, chunks_per_sync)
            output = self._gather(scattered, dim, config, fabric, bidirectional, None, chunks_per_sync)
            options = {"bidirectional": bidirectional, "chunks_per_sync": chunks_per_sync}
            return _after(tensor, self._note("all_reduce", own, dim, output, fabric, **options), cluster_axis, None)

    def all_to_all(
        self,
        tensor: Tensor | MeshTensor,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        cluster_axis: Within | None = None,
        bidirectional: bool = True,
        num_workers_per_link: Within | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor | MeshTensor:
        """Enqueue an all-to-all: slice ``j`` of chip ``i`` becomes slice ``i`` of chip ``j``. A chip sends to near and
        far destinations in turn. For other arguments see :meth:`all_gather`. The result is this chip's.
        """
        own, config = self._own(tensor), config_or_none(memory_config)
        with self._open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            workers = _workers(num_workers_per_link)
            call = self._call_plan(fabric, own, bidirectional)
            position, size = call.place.position, call.place.size
            along = self._dim(own, dim, size)
            output = self._store.like(own, own.shape, size if along == 0 else 1, config)
            source, target = segments_of((own, output), along, size)

            @cache
            def cut(origin: int, to: int) -> list[PageGroup]:
                parts = (source, source.slice(along, to, size)), (target, target.slice(along, origin, size))
                return pieces(parts, call.packet_bytes)

            all_to_all(call, lambda to: cut(position, to), lambda origin: cut(origin, position))
            self._run(call, own, cut(position, position), workers or 1, fabric)
            return self._note("all_to_all", own, dim, output, fabric, bidirectional=bidirectional)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _gather(
        self,
        tensor: Tensor,
        dim: int,
        config: MemoryConfig | None,
        fabric: Fabric,
        is_both: bool,
        workers: int | None,
        chunks: int | None,
    ) -> Tensor:
        workers = _workers(workers)
        call = self._call_plan(fabric, tensor, is_both)
        size = call.place.size
        dim, output = self._gathered(tensor, dim, config, size)
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

    def _scatter(
        self,
        tensor: Tensor,
        dim: int,
        config: MemoryConfig | None,
        fabric: Fabric,
        is_both: bool,
        is_direct: bool | None,
        group: int,
        chunks: int | None,
    ) -> Tensor:
        call = self._call_plan(fabric, tensor, is_both)
        place = call.place
        dim, output = self._scattered(tensor, dim, config, place.size)
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

    def _gathered(self, tensor: Tensor, dim: int, config: MemoryConfig | None, size: int) -> tuple[int, Tensor]:
        """Return the dimension of an all-gather, from 0 on, and a new tensor for the output."""
        dim = self._dim(tensor, dim, 1)
        shape = list(tensor.shape)
        shape[dim] *= size
        return dim, self._store.like(tensor, shape, size if dim == 0 else 1, config)

    def _scattered(self, tensor: Tensor, dim: int, config: MemoryConfig | None, size: int) -> tuple[int, Tensor]:
        """Return the dimension of a reduce-scatter, from 0 on, and a new tensor for the output."""
        dim = self._dim(tensor, dim, size)
        shape = list(tensor.shape)
        shape[dim] //= size
        return dim, self._store.like(tensor, shape, config=config)

    @staticmethod
    def _is_over_data_movers(transport: str, given: Mapping[str, object]) -> bool:
        """Whether an operation is over data movers. ``given``: arguments that only fit a fabric, None if not given.

        Raises:
            KernelMisuse: for an unknown transport, or arguments that do not fit.
        """
        if one_of("transport", transport, TRANSPORTS) == FABRIC:
            return False
        names = [name for name, value in given.items() if value is not None]
        if names:
            what = f"transport={transport!r} has no use for {' and '.join(names)}"
            raise KernelMisuse(f"{what}; leave {'them' if names[1:] else 'it'} out, or give transport={FABRIC!r}")
        return True

    def _data_mover_line(
        self,
        tensor: Tensor | MeshTensor,
        topology: str,
        num_links: int | None,
        chips: Sequence[int] | None,
        axis: int | None,
        is_both: bool,
    ) -> DataMoverLine:
        """Return the line or ring of an operation over data movers."""
        line = self._line_of(tensor, None, topology, num_links or 1, chips, axis)
        assert line is not None
        return DataMoverLine(self._chip, line, num_links or 1, is_both)

    @contextmanager
    def _open(
        self,
        tensor: Tensor | MeshTensor,
        fabric: Fabric | None,
        topology: str,
        num_links: int | None,
        chips: Sequence[int] | None,
        axis: int | None,
    ) -> Iterator[Fabric]:
        """Yield the given fabric of an operation, or else open one, which ends when the operation has ended.

        Raises:
            KernelMisuse: if arguments exclude each other, or there is no such line or ring.
        """
        line = self._line_of(tensor, fabric, topology, num_links or 1, chips, axis)
        if line is None:
            assert fabric is not None
            yield fabric
            return
        if any(map(self._chip.launches.is_used, self._chip.plan.floor_plan.ethernet)):
            self._chip.wait_for_kernels()
        own = self._open_fabric(*line, num_links or 1, payload_bytes=self._ccl.packet_bytes)
        try:
            yield own
        finally:
            own.end_after(self._tasks)
            self._endpoints = {key: each for key, each in self._endpoints.items() if key[0] is not own}

    def _line_of(
        self,
        tensor: Tensor | MeshTensor,
        fabric: Fabric | None,
        topology: str,
        num_links: int,
        chips: Sequence[int] | None,
        axis: int | None,
    ) -> Line | None:
        """Begin an operation: check which chips take part. Return their line or ring, None for those of ``fabric``.

        Raises:
            KernelMisuse: if arguments exclude each other, or there is no such line or ring.
        """
        one_of("topology", topology, TOPOLOGIES)
        if axis is not None and axis not in AXES:
            raise KernelMisuse(f"cluster_axis={axis}: give 0 (along columns of the mesh) or 1 (along rows)")
        given = [name for name, each in (("fabric", fabric), ("chips", chips), ("cluster_axis", axis)) if each]
        given += ["cluster_axis"] if axis == 0 else []
        if len(given) > 1:
            raise KernelMisuse(f"{' and '.join(given)} each say which chips take part; give one of them")
        of_mesh = line_along(tensor.rows, self._rank, tensor.axis(axis)) if isinstance(tensor, MeshTensor) else None
        if of_mesh is not None and (chips is not None or (fabric is not None and tuple(fabric.chips) != of_mesh)):
            raise KernelMisuse(f"the operation is on chips {list(of_mesh)} of the {tensor}; leave chips and fabric out")
        self._tasks, self._operation = [], Operation()
        return None if fabric is not None else self._line(topology, num_links, chips, axis, of_mesh)

    def _line(
        self,
        topology: str,
        num_links: int,
        chips: Sequence[int] | None,
        axis: int | None,
        of_mesh: tuple[int, ...] | None,
    ) -> Line:
        """Return the line or ring of an operation; print one that is not in the order of ranks, or no ring."""
        if chips is not None:
            return Line(topology, self._ranks(chips))
        if axis is not None:
            lines = lines_along(self._mesh(), axis)
        elif of_mesh is not None:
            lines = [of_mesh]
        else:
            lines = [self._found(topology, num_links).chips]
        graph = self._chip.plan.graph_of(num_links)
        is_closed = topology == "ring" and all(graph.holds(Line(topology, line)) for line in lines)
        found = topology if is_closed else "line"
        text = f"{found} {' | '.join(' '.join(map(str, line)) for line in lines)}"
        self._say(text if found == topology else f"{text} (no {topology} of these chips was found)", lines)
        return Line(found, next(line for line in lines if self._rank in line))

    def _say(self, text: str, lines: Sequence[Sequence[int]]) -> None:
        """Print, once and on one rank, over which chips operations go."""
        is_plain = "(" not in text and list(lines[0]) == list(range(self._chip.plan.system.n_sips))
        if not is_plain and self._rank == min(map(min, lines)) and text not in self._said:
            print(f"operations on {text}")
        self._said.add(text)

    def _found(self, topology: str, num_links: int) -> Line:
        """Return the line or ring through all chips that the plan finds.

        Raises:
            KernelMisuse: if none is found even with one link between neighbours.
        """
        plan = self._chip.plan
        line: Line | None = plan.line(topology, num_links) or plan.line(topology, 1)
        if line is None:
            what = f"no {topology} through all {plan.system.n_sips} chips was found among the links"
            raise KernelMisuse(f"{what}; give chips=, ranks in an order in which neighbours have links")
        return line

    def _mesh(self) -> Sequence[Sequence[int]]:
        rows: Sequence[Sequence[int]] = self._chip.plan.rows
        if not rows:
            raise KernelMisuse("the chips of this system form no mesh with known locations; give chips=")
        return rows

    def _ranks(self, chips: Sequence[int]) -> tuple[int, ...]:
        return tuple(ranks("chips", chips, self._chip.plan.system.n_sips))

    @property
    def _rank(self) -> int:
        rank: int = self._chip.session.rank
        return rank

    @staticmethod
    def _own(tensor: Tensor | MeshTensor) -> Tensor:
        return tensor.local if isinstance(tensor, MeshTensor) else tensor

    def _note(
        self, name: str, tensor: Tensor, dim: int, result: Tensor, fabric: Fabric | DataMoverLine, **options: object
    ) -> Tensor:
        """Log a call with the arguments that must be equal on all chips of the operation, and return ``result``.

        The result's address is one of these arguments, since chips write into one another's results.
        """
        over = " over data movers" if isinstance(fabric, DataMoverLine) else ""
        what = f"{name}{over} of {'x'.join(map(str, tensor.shape))} {tensor.dtype}"
        given = *(f"{option}={value}" for option, value in options.items()), str(tensor.placement)
        place = f"{tensor.layout} from {tensor.memory_config} to {result.memory_config} at 0x{result.base:x}"
        text = PART.join((what, f"dim={dim % len(tensor.shape)}", *given, place))
        # Fabrics that are open one after the other may have the same number, but not the same chips.
        group = crc32(f"{fabric.number} {fabric.chips}".encode()) + 1
        is_of_all = fabric.size == self._chip.plan.system.n_sips
        self._chip.call_log.note(text, WORLD if is_of_all else group, tuple(fabric.chips), self._tasks)
        self._end_operation(name, tensor, result, fabric)
        return result

    def _end_operation(self, name: str, tensor: Tensor, result: Tensor, fabric: Fabric | DataMoverLine) -> None:
        """Give the facts of the call to its row of results."""
        call, larger = self._chip.call_log.calls[-1], max(tensor, result, key=lambda each: each.nbytes)
        number = self._chip.call_log.number(call.group)
        op = SUM if name in REDUCTIONS else NO_OP
        over = f"_{DATA_MOVER}" if isinstance(fabric, DataMoverLine) else ""
        count, kind = prod(larger.shape), f"{name}_{fabric.topology}{over}"
        facts = name, kind, larger.dtype.name, op, count, larger.nbytes, call.group, number, tuple(fabric.chips)
        self._chip.durations.close(self._operation, OperationFacts(*facts))

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
            KernelMisuse: if the tensor has no such dimension, or it does not divide into ``slices``.
        """
        rank = len(tensor.shape)
        dim = whole(f"{tensor}: dim", dim, -rank, rank - 1) % rank
        count = tensor.parts_along(dim)
        if count % slices:
            is_tiled = tensor.pages.is_tiled
            what, advice = "tiles" if is_tiled else "elements", ", or another dimension"
            if is_tiled and tensor.dtype.has_rows:
                advice = ", another dimension, or layout='row_major'"
            what = f"{tensor}: {count} {what} along dimension {dim} cannot be cut into {slices} slices"
            raise KernelMisuse(f"{what}; give a multiple of {slices}{advice}")
        return dim

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
        self._endpoints = {key: each for key, each in self._endpoints.items() if not key[0].has_ended}
        key = fabric, worker.link, worker.side
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = fabric.connect(worker.core, worker.side, worker.link)
        return endpoint


def _after(given: Tensor | MeshTensor, result: Tensor, axis: int | None, dim: int | None) -> Tensor | MeshTensor:
    """Return an operation's result as a tensor of the kind of its operand. ``dim``: the dimension that is now cut."""
    return given.after(result, given.axis(axis), dim) if isinstance(given, MeshTensor) else result


def config_or_none(given: str | MemoryConfig | None) -> MemoryConfig | None:
    """Return the memory config for an argument of an operation, None if it is not given."""
    return None if given is None else memory_config_of(given)


def _workers(count: int | None) -> int | None:
    return None if count is None else whole("num_workers_per_link", count, 1, MOST_WORKERS)
