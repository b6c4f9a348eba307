"""Programs of kernels, as a host script makes them: which function runs on which processor of which tile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sipsim.chips.tensix.noc.floor_plan import Core
from sipsim.chips.tensix.tiles import ATOMIC_BYTES
from sipsim.core.errors import KernelMisuse

SEMAPHORE_BYTES = 16


class DataMovementConfig(NamedTuple):
    """A kernel of a worker tile: on one of its processors, whose commands go on NoC ``noc``."""

    processor: int = 0
    noc: int = 0


class ComputeConfig(NamedTuple):
    """The kernel of a worker tile that adds up, on the processors beside those that move data."""

    noc: int = 0
    processor: int = -1


class EthernetConfig(NamedTuple):
    """A kernel of an Ethernet core, whose commands go on NoC ``noc``."""

    noc: int = 0
    processor: int = 0


Config = DataMovementConfig | ComputeConfig | EthernetConfig


class KernelSpec(NamedTuple):
    """A kernel to be run: ``kernel(*args, dataflow)``. ``is_server``: it never has to end."""

    kernel: Callable[..., Any]
    core: Core
    config: Config
    args: tuple[Any, ...]
    is_server: bool


@dataclass
class Program:
    """The kernels of one chip that start together, and the semaphores that are set before."""

    kernels: list[KernelSpec] = field(default_factory=list)
    semaphores: dict[tuple[Core, int], int] = field(default_factory=dict)
    is_enqueued: bool = False

    def add(self, spec: KernelSpec) -> None:
        """Add a kernel.

        Raises:
            KernelMisuse: on a processor that has one, and to a program that was enqueued.
        """
        if self.is_enqueued:
            what = f"kernel {spec.kernel.__name__} comes after its program was enqueued"
            raise KernelMisuse(f"{what}; create it before, or in a program of its own")
        place = spec.core, spec.config.processor
        if any((each.core, each.config.processor) == place for each in self.kernels):
            raise KernelMisuse(f"processor {spec.config.processor} of tile {spec.core} has a kernel in this program")
        self.kernels.append(spec)

    def add_semaphore(self, core: Core, first: int, end: int, initial: int) -> int:
        """The address of a new semaphore of a tile, from ``first`` on and before ``end``.

        Raises:
            KernelMisuse: where there is no room left.
        """
        index = sum(1 for each, address in self.semaphores if each == core and first <= address < end)
        address = first + index * SEMAPHORE_BYTES
        if address + SEMAPHORE_BYTES > end:
            raise KernelMisuse(f"tile {core} has room for {index} semaphores of a program, and all are in use")
        self.semaphores[core, address] = initial % 2 ** (8 * ATOMIC_BYTES)
        return address
