"""What the microbenchmarks' host scripts share: buffers with a word of flow control behind each, and their figures."""

import json
import sys
from typing import Any, NamedTuple

from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.core.errors import SimulationError

MARK = "ahbm-bench "
READY_CHANNELS, TOLD_CHANNEL = (29, 30), 31
"""Channels of ``erisc_info`` whose words the handshake uses: here, by turns, and of what the far end said. A word may
be written again in the turn after next: the far end has answered the one between, so it had this one.
"""


class Slots(NamedTuple):
    """``buffers`` of ``nbytes`` each, and behind each the 16 B that say what is in it, from ``base`` on.

    Those of a sender and of its receiver have the same addresses. The first word behind a payload is the number of its
    bytes, or 0: the buffer is free.
    """

    base: int
    nbytes: int
    buffers: int

    def payload(self, number: int) -> int:
        """Where message ``number`` lies."""
        return self.base + number % self.buffers * (self.nbytes + SYNC_BYTES)

    def sync(self, number: int) -> int:
        """Where the word of flow control of message ``number`` lies."""
        return self.payload(number) + self.nbytes

    @property
    def end(self) -> int:
        """The first address behind all of them."""
        return self.base + self.buffers * (self.nbytes + SYNC_BYTES)


def send_merged(slots: Slots, number: int, df: EthDataflow) -> None:
    """Send message ``number`` and its word of flow control in one command."""
    df.write_word(slots.sync(number), slots.nbytes)
    _send(slots.payload(number), slots.nbytes + SYNC_BYTES, df)


def send_free(slots: Slots, number: int, df: EthDataflow) -> None:
    """Tell the sender of message ``number`` that its buffer is free."""
    df.write_word(slots.sync(number), 0)
    _send(slots.sync(number), SYNC_BYTES, df)


def begin(number: int, df: EthDataflow) -> None:
    """Both ends of a link begin program ``number``, from 1, when both have come here."""
    _handshake(2 * number - 1, df)


def end(number: int, df: EthDataflow) -> None:
    """Both ends of a link end program ``number`` together: all that was sent has left, and memories may change."""
    _handshake(2 * number, df)


def _handshake(number: int, df: EthDataflow) -> None:
    ready, told = df.sync_address(READY_CHANNELS[number % 2]), df.sync_address(TOLD_CHANNEL)
    df.write_word(ready, number)
    df.eth_send_packet(0, ready // WORD_BYTES, told // WORD_BYTES, 1)
    df.noc_semaphore_wait_min(told, number)


def settings() -> Any:
    """What ``ahbm-bench`` has given to the script."""
    return json.loads(sys.argv[1])


def tell(**figures: object) -> None:
    """Hand figures to ``ahbm-bench``."""
    print(MARK + json.dumps(figures), flush=True)


def pattern(nbytes: int, number: int) -> bytes:
    """The bytes of message ``number``: other ones than those of its neighbours."""
    return bytes((7 * number + position) % 251 for position in range(nbytes))


def check(what: str, found: bytes, expected: bytes) -> None:
    """Check what has arrived.

    Raises:
        SimulationError: when it is not what was sent.
    """
    if found != expected:
        first = next(place for place, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        raise SimulationError(f"{what}: byte {first} is {found[first]}; {expected[first]} was sent")


def _send(address: int, nbytes: int, df: EthDataflow) -> None:
    df.eth_send_packet(0, address // WORD_BYTES, address // WORD_BYTES, nbytes // WORD_BYTES)
