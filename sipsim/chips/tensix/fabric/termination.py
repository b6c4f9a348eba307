"""Termination of a fabric on one chip: signals, the search for a quiet moment, and the release of cores, L1 and links.

A router has a word for the signal: ``GRACEFULLY_TERMINATE`` lets all packets under way arrive, and
``IMMEDIATELY_TERMINATE`` drops them by name. Source of the signals and of their order: pull request 14923 of tt-metal.

*Gracefully.* Chips form a path in which neighbours share a link. A token goes up the path and back. A chip passes the
token on when no router of the chip has a packet, a missing credit or a connected worker. If no chip below the top has
sent a packet between its two turns, no packet is left anywhere, since only a packet makes another chip busy again.
Else the token starts anew (Dijkstra, Feijen, van Gasteren: Derivation of a termination detection algorithm, 1983).

*Release.* Each end of a link sends END as the last message of its router, with the number of credit messages before. A
core is free when its router has sent END and has received END and those credits, so no later message can disturb the
next user of the core.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from sipsim.chips.tensix.noc import Core

if TYPE_CHECKING:
    from sipsim.chips.tensix.fabric.mux import Mux
    from sipsim.chips.tensix.fabric.router import Router
    from sipsim.core.engine import Engine


class Signal(IntEnum):
    """Value of a router's termination word."""

    KEEP_RUNNING = 0
    GRACEFULLY_TERMINATE = 1
    IMMEDIATELY_TERMINATE = 2


SIGNALS: Final = {"graceful": Signal.GRACEFULLY_TERMINATE, "immediate": Signal.IMMEDIATELY_TERMINATE}


class TerminationInfo(NamedTuple):
    """Place of a router's termination word. ``distance``: hops from the first chip of the fabric, in direction E."""

    distance: int
    core: Core
    address: int


class Origin(NamedTuple):
    """Origin of a packet: the worker that sent it, and the packet's number at the first router, from 0 on."""

    rank: int
    x: int
    y: int
    number: int


class LostPacket(NamedTuple):
    """Packet that an immediate termination has dropped. ``ranks``: chips that the packet did not reach. ``places``:
    tile, address and size in bytes of what it would have written there. ``at``: channel that held the packet.
    """

    origin: Origin
    ranks: tuple[int, ...]
    places: tuple[tuple[Core, int, int], ...]
    at: str


def loss_lines(lost: Sequence[LostPacket]) -> list[str]:
    """Return a line of text for the packets that one channel lost of one worker to the same chips."""
    groups: dict[tuple[int, Core, tuple[int, ...], str], list[int]] = {}
    for each in lost:
        rank, x, y, number = each.origin
        groups.setdefault((rank, Core(x, y), each.ranks, each.at), []).append(number)
    lines = []
    for (rank, core, ranks, at), numbers in groups.items():
        source, chips = f"worker {core} of SIP {rank}", ", ".join(map(str, ranks))
        which = ", ".join(map(str, numbers))
        lines.append(f"{at} lost packets {which} of {source} to SIP {chips}: the fabric was terminated immediately")
    return lines


class Notice(IntEnum):
    """Message of a terminating router to the far end of its link."""

    UP = 1
    DOWN = 2
    DOWN_BUSY = 3
    END = 4
    END_NOW = 5


NOTICE: Final = struct.Struct("<II8x")
"""Notice, and the number of credit messages that the router has sent."""


