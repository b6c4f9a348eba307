"""Records that the parts of a SIP share: one per SIP, and one per PE.

The constructor of a part gets these records and looks up the other parts that it uses. The subclasses in
:mod:`sipsim.chips.ahbm.sip` fill both records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sipsim.chips.ahbm.ipcq.generations import ClosedGenerations
    from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
    from sipsim.chips.ahbm.ipcq.messages import WireFormat
    from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
    from sipsim.chips.ahbm.ipcq.transport import CreditSender, Ipcqs, MessageSender
    from sipsim.chips.ahbm.memory.mmu import PageTable, PeMmu
    from sipsim.chips.ahbm.memory.ports import MemoryPorts
    from sipsim.chips.ahbm.memory.store import MemoryStore
    from sipsim.chips.ahbm.mesh import CubeMeshGraph
    from sipsim.chips.ahbm.pe.cpu import PeCpu
    from sipsim.chips.ahbm.pe.dma import PeDma
    from sipsim.chips.ahbm.pe.engine import Units
    from sipsim.chips.ahbm.pe.tcm import TcmBudget
    from sipsim.chips.ahbm.plan import Plan
    from sipsim.core.engine import Engine
    from sipsim.core.session import Session
    from sipsim.core.task import Task
    from sipsim.fabric.transport import Transport
    from sipsim.records.recorder import Recorder


class SipParts:
    """Parts of SIP ``sip`` that its PEs share. Attribute ``fabric`` and all below it are rebuilt at each row start.

    ``page_table`` is None if the PEs have no MMU. ``closed``: numbers of the closed generations of queue pairs.
    ``checker`` is None without ``--check-invariants``. ``ipcqs``: PE_IPCQ of each PE in use, by cube and PE.
    """

    sip: int
    plan: Plan
    graph: CubeMeshGraph
    engine: Engine
    session: Session
    memory: MemoryStore
    page_table: PageTable | None
    recorder: Recorder
    wire_format: WireFormat
    closed: ClosedGenerations
    fabric: Transport
    memory_ports: MemoryPorts
    checker: InvariantChecker | None
    ipcqs: Ipcqs
    messages: MessageSender
    credits: CreditSender


class PeParts:
    """Parts of PE ``pe`` of cube ``cube``, and the state of its kernel: ``task``, ``phase`` (empty without a phase) and
    ``run``, the index of the kernel's collective in the SIP's list (None for a kernel outside collectives).

    ``gemm_dma``: PE_DMA for the transfers of PE_GEMM. ``room``: TCM space for the kernel's handles; None if handles
    take no space. ``mmu`` is None if address translation takes no time.
    """

    cube: int
    pe: int
    dma: PeDma
    gemm_dma: PeDma
    mmu: PeMmu | None
    cpu: PeCpu
    units: Units
    ipcq: PeIpcq
    room: TcmBudget | None
    task: Task | None
    phase: str
    run: int | None
