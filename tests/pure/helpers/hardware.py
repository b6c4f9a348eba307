"""Small systems for tests of the hardware: configs from a few settings, plans with a given wiring, a bench.

Not a test. A :class:`Bench` is one SIP without a broker: nothing arrives over a link, so its engine may be stepped
to the end. A kernel on it is a function of ``tl``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.neighbours import NeighbourTable
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.pe.dma import PeDma
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.config.schema import Resolved
from sipsim.core.task import TaskFailed
from sipsim.insight.replay.second_pass import SecondPass
from sipsim.records.oplog import FIELDS

MOST_EVENTS = 1_000_000
Kernel = Callable[[TL], object]

ONE_SIP = {"system.sips.count": 1, "sip.cube_mesh": {"w": 2, "h": 1}}
SHAPED = {"torus_2d", "mesh_2d_no_wrap"}
TOPOLOGIES_OF_AHBM = ("custom", "mesh_2d_no_wrap", "ring_1d", "torus_2d")
"""Others leave by ports that chip ``ahbm`` has not."""


def config(settings: dict[str, Any]) -> Resolved:
    """The default config with some keys set, checked as a user's would be."""
    return load(overrides=[Override(path, value, f"--set {path}") for path, value in settings.items()])


def system_of(resolved: Resolved) -> AhbmSystem:
    """The system alone, without an algorithm that must be able to run on it."""
    knobs = effective_ipcq(resolved, resolved.ccl.defaults.algorithm)
    return AhbmSystem(resolved, knobs)


class WiredPlan(Plan):
    """A plan with given PEs and neighbours instead of its algorithm's."""

    def __init__(self, resolved: Resolved, places: list[PePlace], table: NeighbourTable) -> None:
        self._wired = places, table
        super().__init__(resolved)

    def _places(self) -> list[PePlace]:
        return self._wired[0]

    def _neighbour_table(self) -> NeighbourTable:
        return self._wired[1]


class Record(NamedTuple):
    """A line of the op log, its own fields by name."""

    kind: str
    start_ps: int
    end_ps: int
    cube: int
    pe: int
    fields: dict[str, Any]


class Bench:
    """SIP 0 of a plan, alone, with its op log kept. ``replays``: with a second pass, and without the checks of
    invariants, which find some planted errors first.
    """

    def __init__(self, plan: Plan, replays: bool = False) -> None:
        self.plan = plan
        second_pass = SecondPass if replays else None
        self.sip = Sip(0, plan, _no_peer, True, check_invariants=not replays, second_pass=second_pass)
        self.engine = self.sip.engine

    def kernel(self, cube: int, pe: int, body: Kernel) -> None:
        """Start ``body`` on a PE at the present time. Addresses in it are physical."""
        part = self.sip.pe(cube, pe)
        tl = TL(part, lambda address, _nbytes: address)
        self.sip.spawn(part, lambda: run_kernel(body, (), tl))

    def pause(self, cube: int, pe: int, time_ps: int) -> None:
        """Wait for ``time_ps``; called in a PE's kernel."""
        task = self.sip.pe(cube, pe).task
        assert task is not None
        self.engine.at(self.engine.now_ps + time_ps, task.resume)
        task.wait("a pause")

    def run(self) -> None:
        """Run to the end; raises the exception of a kernel."""
        try:
            assert self.engine.run_before(None, MOST_EVENTS)
        except TaskFailed as failure:
            raise failure.__cause__ or failure from None

    def step(self) -> bool:
        """Run one event; whether there was one."""
        if self.engine.next_ps() is None:
            return False
        self.engine.run_before(None, 1)
        return True

    def ipcq(self, cube: int, pe: int) -> PeIpcq:
        return self.sip.pe(cube, pe).ipcq

    def queue(self, cube: int, pe: int, direction: str) -> QueuePair:
        return self.ipcq(cube, pe).queues[direction]

    def records(self, kind: str) -> list[Record]:
        return records_of(self.sip, kind)

    def ends(self, kind: str) -> list[int]:
        """When each record of a kind ended."""
        return [record.end_ps for record in self.records(kind)]


def records_of(sip: Sip, kind: str) -> list[Record]:
    """The kept lines of one kind of a SIP's op log, in order."""
    return [
        Record(*record[:5], dict(zip(FIELDS[kind], record[5:], strict=True)))
        for record in sip.oplog.records
        if record[0] == kind
    ]


def pair_bench(settings: dict[str, Any] | None = None, replays: bool = False) -> Bench:
    """PE 0 of cube 0 and PE 0 of cube 1, its neighbour to the E."""
    places = [PePlace(0, 0, 0), PePlace(0, 1, 0)]
    return Bench(WiredPlan(config({**ONE_SIP, **(settings or {})}), places, {0: {"E": 1}, 1: {"W": 0}}), replays)


def hbm(cube: int, offset: int, pe: int = 0, sip: int = 0) -> int:
    """A physical address in the HBM of a PE."""
    return PhysAddr(sip, cube, pe, "hbm", offset).encode()


def tcm(cube: int, offset: int, pe: int = 0, sip: int = 0) -> int:
    """A physical address in the TCM of a PE."""
    return PhysAddr(sip, cube, pe, "tcm", offset).encode()


def refuse_late(patch: pytest.MonkeyPatch) -> None:
    """An address on another SIP is refused when its transfer starts, not when its command is given."""
    memory_at = PeDma.memory_at

    def late(transfer: Callable[..., None]) -> Callable[..., None]:
        def start(dma: PeDma, *arguments: Any) -> None:
            memory_at(dma, arguments[-1].command.block.address)
            transfer(dma, *arguments)

        return start

    for name in ("_load", "_store"):
        patch.setattr(PeDma, name, late(getattr(PeDma, name)))
    patch.setattr(PeDma, "memory_at", lambda dma, at: memory_at(dma, hbm(0, 0) if PhysAddr.decode(at).sip else at))


def _no_peer(dst: int, packet: object) -> None:
    raise AssertionError(f"SIP 0 is alone here, and sent {packet} to SIP {dst}")
