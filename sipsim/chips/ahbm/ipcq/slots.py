"""The slots of a PE's receive rings from the step in which a message is taken until its credit is returned.

What happens in between is ``latch`` of ``ccl.yaml`` (:mod:`sipsim.chips.ahbm.ipcq.messages`). A slot is credited
only when its bytes were read, and all slots before it.
"""

from collections.abc import Callable

from sipsim.chips.ahbm.ipcq.credits import CreditReturn
from sipsim.chips.ahbm.ipcq.messages import COPY, IN_PLACE, Credit, Received, ReceiveRequest, TakenSlot
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.parts import PeParts, SipParts


def nothing() -> None:
    """Nobody waits."""


Ps = int


class Slots:
    """The slots of one PE, whose PE_IPCQ is ``name`` in spans. ``queues``: by full name. ``deliver(queue, cause)``:
    serve the receives that a copy has held up.
    """

    def __init__(
        self,
        sip: SipParts,
        pe: PeParts,
        name: str,
        queues: dict[str, QueuePair],
        credit_return: CreditReturn,
        deliver: Callable[[QueuePair, int], None],
    ) -> None:
        self.place = sip.sip, pe.cube, pe.pe
        self.name = name
        self._queues = queues
        self._deliver = deliver
        self._engine = sip.engine
        self._memory = sip.memory
        self._dma = pe.dma
        self._credit_return = credit_return
        self._span = sip.recorder.span
        self._checker = sip.checker
        self._latch = sip.plan.ipcq.latch

    def take(self, queue: QueuePair, receive: ReceiveRequest, cause: int) -> None:
        """Take the next message; its slot is freed when its bytes were read
        (:mod:`sipsim.chips.ahbm.ipcq.messages`).
        """
        slot_pa, message = queue.next_rx_slot_pa(), queue.messages.pop(queue.taken)
        nbytes = len(message.data)
        data = self._memory.read(slot_pa, nbytes)
        if self._checker is not None:
            self._checker.taken(self.place, queue, data)
        taken = TakenSlot(queue.direction, queue.taken, slot_pa, nbytes)
        queue.taken += 1
        queue.in_use.append(taken)
        dtype, shape, sender, call = message.dtype, message.shape, message.src_sip, message.call
        receive.take(Received(queue.direction, slot_pa, queue.taken, data, dtype, shape, sender, call))
        if receive.copy_to is not None and receive.copy_to.nbytes == nbytes:
            self._copy(taken, receive, cause)
        elif self._latch == IN_PLACE:
            receive.freed_by, receive.freed_ps = cause, self._engine.now_ps
            receive.keep(taken)
        elif self._latch == COPY:
            self._copy(taken, receive, cause)
        else:
            self._free(taken, receive, cause)

    def _copy(self, taken: TakenSlot, receive: ReceiveRequest, cause: int) -> None:
        """Copy a message, to its receive's destination or to the PE's TCM; then its slot is free."""
        queue, taken_ps, slot_pa, copy_to = (
            self._queues[taken.direction],
            self._engine.now_ps,
            taken.slot_pa,
            receive.copy_to,
        )
        queue.blocked = True
        place = self._dma.tcm.address if receive.tcm_pa is None else receive.tcm_pa
        name, address = ("latch", place) if copy_to is None else ("copy", copy_to.address)

        def copied() -> None:
            queue.blocked = False
            copy = self._span(self.name, name, taken_ps, self._engine.now_ps, cause, slot_pa, address, taken.nbytes)
            self._free(taken, receive, copy)
            self._deliver(queue, copy)

        if copy_to is None:
            self._dma.latch(slot_pa, address, taken.nbytes, copied)
        else:
            self._dma.copy(slot_pa, address, self._memory.read(slot_pa, taken.nbytes), copied)

    def _free(self, taken: TakenSlot, receive: ReceiveRequest, cause: int) -> None:
        """The bytes of a message were read for its receive."""
        if receive.start_ps > self._engine.now_ps:
            receive.freed_by, receive.freed_ps = receive.cause, receive.start_ps
        else:
            receive.freed_by, receive.freed_ps = cause, self._engine.now_ps
        self._was_read(taken, receive.freed_by, receive.freed_ps, receive.returned)

    def release(
        self,
        taken: TakenSlot,
        cause: int,
        emitted: Callable[[], None] = nothing,
        unread: bool = False,
        read_ps: Ps | None = None,
    ) -> None:
        """A handle stands for its slot no more, by span ``cause``: its bytes are read now or at ``read_ps``, or nobody
        will read them.

        ``emitted`` is called when the credit has been emitted, or waits for a slot before this one.
        """
        if taken.read_ps is not None:
            emitted()
            return
        self._was_read(taken, cause, self._engine.now_ps if read_ps is None else read_ps, emitted, unread=unread)

    def release_all(self, cause: int) -> None:
        """The kernel has ended: what it still uses in place is released."""
        for queue in self._queues.values():
            for taken in [each for each in queue.in_use if each.handle]:
                self.release(taken, cause, unread=True)

    def _was_read(
        self, taken: TakenSlot, cause: int, read_ps: Ps, emitted: Callable[[], None], unread: bool = False
    ) -> None:
        """A slot is read at ``read_ps``, now or later. Those up to the first whose reading is not known are freed when
        the last of them is read.
        """
        queue, taken.read_ps, taken.read_by = self._queues[taken.direction], read_ps, cause
        if self._checker is not None:
            self._checker.read(self.place, queue, taken, unread)
        before, freed_ps, freed_by = queue.my_tail, queue.freed_ps, queue.freed_by
        while queue.in_use and (last_ps := queue.in_use[0].read_ps) is not None:
            freed = queue.in_use.popleft()
            if last_ps >= freed_ps:
                freed_ps, freed_by = last_ps, freed.read_by
            queue.my_tail += 1
            if self._checker is not None:
                self._checker.freed(self.place, queue)
        if queue.my_tail == before:
            emitted()
            return
        queue.freed_ps, queue.freed_by = freed_ps, freed_by
        credit = Credit(
            queue.my_tail, queue.my_rx_base_pa, *self.place, queue.direction, freed_ps, freed_by, queue.generation
        )
        self._credit_return.return_credit(queue, credit, emitted)
