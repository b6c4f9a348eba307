"""The choice of the chips that take part in an operation, and of their line or ring."""

from collections.abc import Sequence
from typing import Any

from sipsim.chips.tensix.arguments import one_of, ranks
from sipsim.chips.tensix.ccl.mesh_tensors import AXES, MeshTensor, line_along, lines_along
from sipsim.chips.tensix.ccl.tensors import Tensor
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.lines import Line
from sipsim.core.errors import KernelMisuse

TOPOLOGIES = ("line", "ring")


class Participants:
    """Finder of the chips that take part in the operations of one chip's host script."""

    def __init__(self, chip: Any) -> None:
        self._plan = chip.plan
        self._rank: int = chip.session.rank
        self._said = set[str]()

    @property
    def mesh(self) -> Sequence[Sequence[int]]:
        """The ranks of the mesh, row by row.

        Raises:
            KernelMisuse: if the chips form no mesh.
        """
        rows: Sequence[Sequence[int]] = self._plan.rows
        if not rows:
            raise KernelMisuse("the chips of this system form no mesh with known locations; give chips=")
        return rows

    def ranks(self, chips: Sequence[int]) -> tuple[int, ...]:
        """Return the ranks of an argument ``chips``.

        Raises:
            KernelMisuse: for a rank that the system does not have.
        """
        return tuple(ranks("chips", chips, self._plan.system.n_sips))

    def line_of(
        self,
        tensor: Tensor | MeshTensor,
        fabric: Fabric | None,
        topology: str,
        num_links: int,
        chips: Sequence[int] | None,
        axis: int | None,
    ) -> Line | None:
        """Return the line or ring of the chips that take part in an operation, None if ``fabric`` says it.

        Raises:
            KernelMisuse: if arguments exclude each other, or there is no such line or ring.
        """
        one_of("topology", topology, TOPOLOGIES)
        if axis is not None and axis not in AXES:
            raise KernelMisuse(f"cluster_axis={axis!r}: give 0 (along columns of the mesh) or 1 (along rows)")
        given = [name for name, each in (("fabric", fabric), ("chips", chips), ("cluster_axis", axis)) if each]
        given += ["cluster_axis"] if axis == 0 else []
        if len(given) > 1:
            raise KernelMisuse(f"{' and '.join(given)} each say which chips take part; give one of them")
        of_mesh = line_along(tensor.rows, self._rank, tensor.axis(axis)) if isinstance(tensor, MeshTensor) else None
        if of_mesh is not None and (chips is not None or (fabric is not None and tuple(fabric.chips) != of_mesh)):
            raise KernelMisuse(f"the operation is on chips {list(of_mesh)} of the {tensor}; leave chips and fabric out")
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
            return Line(topology, self.ranks(chips))
        if axis is not None:
            lines = lines_along(self.mesh, axis)
        elif of_mesh is not None:
            lines = [of_mesh]
        else:
            lines = [self.found(topology, num_links).chips]
        graph = self._plan.graph_of(num_links)
        is_closed = topology == "ring" and all(graph.holds(Line(topology, line)) for line in lines)
        found = topology if is_closed else "line"
        text = f"{found} {' | '.join(' '.join(map(str, line)) for line in lines)}"
        self._say(text if found == topology else f"{text} (no {topology} of these chips was found)", lines)
        return Line(found, next(line for line in lines if self._rank in line))

    def _say(self, text: str, lines: Sequence[Sequence[int]]) -> None:
        """Print, once and on one rank, over which chips operations go."""
        is_plain = "(" not in text and list(lines[0]) == list(range(self._plan.system.n_sips))
        if not is_plain and self._rank == min(map(min, lines)) and text not in self._said:
            print(f"operations on {text}")
        self._said.add(text)

    def found(self, topology: str, num_links: int) -> Line:
        """Return the line or ring through all chips that the plan finds.

        Raises:
            KernelMisuse: if none is found even with one link between neighbours.
        """
        plan = self._plan
        line: Line | None = plan.line(topology, num_links) or plan.line(topology, 1)
        if line is None:
            what = f"no {topology} through all {plan.system.n_sips} chips was found among the links"
            raise KernelMisuse(f"{what}; give chips=, ranks in an order in which neighbours have links")
        return line
