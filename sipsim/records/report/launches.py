"""What is recorded of each launch on a SIP, by counters alone. Plain data, part of a rank's outcome."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import msgspec

Ps = int
MOST_LAUNCHES = 10_000
"""Of which a rank keeps a record."""


class KernelUse(NamedTuple):
    """The time of the kernels of launches that have ended.

    ``kernels``: their number, ``kernel_ps`` how long they ran in all, ``launch_ps`` how long with the wait for the last
    one of each launch. ``waited_ps``: by the commands that they waited for.
    """

    kernels: int = 0
    kernel_ps: Ps = 0
    launch_ps: Ps = 0
    waited_ps: Mapping[str, Ps] = MappingProxyType({})

    def plus(self, other: "KernelUse") -> "KernelUse":
        """Both together."""
        return self._joined(other, 1)

    def since(self, before: "KernelUse") -> "KernelUse":
        """What has come after an earlier state."""
        return self._joined(before, -1)

    def _joined(self, other: "KernelUse", sign: int) -> "KernelUse":
        names = dict.fromkeys((*self.waited_ps, *other.waited_ps))
        return KernelUse(
            self.kernels + sign * other.kernels,
            self.kernel_ps + sign * other.kernel_ps,
            self.launch_ps + sign * other.launch_ps,
            {name: self.waited_ps.get(name, 0) + sign * other.waited_ps.get(name, 0) for name in names},
        )


class LaunchRecord(msgspec.Struct, frozen=True):
    """A launch that has ended. ``run``: the index of its collective among the SIP's, None for one of ``torch.launch``.

    ``start_ps`` and ``end_ps`` are those that the host sees, ``kernels_ps`` the start of the first kernel and the end
    of the last one, None without one. ``target_ps``: the start that IO_CPU has stamped, None where there is none;
    ``late_ps``: by how much the latest kernel missed it. ``pes``: see :func:`places_text`. ``busy_ps``: the time of all
    its kernels together, by the commands that they waited for.
    """

    name: str
    run: int | None
    start_ps: Ps
    end_ps: Ps
    kernels_ps: tuple[Ps, Ps] | None
    target_ps: Ps | None
    late_ps: Ps
    pes: str
    kernels: int
    busy_ps: dict[str, Ps]


def places_text(places: Iterable[tuple[int, int]]) -> str:
    """PEs of one SIP, as (cube, PE), in a few words: ``cubes 0-15, PE 0``, or cube by cube where these differ:
    ``cube 0: PE 0-3; cube 2: PE 1``.
    """
    by_cube = {
        cube: _ranges([pe for _, pe in some]) for cube, some in groupby(sorted(places), key=lambda place: place[0])
    }
    if not by_cube:
        return "none"
    if len(set(by_cube.values())) == 1:
        name = "cube" if len(by_cube) == 1 else "cubes"
        return f"{name} {_ranges(list(by_cube))}, PE {next(iter(by_cube.values()))}"
    return "; ".join(f"cube {cube}: PE {pes}" for cube, pes in by_cube.items())


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as ranges, ``0-3,7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
