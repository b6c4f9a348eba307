"""Collective operations of a host script over all chips, with names as in ``ttnn``."""

from collections.abc import Mapping, Sequence

from sipsim.chips.tensix.arguments import Count, Natural, Within, checked, one_of, whole
from sipsim.chips.tensix.ccl.calls import DATA_MOVER, Calls
from sipsim.chips.tensix.ccl.fabric_operations import FabricOperations
from sipsim.chips.tensix.ccl.mesh_tensors import MeshTensor, local_of, result_for
from sipsim.chips.tensix.ccl.placement import MemoryConfig, config_or_none
from sipsim.chips.tensix.ccl.tensors import Part, Store, Tensor, segments_of
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.core.errors import KernelMisuse

FABRIC = "fabric"
MOST_WORKERS = 2
"""The most workers per link: one that sends, and one that copies."""


@checked("tt")
class Collectives:
    """Calls of a host script for operations in which all chips have the same part. Operations are enqueued like
    programs.
    """

    def __init__(self, calls: Calls, store: Store, over_fabric: FabricOperations) -> None:
        self._calls = calls
        self._store = store
        self._over_fabric = over_fabric

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
        own, config = local_of(tensor), config_or_none(memory_config)
        given = {"num_workers_per_link": num_workers_per_link, "chunks_per_sync": chunks_per_sync}
        if self._is_over_data_movers(transport, {"fabric": fabric, **given}):
            line = self._calls.data_mover_line(tensor, topology, num_links, chips, cluster_axis, bidirectional)
            dim, output = self._store.gathered(own, dim, config, line.size)
            self._calls.enqueue(line.all_gather(own, output, dim, self._calls.operation))
            self._calls.note("all_gather", own, dim, output, line, bidirectional=bidirectional)
            return result_for(tensor, output, cluster_axis, None)
        workers = _workers(num_workers_per_link)
        with self._calls.open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            output = self._over_fabric.all_gather(own, dim, config, fabric, bidirectional, workers, chunks_per_sync)
            options = {"bidirectional": bidirectional, "chunks_per_sync": chunks_per_sync}
            self._calls.note("all_gather", own, dim, output, fabric, **options)
            return result_for(tensor, output, cluster_axis, None)

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
        own, config = local_of(tensor), config_or_none(memory_config)
        given: dict[str, object] = {"fabric": fabric, "is_direct": is_direct, "chunks_per_sync": chunks_per_sync}
        if self._is_over_data_movers(transport, given):
            line = self._calls.data_mover_line(tensor, topology, num_links, chips, cluster_axis, bidirectional)
            along, output = self._store.scattered(own, dim, config, line.size)
            self._calls.enqueue(line.reduce_scatter(own, output, along, slice_packets, self._calls.operation))
            given = {"bidirectional": bidirectional, "slice_packets": slice_packets}
            self._calls.note("reduce_scatter", own, dim, output, line, **given)
            return result_for(tensor, output, cluster_axis, dim)
        with self._calls.open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            output = self._over_fabric.reduce_scatter(
                own, dim, config, fabric, bidirectional, is_direct, slice_packets, chunks_per_sync
            )
            options = {"bidirectional": bidirectional, "is_direct": is_direct, "slice_packets": slice_packets}
            self._calls.note("reduce_scatter", own, dim, output, fabric, **options, chunks_per_sync=chunks_per_sync)
            return result_for(tensor, output, cluster_axis, dim)

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
        own, config = local_of(tensor), config_or_none(memory_config)
        with self._calls.open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            scattered = self._over_fabric.reduce_scatter(
                own, dim, None, fabric, bidirectional, None, 0, chunks_per_sync
            )
            output = self._over_fabric.all_gather(scattered, dim, config, fabric, bidirectional, None, chunks_per_sync)
            options = {"bidirectional": bidirectional, "chunks_per_sync": chunks_per_sync}
            self._calls.note("all_reduce", own, dim, output, fabric, **options)
            return result_for(tensor, output, cluster_axis, None)

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
        own, config = local_of(tensor), config_or_none(memory_config)
        workers = _workers(num_workers_per_link) or 1
        with self._calls.open(tensor, fabric, topology, num_links, chips, cluster_axis) as fabric:
            size = fabric.size
            along = own.dim(dim, size)
            output = self._store.like(own, own.shape, size if along == 0 else 1, config)
            source, target = segments_of((own, output), along, size)

            def moves(origin: int, to: int) -> tuple[Part, Part]:
                return (source, source.slice(along, to, size)), (target, target.slice(along, origin, size))

            self._over_fabric.move(own, output, moves, fabric, bidirectional, workers)
            return self._calls.note("all_to_all", own, dim, output, fabric, bidirectional=bidirectional)

    @staticmethod
    def _is_over_data_movers(transport: str, given: Mapping[str, object]) -> bool:
        """Whether an operation is over data movers. ``given``: arguments that only fit a fabric, None if not given.

        Raises:
            KernelMisuse: for an unknown transport, or arguments that do not fit.
        """
        if one_of("transport", transport, (FABRIC, DATA_MOVER)) == FABRIC:
            return False
        names = [name for name, value in given.items() if value is not None]
        if names:
            what = f"transport={transport!r} has no use for {' and '.join(names)}"
            raise KernelMisuse(f"{what}; leave {'them' if names[1:] else 'it'} out, or give transport={FABRIC!r}")
        return True


def _workers(count: int | None) -> int | None:
    return None if count is None else whole("num_workers_per_link", count, 1, MOST_WORKERS)
