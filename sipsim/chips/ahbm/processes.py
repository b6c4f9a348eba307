"""Processes of users' parts on one SIP: what they may use of the SIP, and when those in the background stop."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simpy.events import Event, Process

from sipsim.chips.ahbm.address import Block, PhysAddr
from sipsim.core.engine import AFTER, Timeline
from sipsim.core.errors import ProcessMisuse, pass_on_halt
from sipsim.core.processes import Steps, Transfer
from sipsim.core.task import TaskFailed
from sipsim.core.units import format_time_ps
from sipsim.fabric.graph import Node

if TYPE_CHECKING:
    from sipsim.chips.ahbm.sip import Sip

SENDERS = "pe", "m_cpu"
"""Node kinds at which a transfer of any part may begin, besides nodes of the part itself."""
_BETWEEN = "router", "ucie"
_NO_LINK = "a part reaches no other SIP: only messages and credits of PEs, and the barrier, cross links"


class PartDoor:
    """Door of a part of node kind ``kind`` to one SIP, for the part's SimPy processes.

    ``env``: the SIP's SimPy environment, in ps. ``sip``: number of the SIP. ``sizes``: numbers of PEs of a cube, of
    cubes of a SIP, and of SIPs.
    """

    def __init__(self, kind: str, sip: "Sip") -> None:
        system = sip.plan.system
        self.kind = kind
        self.env: Timeline = sip.engine.env
        self.sip = sip.sip
        self.sizes = system.n_pes, system.n_cubes, system.n_sips
        self._sip = sip

    def start(self, generator: Steps, name: str = "", background: bool = False) -> Process:
        """Start a process now; return the event of its end. ``name``: for reports, default that of the function.

        The run ends when the process has ended, unless it is in the ``background``.
        """
        return self.env.start(generator, f"part {self.kind}", name, background)

    def node(self, cube: int, place: int = 0) -> Node:
        """Return node ``place`` of this part in a cube."""
        return Node(self.kind, cube, place)

    def transfer(self, src: Node, dst: Node | int, nbytes: int) -> Event:
        """Send ``nbytes`` over the SIP's fabric; return an event that succeeds when the last byte is at ``dst``.

        ``src``: a node of this part, a PE (``Node("pe", cube, pe)``) or an M_CPU; its transfers leave in order.
        ``dst``: a node, or an address: then the bytes also pass the edges of its memory, without its latency and
        ``serve``. Memories keep their contents.

        Raises:
            ProcessMisuse: for another ``src``, a ``dst`` that is not in this SIP or behind a link, and bytes below 1.
        """
        sip = self._sip
        if type(nbytes) is not int or nbytes < 1:
            raise ProcessMisuse(f"a transfer of {nbytes!r} bytes; must be an int of 1 or more")
        self._check_node(src, (self.kind, *SENDERS), "begins")
        if isinstance(dst, int):
            place = self._place(dst)
            end = sip.graph.node_of(place)
            route = sip.memory_ports.at(place.space, end).writing(Block.piece(dst, nbytes), sip.graph.route(src, end))
        else:
            self._check_node(dst, [kind for kind in sip.graph.parts if kind not in ("io", *_BETWEEN)], "ends")
            route = sip.graph.route(src, dst)
        arrived = Transfer(self.env)
        if route.edges:
            sip.fabric.start(sip.fabric.train((src, self.kind)), route, nbytes, arrived.end)
        else:
            arrived.succeed()
        return arrived

    def _place(self, address: int) -> PhysAddr:
        pes, cubes, _ = self.sizes
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise ProcessMisuse(f"a transfer to {address:#x}, which is no address: {error}") from None
        if place.sip != self.sip:
            raise ProcessMisuse(f"a transfer from SIP {self.sip} to {place}; {_NO_LINK}")
        if place.cube >= cubes or place.pe >= pes:
            raise ProcessMisuse(
                f"a transfer to {place}; a SIP has cubes 0 to {cubes - 1}, each with PEs 0 to {pes - 1}"
            )
        return place

    def _check_node(self, node: Node, kinds: Any, what: str) -> None:
        pes, cubes, _ = self.sizes
        if node.kind not in kinds:
            why = "" if node.kind in _BETWEEN else f"; {_NO_LINK}"
            raise ProcessMisuse(f"a transfer {what} at {node}; must be one of {', '.join(kinds)}{why}")
        if not (0 <= node.cube < cubes and (node.kind != "pe" or 0 <= int(node.place) < pes)):
            raise ProcessMisuse(f"a transfer {what} at {node}; a SIP has cubes 0 to {cubes - 1}, each with {pes} PEs")


class PartProcesses:
    """Processes of all parts of one SIP, made with the SIP and at each row start.

    Background processes stop when nothing of the SIP's program is left, behind all events of that time: the host
    program has ended, and all launches and foreground processes. They also stop when the SIP enters a row start.
    """

    def __init__(self, sip: "Sip") -> None:
        self._sip, engine = sip, sip.engine
        self._launches = 0
        parts = [(kind, part.processes) for kind, part in sip.graph.parts.items() if part.processes is not None]
        engine.env.on_end = self.note_end
        for kind, make in parts:
            engine.at(engine.now_ps, partial(self._make, kind, make))

    def _make(self, kind: str, make: Callable[[PartDoor], None]) -> None:
        env, door = self._sip.engine.env, PartDoor(kind, self._sip)
        env.owner = f"part {kind}"
        try:
            made: Any = make(door)  # type: ignore[func-returns-value]
            if made is not None:
                raise ProcessMisuse("processes(door) returned a value; must start its generators: door.start(...)")
        except BaseException as error:
            pass_on_halt(error)
            raise TaskFailed(env.owner, shows_line=True) from error
        finally:
            env.owner = ""

    def of_launch(self, done: Callable[[int], None]) -> Callable[[int], None]:
        """Count a launch; return ``done`` with the note that the launch has ended."""

        def ended(span: int) -> None:
            done(span)
            self._launches -= 1
            self.note_end()

        self._launches += 1
        return ended

    def note_end(self) -> None:
        """Note that the host program, a launch or a process has ended: the last of them stops the background."""
        engine = self._sip.engine
        if any(process.is_server for process in engine.env.processes):
            engine.at(engine.now_ps, self._stop_if_over, AFTER)

    def _stop_if_over(self) -> None:
        if not (self._launches or self._sip.waiting()):
            self._sip.engine.env.stop_background()

    def check_row_start(self) -> None:
        """Check at a row start that no foreground process is left.

        Raises:
            ProcessMisuse: if one waits.
        """
        for left in self._sip.engine.env.processes:
            when = format_time_ps(self._sip.engine.now_ps)
            what = f"{left.name} waits for {left.waits_for} at a row start ({when})"
            raise ProcessMisuse(f"{what}, which nothing ends; must have ended, or be in the background")
