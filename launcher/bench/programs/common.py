"""Common code of the host scripts: buffers that a word of flow control follows, barriers, checks, and reports."""

import json
import sys
from typing import Any, NamedTuple

from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.core.errors import SimulationError

MARK = "ahbm-bench "
READY_CHANNELS, PEER_CHANNEL = (29, 30), 31
"""Channels of ``erisc_info`` for the handshake: two local words, used in turn, and the word that the far end writes. So
handshake n + 2 rewrites the word of handshake n: by then, the far end's answer to n + 1 has shown that it was sent.
"""


class Slots(NamedTuple):
    """Ring of ``buffers`` of ``nbytes`` each, from address ``base`` on; 16 B of flow control follow each buffer.

    Sender and receiver have the buffers at the same addresses. The first word of flow control is the payload's size in
    bytes, or 0 if the buffer is free.
    """

    base: int
    nbytes: int
    buffers: int

    def payload(self, number: int) -> int:
        """Return the address of the buffer of message ``number``."""
        return self.base + number % self.buffers * (self.nbytes + SYNC_BYTES)

    def sync(self, number: int) -> int:
        """Return the address of the word of flow control of message ``number``."""
        return self.payload(number) + self.nbytes

    @property
    def end(self) -> int:
        """The first address after the ring."""
        return self.base + self.buffers * (self.nbytes + SYNC_BYTES)


def send_merged(slots: Slots, number: int, df: EthDataflow) -> None:
    """Send message ``number`` and its word of flow control in one command."""
    df.write_word(slots.sync(number), slots.nbytes)
    _send(slots.payload(number), slots.nbytes + SYNC_BYTES, df)


def send_free(slots: Slots, number: int, df: EthDataflow) -> None:
    """Notify the sender of message ``number`` that the message's buffer is free."""
    df.write_word(slots.sync(number), 0)
    _send(slots.sync(number), SYNC_BYTES, df)


def begin(number: int, df: EthDataflow) -> None:
    """Wait for the other end of the link, before program ``number``, counted from 1."""
    _handshake(2 * number - 1, df)


def end(number: int, df: EthDataflow) -> None:
    """Wait for the other end of the link, after program ``number``: all messages have left, and L1 may be reused."""
    _handshake(2 * number, df)


def _handshake(number: int, df: EthDataflow) -> None:
    ready, peer = df.sync_address(READY_CHANNELS[number % 2]), df.sync_address(PEER_CHANNEL)
    df.write_word(ready, number)
    df.eth_send_packet(0, ready // WORD_BYTES, peer // WORD_BYTES, 1)
    df.noc_semaphore_wait_min(peer, number)


def settings() -> Any:
    """Return the arguments that ``ahbm-bench`` has passed to the host script."""
    return json.loads(sys.argv[1])


def report(**figures: object) -> None:
    """Report figures to ``ahbm-bench``."""
    print(MARK + json.dumps(figures), flush=True)


def pattern(nbytes: int, number: int) -> bytes:
    """Return the bytes of message ``number``, which differ from those of adjacent messages."""
    return bytes((7 * number + position) % 251 for position in range(nbytes))


def check(what: str, found: bytes, expected: bytes) -> None:
    """Compare received bytes with the expected ones.

    Raises:
        SimulationError: if a byte differs.
    """
    if found != expected:
        first = next(index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        raise SimulationError(f"{what}: byte {first} is {found[first]}; {expected[first]} was sent")


def _send(address: int, nbytes: int, df: EthDataflow) -> None:
    df.eth_send_packet(0, address // WORD_BYTES, address // WORD_BYTES, nbytes // WORD_BYTES)