class Termination:
    """Termination of a fabric on one chip; as text, what is missing. ``up``, ``down``: the routers towards the next and
    the previous chip of the path, None at an end. ``on_ended``: called when all routers are released.
    """

    def __init__(
        self,
        routers: Sequence["Router"],
        up: "Router | None",
        down: "Router | None",
        muxes: Sequence["Mux"],
        engine: "Engine",
        on_ended: Callable[[], None],
    ) -> None:
        self._routers = routers
        self._up, self._down = up, down
        self._muxes = muxes
        self._engine = engine
        self._on_ended = on_ended
        self._token: Notice | None = None if down is not None else Notice.DOWN_BUSY
        self._sent = 0
        self._may_end = False
        self._is_over = self._is_planned = False
        self.has_ended = False

    # --- events ---------------------------------------------------------------------------------------------------

    def allow(self) -> None:
        """Let the fabric end on this chip once the routers have their signals: no kernel uses the fabric any more."""
        self._may_end = True
        self.plan()

    def signal(self, router: "Router", value: int) -> None:
        """Take the signal of a router."""
        if value >= Signal.IMMEDIATELY_TERMINATE:
            router.stop()
        router.signal = max(router.signal, Signal(min(value, Signal.IMMEDIATELY_TERMINATE)))
        self.plan()

    def notice(self, router: "Router", data: bytes) -> None:
        """Take a notice from the far end of a router's link."""
        number, words = NOTICE.unpack(data)
        notice = Notice(number)
        if notice in (Notice.END, Notice.END_NOW):
            router.far_words, router.is_cut = words, notice is Notice.END_NOW
            self._is_over |= notice is Notice.END
            self._look()
        else:
            self._token = notice
            self.plan()

    def plan(self) -> None:
        """Look at the state after the events of this moment, if the fabric is to end."""
        if not self._is_planned and (self._may_end or any(router.signal for router in self._routers)):
            self._is_planned = True
            self._engine.at(self._engine.now_ps, self._look)

    # --- decisions ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._is_planned = False
        if self.has_ended:
            return
        for mux in self._muxes if all(router.signal for router in self._routers) else ():
            mux.terminate()
        if self._may_end:
            if self._is_graceful and not self._is_over:
                self._pass_token()
            if self._is_over or self._is_quiet:
                self._end_routers()
        for router in self._routers:
            if not router.is_released and router.has_ended:
                router.release()
        if all(router.is_released for router in self._routers):
            self.has_ended = True
            self._on_ended()

    @property
    def _is_graceful(self) -> bool:
        """Whether all routers have the graceful signal. A link whose far end stopped at once makes them stop, too."""
        if all(router.signal == Signal.GRACEFULLY_TERMINATE for router in self._routers):
            if self._is_over or not any(router.is_cut for router in self._routers):
                return True
            for router in self._routers:
                self.signal(router, Signal.IMMEDIATELY_TERMINATE)
        return False

    @property
    def _is_quiet(self) -> bool:
        """Whether all routers have stopped, and no worker and no write of this chip can reach them."""
        return all(router.is_stopped and not router.is_in_use for router in self._routers)

    def _pass_token(self) -> None:
        if self._token is None or not all(router.is_drained for router in self._routers):
            return
        sent = sum(router.packets_sent for router in self._routers)
        is_busy, self._sent = sent != self._sent, sent
        token, self._token = self._token, None
        if self._down is None:
            if token is Notice.DOWN and not is_busy:
                self._is_over = True
            elif self._up is not None:
                self._up.send_notice(Notice.UP)
        elif token is not Notice.UP:
            self._down.send_notice(Notice.DOWN_BUSY if is_busy else token)
        elif self._up is not None:
            self._up.send_notice(Notice.UP)
        else:
            self._down.send_notice(Notice.DOWN)

    def _end_routers(self) -> None:
        for router in self._routers:
            if router.is_open and not router.has_said_end:
                router.has_said_end = True
                router.send_notice(Notice.END if self._is_over else Notice.END_NOW)

    def __str__(self) -> str:
        unsignalled = [router.name for router in self._routers if not router.signal]
        if unsignalled:
            return f"the end of its fabric: no termination signal at {', '.join(unsignalled)}"
        unopened = [router.name for router in self._routers if not router.is_open]
        if unopened:
            return f"the end of its fabric: the far ends of {', '.join(unopened)} have not opened the fabric"
        busy = [router.name for router in self._routers if not router.is_stopped and not router.is_drained]
        if busy:
            return f"the end of its fabric: packets or open connections at {', '.join(busy)}"
        return "the end of its fabric on the other chips"
