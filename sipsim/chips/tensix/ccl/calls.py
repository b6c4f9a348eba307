"""Calls of operations on one chip: the fabric or data movers of a call, its tasks, its entry in the log and its row."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from zlib import crc32

from sipsim.chips.tensix.ccl.data_mover_operations import DataMoverLine
from sipsim.chips.tensix.ccl.mesh_tensors import MeshTensor
from sipsim.chips.tensix.ccl.participants import Participants
from sipsim.chips.tensix.ccl.tensors import Tensor
from sipsim.chips.tensix.durations import Operation, OperationFacts
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.programs import Program
from sipsim.collectives.call import PART, WORLD
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task
from sipsim.records.report import SEND_RECV

DATA_MOVER, SUM = "data_mover", "sum"
ROWS = {"send_receive": SEND_RECV}
"""Names of operations in rows of results, if they differ from those of the calls."""


class Calls:
    """Calls of one chip's host script for operations, one after the other. ``open_fabric``: ``tt.open_fabric``.
    ``operation``: the row of results of the last call.
    """

    def __init__(self, chip: Any, participants: Participants, open_fabric: Callable[..., Fabric]) -> None:
        self._chip = chip
        self._participants = participants
        self._open_fabric = open_fabric
        self._tasks: list[Task] = []
        self.operation = Operation()

    @contextmanager
    def open(
        self,
        tensor: Tensor | MeshTensor,
        fabric: Fabric | None,
        topology: str,
        num_links: int | None,
        chips: Sequence[int] | None,
        axis: int | None = None,
    ) -> Iterator[Fabric]:
        """Begin a call. Yield the given fabric, or else open one, which ends when the operation has ended.

        Raises:
            KernelMisuse: if arguments exclude each other, or there is no such line or ring.
        """
        line = self._participants.line_of(tensor, fabric, topology, num_links or 1, chips, axis)
        self._tasks, self.operation = [], Operation()
        if line is None:
            assert fabric is not None
            _check_given(fabric, topology, num_links)
            yield fabric
            return
        if any(map(self._chip.launches.is_used, self._chip.plan.floor_plan.ethernet)):
            self._chip.wait_for_kernels()
        own = self._open_fabric(*line, num_links or 1, payload_bytes=self._chip.plan.params.ccl.packet_bytes)
        try:
            yield own
        finally:
            own.end_after(self._tasks)

    def data_mover_line(
        self,
        tensor: Tensor | MeshTensor,
        topology: str,
        num_links: int | None,
        chips: Sequence[int] | None,
        axis: int | None,
        is_both: bool,
    ) -> DataMoverLine:
        """Begin a call over data movers, and return the line or ring. Errors are those of :meth:`open`."""
        line = self._participants.line_of(tensor, None, topology, num_links or 1, chips, axis)
        self._tasks, self.operation = [], Operation()
        assert line is not None
        return DataMoverLine(self._chip, line, num_links or 1, is_both)

    def enqueue(self, program: Program) -> None:
        """Enqueue a program of the call."""
        self._tasks += self._chip.enqueue(program)

    def note(
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
        self._close_row(name, tensor, result, fabric)
        return result

    def _close_row(self, name: str, tensor: Tensor, result: Tensor, fabric: Fabric | DataMoverLine) -> None:
        """Give the facts of the call to its row of results."""
        call, larger = self._chip.call_log.calls[-1], max(tensor, result, key=lambda each: each.nbytes)
        number = self._chip.call_log.number(call.group)
        collective = ROWS.get(name, name)
        op = SUM if collective in COLLECTIVES.names() and COLLECTIVES.get(collective).combines else NO_OP
        over = f"_{DATA_MOVER}" if isinstance(fabric, DataMoverLine) else ""
        count, kind = prod(larger.shape), f"{collective}_{fabric.topology}{over}"
        facts = collective, kind, larger.dtype.name, op, count, larger.nbytes, call.group, number, tuple(fabric.chips)
        self._chip.durations.close(self.operation, OperationFacts(*facts))


def _check_given(fabric: Fabric, topology: str, num_links: int | None) -> None:
    """Check the arguments of a call on a given fabric. ``topology``: ``line``, the default, fits each fabric.

    Raises:
        KernelMisuse: for another topology, or another number of links, than the fabric's.
    """
    if topology not in ("line", fabric.topology) or num_links not in (None, fabric.num_links):
        has = f"the given fabric is a {fabric.topology} with num_links={fabric.num_links}"
        raise KernelMisuse(f"{has}; leave topology and num_links out")
