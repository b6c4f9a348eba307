"""Sender and receiver of one direction of a link; the loop of an Ethernet core visits both.

A visit with work sends one message or takes one arrived message, and then spends the time of the bookkeeping (parameter
``data_mover`` of the chip). Payload and flow control are sent in one command. The receiver reports a buffer as free at
once or, with a worker, after the payload is written to the worker; the loop waits for this write unless writes have
transaction ids. The receiver checks the number in each message, in zero simulated time.
"""

from typing import Any

from launcher.bench.programs.common import Slots, check, pattern, send_free, send_merged
from sipsim.chips.tensix.eth_dataflow import EthDataflow
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.tiles import TRANSACTION_IDS


class Sender:
    """Sending side of one direction of a link. ``messages``: number of messages; ``slots``: ring of buffers."""

    def __init__(self, slots: Slots, messages: int, tt: Any, df: EthDataflow) -> None:
        self._slots, self._messages, self._tt, self._df = slots, messages, tt, df
        self._sent = self._freed = 0
        self._visit_ns = tt.params.data_mover.sender_visit_ns

    @property
    def is_done(self) -> bool:
        """Whether the receiver has freed the buffers of all messages."""
        return self._freed == self._messages

    def has_work(self) -> bool:
        """Whether the next visit has something to do."""
        return self._is_oldest_free() or self._may_send()

    def work(self) -> None:
        """Make one visit: note a freed buffer, and send a message, if possible."""
        if self._is_oldest_free():
            self._freed += 1
        if self._may_send():
            payload = pattern(16, self._sent)
            self._tt.write(self._df.core, self._slots.payload(self._sent), payload)
            send_merged(self._slots, self._sent, self._df)
            self._sent += 1
            self._df.instructions(self._visit_ns)

    def _is_oldest_free(self) -> bool:
        return self._freed < self._sent and not self._df.peek_word(self._slots.sync(self._freed))

    def _may_send(self) -> bool:
        return self._sent < self._messages and self._sent - self._freed < self._slots.buffers


class Receiver:
    """Receiving side of one direction. ``worker``: tile to which payloads are written, or None if payloads stay."""

    def __init__(self, slots: Slots, messages: int, worker: Core | None, mode: str, tt: Any, df: EthDataflow) -> None:
        self._slots, self._messages, self._tt, self._df = slots, messages, tt, df
        self._worker, self._has_ids = worker, mode == "ids"
        self._taken = self._freed = 0
        self._visit_ns = tt.params.data_mover.receiver_visit_ns

    @property
    def is_done(self) -> bool:
        """Whether all messages have arrived and their buffers are free."""
        return self._freed == self._messages

    def has_work(self) -> bool:
        """Whether the next visit has something to do."""
        return self._has_arrived() or self._may_free()

    def work(self) -> None:
        """Make one visit: take an arrived message, and report a free buffer, if possible."""
        if self._has_arrived():
            self._take()
            self._taken += 1
        if self._may_free():
            send_free(self._slots, self._freed, self._df)
            self._freed += 1
            self._df.instructions(self._visit_ns)

    def _has_arrived(self) -> bool:
        in_hand = self._taken - self._freed
        may_take = in_hand < min(self._slots.buffers, TRANSACTION_IDS) and self._taken < self._messages
        return may_take and self._df.peek_word(self._slots.sync(self._taken)) == self._slots.nbytes

    def _may_free(self) -> bool:
        if self._freed == self._taken:
            return False
        return not self._has_ids or self._df.are_writes_sent(self._freed % TRANSACTION_IDS)

    def _take(self) -> None:
        slots, df, address = self._slots, self._df, self._slots.payload(self._taken)
        check(f"message {self._taken} on {df.core}", self._tt.read(df.core, address, 16), pattern(16, self._taken))
        if self._worker is None:
            return
        to = df.get_noc_addr(*self._worker, self._tt.l1_base(self._worker))
        if self._has_ids:
            df.noc_async_write_one_packet_with_trid(address, to, slots.nbytes, self._taken % TRANSACTION_IDS)
        else:
            df.noc_async_write(address, to, slots.nbytes)
            df.noc_async_writes_flushed()
