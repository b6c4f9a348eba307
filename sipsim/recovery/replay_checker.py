"""Whether what happens again is what happened before: packets of a SIP that was started again, compared. Pure.

Its successor makes the same packets, or the program is not deterministic and no recovery could be right. The sender
compares with what its own log holds, a receiver with what it has taken.
"""

from collections.abc import Sequence

from sipsim.errors import NondeterministicReplay
from sipsim.recovery.packet_log import fingerprint

Packet = tuple[int, int, bytes]


class ReplayChecker:
    """What ``rank`` compares with. ``logged``: by destination, fingerprints of what its predecessors sent."""

    def __init__(self, rank: int, logged: dict[int, list[bytes]]) -> None:
        self._rank = rank
        self._logged = logged
        self._taken: dict[int, list[bytes]] = {}

    def has_sent(self, dst: int, number: int, packet: Packet) -> bool:
        """Whether a predecessor has sent this packet, so that it need not be sent again.

        Raises:
            NondeterministicReplay: when it sent another one under this number.
        """
        logged = self._logged.get(dst)
        if logged is None or number >= len(logged):
            return False
        if fingerprint(packet) != logged[number]:
            raise _differs(self._rank, number, dst, packet)
        return True

    def note_taken(self, src: int, first: int, packets: Sequence[Packet]) -> None:
        """Packets that follow each other have come, for the first time or again.

        Raises:
            NondeterministicReplay: when one differs from what came under its number before.
        """
        taken = self._taken.setdefault(src, [])
        for number, packet in enumerate(packets, first):
            if number == len(taken):
                taken.append(fingerprint(packet))
            elif fingerprint(packet) != taken[number]:
                raise _differs(src, number, self._rank, packet)


def _differs(src: int, number: int, dst: int, packet: Packet) -> NondeterministicReplay:
    return NondeterministicReplay(
        f"SIP {src} was started again and sent packet {number} to SIP {dst} (arrival {packet[1]} ps) differently than "
        f"before: its program is not deterministic (wall clock, unseeded randomness, set order or outside state?)"
    )
