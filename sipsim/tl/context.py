"""The parts of a SIP that kernel operations use. ``sipsim.sip.sip`` has the classes that fit."""

from collections.abc import Callable
from typing import Protocol

from sipsim.config.model import IpcqKnobs
from sipsim.engine import Engine
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.memory.store import MemoryStore
from sipsim.pe.dma import PeDma
from sipsim.pe.math import PeMath
from sipsim.record.oplog import OpLog
from sipsim.record.trace import TraceLine
from sipsim.task import Task


class KernelPe(Protocol):
    """The PE that a kernel runs on. ``rank`` is its rank in the wiring, None for a PE that takes no part."""

    cube: int
    pe: int
    rank: int | None
    dma: PeDma
    math: PeMath
    ipcq: PeIpcq
    task: Task | None


class KernelSystem(Protocol):
    """Sizes of the system: PEs of a cube, cubes of a SIP, SIPs."""

    n_pes: int
    n_sips: int

    @property
    def n_cubes(self) -> int: ...


class KernelPlan(Protocol):
    """Settings of the queues, and the number of ranks in the wiring."""

    ipcq: IpcqKnobs
    world_size: int

    @property
    def system(self) -> KernelSystem: ...


class KernelSip(Protocol):
    """The SIP that a kernel runs on."""

    sip: int
    engine: Engine
    memory: MemoryStore
    oplog: OpLog
    tracer: Callable[[TraceLine], None] | None

    @property
    def plan(self) -> KernelPlan: ...
