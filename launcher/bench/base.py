"""A bench: a command of ``ahbm-bench``, and the published tests that it simulates. One is a module of ``benches``."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from launcher.bench.machine import Machine
from sipsim.registry import Registry


class Case(NamedTuple):
    """A test as published figures name it, with ``channels`` buffers, over ``hops`` links."""

    test: str
    channels: int
    hops: int


class Figure(NamedTuple):
    """What a case measured with packets of ``nbytes``. ``metric``: its unit; ``statistic``: what it is of the case;
    ``note``: what was not as asked for.
    """

    case: Case
    nbytes: int
    metric: str
    statistic: str
    value: float
    note: str = ""


class Bench(ABC):
    """``about``: a line for the help. ``families``: of published rows, whose tests it knows. ``sizes``, ``channels``:
    what it measures if not told otherwise.
    """

    about: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    sizes: ClassVar[tuple[int, ...]]
    channels: ClassVar[tuple[int, ...]]

    @abstractmethod
    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        """Its own flags; ``--sizes`` and ``--channels`` are every bench's."""

    @abstractmethod
    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        """What its flags ask for."""

    @abstractmethod
    def knows(self, test: str) -> bool:
        """Whether published figures of a test are of this bench."""

    def case_of(self, test: str, channels: int, hops: int) -> Case:
        """The case to be measured for a published row; one may answer the rows of several tests."""
        return Case(test, channels, hops)

    @abstractmethod
    def measure(self, case: Case, sizes: Sequence[int], machine: Machine) -> list[Figure]:
        """Simulate a case.

        Raises:
            SimulationError: when a run fails.
        """


BENCHES: Registry[Bench] = Registry("bench", "launcher.bench.benches")
