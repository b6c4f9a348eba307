"""The parts of its SIP that PE_IPCQ uses."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from sipsim.chips.ahbm.ipcq.backpressure import Backpressure
from sipsim.chips.ahbm.ipcq.credits import CreditReturn
from sipsim.chips.ahbm.ipcq.generations import ClosedGenerations
from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqDmaToken
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.ipcq.slots import Copier
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.core.engine import Engine
from sipsim.records.recorder import Recorder


class DataPlane(Protocol):
    """Moves the bytes of messages for PE_IPCQ."""

    def carry_token(
        self,
        queue: QueuePair,
        token: IpcqDmaToken,
        read_pa: int | None,
        passed: Callable[[IpcqDmaToken, int], None] | None,
    ) -> None:
        """Write ``token.data`` to ``token.dst_addr``, from ``token.sent_ps`` on, and then call ``arrive`` there.

        ``passed`` is told when its last byte passes PE_DMA.
        """

    def forget(self, queue: QueuePair) -> None:
        """Drop what is kept for a queue pair, which sends no more."""


class IpcqContext(NamedTuple):
    """The parts that PE_IPCQ uses: its SIP's engine and memory, and those that it delegates to. ``latch``: of the
    config. ``look_up``: the physical address of a slot by its virtual one, where the PE has an MMU. ``closed``: the
    generations that its SIP has closed.
    """

    engine: Engine
    memory: MemoryStore
    data_plane: DataPlane
    copier: Copier
    backpressure: Backpressure
    credit_return: CreditReturn
    recorder: Recorder
    checker: InvariantChecker | None = None
    latch: str | None = None
    look_up: Callable[[int, int], int] | None = None
    closed: ClosedGenerations | None = None
