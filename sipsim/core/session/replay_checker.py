"""Compares the packets of a restarted SIP with those that it sent before. Pure.

If they differ, the program is not deterministic and recovery is impossible. The sender compares with its own packet
log, a receiver with the packets that it has taken.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b

from sipsim.core.errors import NondeterministicReplay

Packet = tuple[int, int, bytes]
"""Channel, arrival in ps, body."""
FINGERPRINT_BYTES = 8
_KEY = struct.Struct(">IQ")


def fingerprint(packet: Packet) -> bytes:
    """64 bits of a packet: BLAKE2b of its channel, arrival and body."""
    channel, arrival_ps, body = packet
    return blake2b(body, digest_size=FINGERPRINT_BYTES, key=_KEY.pack(channel, arrival_ps)).digest()


class ReplayChecker:
    """Packet fingerprints known to ``rank``. ``logged``: by destination, of all packets in its packet log."""

    def __init__(self, rank: int, logged: dict[int, list[bytes]]) -> None:
        self._rank = rank
        self._logged = logged
        self._taken: dict[int, bytearray] = {}

    def has_sent(self, dst: int, number: int, packet: Packet) -> bool:
        """Whether this packet was sent before a restart, and need not be sent again.

        Raises:
            NondeterministicReplay: when a different packet was sent under this number.
        """
        logged = self._logged.get(dst)
        if logged is None or number >= len(logged):
            return False
        if fingerprint(packet) != logged[number]:
            raise _differs(self._rank, number, dst, packet)
        return True

    def note_taken(self, src: int, first: int, packets: Sequence[Packet]) -> None:
        """Record consecutive packets from ``src``, the first of which is number ``first``; compare the repeated ones.

        Raises:
            NondeterministicReplay: when one differs from the packet taken under its number before.
        """
        taken = self._taken.setdefault(src, bytearray())
        for number, packet in enumerate(packets, first):
            at, found = number * FINGERPRINT_BYTES, fingerprint(packet)
            if at == len(taken):
                taken += found
            elif found != taken[at : at + FINGERPRINT_BYTES]:
                raise _differs(src, number, self._rank, packet)


def _differs(src: int, number: int, dst: int, packet: Packet) -> NondeterministicReplay:
    return NondeterministicReplay(
        f"SIP {src} was started again and sent packet {number} to SIP {dst} (arrival {packet[1]} ps) differently than "
        f"before: its program is not deterministic (wall clock, unseeded randomness, set order or outside state?)"
    )
