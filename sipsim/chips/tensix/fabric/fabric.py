"""Fabric as seen by one chip's host script: the fabric's chips, this chip's routers, and the connections of workers."""

from collections.abc import Sequence
from typing import Any, Final

from sipsim.chips.tensix.arguments import Count, Natural, Within, checked, one_of, whole, worker_tile
from sipsim.chips.tensix.fabric.channels import SenderChannel, SlotCredits
from sipsim.chips.tensix.fabric.connection import WORKER_BYTES, ConnectionWords, FabricEndpoint
from sipsim.chips.tensix.fabric.layout import Idle, RouterLayout, layout
from sipsim.chips.tensix.fabric.mux import Mux, mux_rings, run_mux
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Direction, next_hop
from sipsim.chips.tensix.fabric.router import CostsPs, FabricProtocol, Router, Statistics, handshake_of
from sipsim.chips.tensix.fabric.termination import SIGNALS, LostPacket, Signal, Termination, TerminationInfo
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import Avoidance, FlowControl, RevisionParams
from sipsim.chips.tensix.programs import DataMovementConfig, KernelSpec, Program
from sipsim.chips.tensix.tiles import KIB
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

Neighbours = dict[Direction, int]
TOPOLOGIES = ("line", "ring", "neighbor", "mesh")
ROLES = ("dateline", "upstream", "adjacent")
"""Routers near a dateline: on the dateline's link; on the same chip's other link; at the far end of that other link."""


class Places:
    """Chips of a fabric, and the neighbours of each chip by direction. Pure.

    ``chips``: ranks in order, row by row in a ``mesh`` of ``columns``. ``passing``: number of sender channels per
    virtual channel that a router has for packets from other receivers of the chip.
    """

    def __init__(self, topology: str, chips: Sequence[int], columns: int = 0) -> None:
        if topology not in TOPOLOGIES:
            raise KernelMisuse(f"topology={topology!r}: give one of {', '.join(TOPOLOGIES)}")
        if len(set(chips)) != len(chips):
            raise KernelMisuse(f"chips={list(chips)} contains a chip twice; give each chip once")
        least = 3 if topology == "ring" else 2
        if len(chips) < least:
            raise KernelMisuse(f"a {topology} cannot have {len(chips)} chips; give {least} or more")
        if topology != "mesh" and columns:
            raise KernelMisuse(f"columns={columns} with topology {topology}: only a mesh has columns; omit columns")
        if topology == "mesh" and (columns < 1 or len(chips) % columns):
            raise KernelMisuse(
                f"{len(chips)} chips do not fill {columns} columns; give columns that divide {len(chips)}"
            )
        self.topology = topology
        self.chips = list(chips)
        self.columns = columns if topology == "mesh" else len(chips)
        self.is_ring = topology == "ring"
        self.passing = {"line": 1, "ring": 1, "neighbor": 0, "mesh": 3}[topology]

    @property
    def size(self) -> int:
        """The number of chips."""
        return len(self.chips)

    @property
    def text(self) -> str:
        """The chips in order as text, with consecutive ranks as ``first-last``, and the columns of a mesh."""
        runs = list[list[int]]()
        for chip in self.chips:
            if runs and chip == runs[-1][-1] + 1:
                runs[-1][1:] = [chip]
            else:
                runs.append([chip])
        text = " ".join("-".join(map(str, run)) for run in runs)
        return f"{text} in {self.columns} columns" if self.topology == "mesh" else text

    def position(self, rank: int) -> int:
        """Return the position of a chip in the fabric, from 0 on.

        Raises:
            KernelMisuse: if the chip is not in the fabric.
        """
        if rank not in self.chips:
            raise KernelMisuse(f"SIP {rank} opens a fabric of chips {self.chips}, to which it does not belong")
        return self.chips.index(rank)

    def neighbours(self, rank: int) -> Neighbours:
        """Return the neighbours of a chip by direction."""
        index, neighbours = self.position(rank), dict[Direction, int]()
        row, column = divmod(index, self.columns)
        for way, down, right in ((Direction.E, 0, 1), (Direction.W, 0, -1), (Direction.S, 1, 0), (Direction.N, -1, 0)):
            at_row, at_column = row + down, column + right
            if self.is_ring:
                at_column %= self.columns
            if 0 <= at_column < self.columns and 0 <= at_row < self.size // self.columns:
                neighbours[way] = self.chips[at_row * self.columns + at_column]
        return neighbours

    def path(self) -> list[int]:
        """Return the ranks in an order in which each chip is a neighbour of the next one: row by row, to and fro."""
        rows = [self.chips[first : first + self.columns] for first in range(0, self.size, self.columns)]
        return [rank for number, row in enumerate(rows) for rank in (row[::-1] if number % 2 else row)]

    def way_to(self, rank: int, far: int) -> Direction:
        """Return the direction of the link from a chip to a neighbour."""
        return next(way for way, each in self.neighbours(rank).items() if each == far)

    def ranks_of(self, header: bytes, rank: int, way: Direction) -> tuple[int, ...]:
        """Return the chips to which a header leads that has arrived at chip ``rank`` over the link ``way``."""
        found, open_hops = list[int](), [(header, rank, way)]
        for header, rank, way in open_hops:
            hop, near = next_hop(header, way), self.neighbours(rank)
            found += [rank] if hop.is_local else []
            open_hops += [(hop.header, near[each], OPPOSITE[each]) for each in hop.ways if each in near]
        return tuple(found)

    def is_dateline(self, rank: int, way: Direction) -> bool:
        """Whether packets change their virtual channel on a chip's link in direction ``way``."""
        index = self.position(rank)
        return (index == 0 and way is Direction.W) or (index == self.size - 1 and way is Direction.E)

    def role(self, rank: int, way: Direction) -> str:
        """Return the role of a router of a ring with a dateline, one of ``ROLES``; "" for any other router."""
        far = self.neighbours(rank)[way]
        if self.is_dateline(rank, way):
            return "dateline"
        for chip, role in ((rank, "upstream"), (far, "adjacent")):
            if self.position(chip) in (0, self.size - 1):
                return role
        return ""

    def idle(self, role: str) -> Idle:
        """Return the channels that no packet uses if no packet makes a whole turn of the ring. Packets cross the
        dateline on virtual channel 0, continue on channel 1, and do not reach the dateline again.
        """
        vc_0, vc_1 = 1, 1 + self.passing
        return {"dateline": Idle((vc_1,), (1,)), "upstream": Idle((vc_0,), (1,)), "adjacent": Idle((vc_1,))}[role]

    def order(self, onward: Direction, came: Direction) -> int:
        """Return the number of the ``onward`` router's passing sender channel for packets that arrive from ``came``."""
        others = [way for way in (Direction.E, Direction.W, Direction.N, Direction.S) if way is not onward]
        return 0 if self.passing == 1 else others.index(came)

    def channel(self, plan: Any, rank: int, way: Direction, link: int) -> int:
        """Return the Ethernet channel of parallel link ``link`` of a chip in direction ``way``.

        Raises:
            KernelMisuse: if there are fewer links.
        """
        far = self.neighbours(rank)[way]
        channels = plan.links_to(rank, far)
        if not channels:
            what = f"no link for programs leads from SIP {rank} to SIP {far}, its neighbour in the {self.topology}"
            closes = self.is_ring and {self.position(rank), self.position(far)} == {0, self.size - 1}
            other = ", or topology='line'" if closes and self.size > 2 else ""
            raise KernelMisuse(f"{what}; give chips= in an order in which neighbours have links{other}")
        if link >= len(channels):
            lead = "1 link leads" if len(channels) == 1 else f"{len(channels)} links lead"
            needs = f"the {self.topology} needs {link + 1} parallel links or more"
            raise KernelMisuse(f"{needs}, but {lead} from SIP {rank} to SIP {far}; reduce num_links")
        return int(channels[link])

    def cores(self, plan: Any, rank: int, num_links: int) -> list[Core]:
        """Return the Ethernet cores of a chip that run routers of ``num_links`` parallel links."""
        cores, ways = plan.floor_plan.ethernet, self.neighbours(rank)
        return [cores[self.channel(plan, rank, way, link)] for way in ways for link in range(num_links)]

    def most_links(self, plan: Any) -> int:
        """Return the largest number of parallel links that all neighbours have, at least 1."""
        pairs = [(rank, far) for rank in self.chips for far in self.neighbours(rank).values()]
        return max(min(len(plan.links_to(*pair)) for pair in pairs), 1)

    def first_link(self, plan: Any, num_links: int) -> int:
        """Return the lowest system-wide number of the fabric's links. No other open fabric has the same number."""
        return min(
            int(plan.links[rank][self.channel(plan, rank, way, link)].number)
            for rank in self.chips
            for way in self.neighbours(rank)
            for link in range(num_links)
        )


DIRECTIONS: Final = {"forward": Direction.E, "backward": Direction.W, **{way.name: way for way in Direction}}
NO_WHOLE_TURNS: Final = {"upstream", "adjacent"}
"""Roles of routers whose spare slots are from channels that only packets on a whole turn of the ring use."""
MUX_BASE = 8192
"""Offset of a mux's rings from ``kernel_base`` in bytes; semaphores are below."""


@checked("fabric")
class Fabric:
    """Fabric of a chip, made by ``tt.open_fabric``. ``position``: index of this chip, below ``size``. ``num_links``:
    parallel links per direction. ``spare_slots``: roles of routers whose idle channels give their slots to others.
    """

    def __init__(
        self,
        chip: Any,
        places: Places,
        num_links: int,
        revision: str,
        payload_bytes: int,
        base: int,
        spare_slots: Sequence[str],
    ) -> None:
        self._chip = chip
        self._places = places
        self._params = chip.plan.params
        self._revision: RevisionParams = self._params.fabric.revisions[revision]
        self.revision = revision
        self.rank: int = chip.session.rank
        self.position = places.position(self.rank)
        self.size = places.size
        self.topology = places.topology
        self.num_links = num_links
        self.payload_bytes = payload_bytes
        self._words: ConnectionWords = chip.connections
        self._layout = self._make_layout(base)
        self._spare_slots = tuple(spare_slots) if self._revision.spare_slots and self._vcs > 1 else ()
        self._protocol = self._make_protocol()
        self._muxes: list[Mux] = []
        self._ends_by_itself = False
        self._routers: dict[tuple[Direction, int], Router] = {}
        near = places.neighbours(self.rank)
        for way in near:
            for link in range(num_links):
                self._routers[way, link] = self._make_router(way, link, near)
        for (_, link), router in self._routers.items():
            self._join(link, router)
        self._connections: list[tuple[Core, int]] = []
        self._termination = self._make_termination()
        for router in self.routers:
            router.termination = self._termination
            router.send_handshake()

    @property
    def chips(self) -> list[int]:
        """The ranks of the fabric's chips, in the order of their positions."""
        return self._places.chips

    @property
    def number(self) -> int:
        """The fabric's number: equal on all chips of the fabric, and unique among the system's open fabrics."""
        return self._places.first_link(self._chip.plan, self.num_links)

    # --- for host scripts -----------------------------------------------------------------------------------------

    def ways(self) -> list[Direction]:
        """The directions in which this chip has a neighbour."""
        return list(dict.fromkeys(way for way, _ in self._routers))

    def connect(self, worker: Core | tuple[int, int], direction: str | Direction, link: Natural = 0) -> FabricEndpoint:
        """Return the endpoint for a worker's connection to sender channel 0 of a link's router. Several workers may
        have endpoints of a channel, but only one worker may be connected at a time.

        Raises:
            KernelMisuse: for a direction without a neighbour, a link that does not exist, or a tile that is no worker.
        """
        worker = self._worker(worker)
        router = self._router(direction, link)
        words = self._take_words(worker)
        shape, ring = router.layout.shape, router.senders[0].ring
        is_short = self._revision.has_short_headers
        most_hops = self.size - 1 if NO_WHOLE_TURNS & {*self._spare_slots} else None
        places, way = (router.core, self._layout.connection, ring), router.way
        sizes, has_answer = (shape.header_bytes, shape.payload_bytes), not self._revision.is_first
        return FabricEndpoint(*places, *sizes, is_short, words, way, most_hops, has_answer)

    def create_mux(
        self,
        program: Program,
        core: Core | tuple[int, int],
        direction: str | Direction,
        full: Natural,
        headers: Natural = 0,
        slots: Count = 8,
        link: Natural = 0,
    ) -> Mux:
        """Add a mux on a worker to a program: ``full`` channels for packets and ``headers`` for packets without
        payload, with ``slots`` slots per channel. Clients get endpoints from :meth:`connect_to_mux`.

        Raises:
            KernelMisuse: as :meth:`connect`; also for channels that do not fit, or a worker that already has a mux.
        """
        core = self._worker(core)
        whole("channels of a mux (full + headers)", full + headers, 1)
        if any(core in fabric.mux_cores for fabric in self._chip.fabrics):
            raise KernelMisuse(f"worker {core} of SIP {self.rank} runs a mux, which never ends; give another worker")
        onward = self.connect(core, direction, link)
        onward_name = self._router(direction, link).senders[0].name
        base = self._params.tensix.kernel_base + MUX_BASE
        rings = mux_rings(range(base, self._words.floor), full, headers, slots, onward)
        name, visit_ns = f"SIP {self.rank} mux {core}", self._params.fabric.mux_visit_ns
        mux = Mux(name, core, rings, onward, onward_name, visit_ns, self._chip.tiles)
        self._muxes.append(mux)
        self._chip.declared.exclude(core, mux.addresses)
        noc = self._chip.metal.nearer_noc(core, onward.router)
        program.add(KernelSpec(run_mux, core, DataMovementConfig(noc=noc), (mux,), True))
        return mux

    def connect_to_mux(self, mux: Mux, channel: Within, worker: Core | tuple[int, int]) -> FabricEndpoint:
        """Return the endpoint for a client's connection to a channel of a mux.

        Raises:
            KernelMisuse: for a channel that does not exist, or a tile that is no worker.
        """
        channel = whole("channel of a mux", channel, 0, len(mux.channels) - 1)
        return mux.endpoint(channel, self._take_words(self._worker(worker)))

    def generate_ordered_termination_info_farthest_to_nearest(self) -> list[TerminationInfo]:
        """Return the place of each router's termination word, for a kernel on the first chip that terminates a line or
        ring (:func:`~sipsim.chips.tensix.fabric.connection.terminate_fabric`). The farthest chip is first.

        Raises:
            KernelMisuse: for a topology on which a kernel cannot reach all routers, or on a later chip.
        """
        if self.topology not in ("line", "ring") or self.position:
            what = f"position {self.position} of a {self.topology}"
            raise KernelMisuse(f"{what}: only the first chip of a line or ring signals all routers; call terminate")
        infos = list[TerminationInfo]()
        plan, cores = self._chip.plan, self._chip.plan.floor_plan.ethernet
        for distance, rank in reversed(list(enumerate(self.chips))):
            for way in self._places.neighbours(rank):
                for link in range(self.num_links):
                    core = cores[self._places.channel(plan, rank, way, link)]
                    infos.append(TerminationInfo(distance, core, self._layout.termination))
        return infos

    def statistics(self, direction: str | Direction, link: Natural = 0) -> Statistics:
        """Return the statistics of a link's router now; two reads give the throughput between them.

        Raises:
            KernelMisuse: for a direction without a neighbour, or a link that does not exist.
        """
        return self._router(direction, link).statistics

    def terminate(self, signal: str = "graceful") -> list[LostPacket]:
        """Signal all routers of this chip and :meth:`wait_until_terminated`; each chip of the fabric does this.
        ``graceful``: once all kernels of this chip except servers have ended; packets under way arrive. ``immediate``:
        now; packets under way, and those that kernels still send, are lost.

        Returns:
            The packets that were lost on this chip.

        Raises:
            KernelMisuse: for an unknown signal, or if the fabric has ended.
        """
        value = SIGNALS[one_of("signal", signal, SIGNALS)]
        self._check_open()
        if value is Signal.GRACEFULLY_TERMINATE:
            self._chip.wait_for_kernels()
        self._signal(value)
        return self.wait_until_terminated()

    def wait_until_terminated(self) -> list[LostPacket]:
        """Wait until all kernels of this chip except servers have ended, all routers have a termination signal, and
        the fabric has ended; then the cores, their L1 and the links are free. Return as :meth:`terminate`.
        """
        self._chip.wait_for_kernels()
        self._termination.allow()
        self.wait()
        return self.lost

    @property
    def lost(self) -> list[LostPacket]:
        """The packets that were lost on this chip by an immediate termination."""
        return [each for router in self.routers for each in router.lost_packets(self._lost_ranks)]

    @property
    def has_ended(self) -> bool:
        """Whether the fabric has ended on this chip."""
        return self._termination.has_ended

    def end_after(self, tasks: Sequence[Task]) -> None:
        """Terminate the fabric gracefully when tasks have ended: all users of the fabric on this chip."""
        self._ends_by_itself = True

        def end() -> None:
            self._signal(Signal.GRACEFULLY_TERMINATE)
            self._termination.allow()

        self._chip.launches.when_ended(tasks, end)

    @property
    def ends_by_itself(self) -> bool:
        """Whether the fabric ends when an operation has ended."""
        return self._ends_by_itself

    def wait(self) -> None:
        """Block the host script until the fabric has ended on this chip."""
        while not self.has_ended:
            self._chip.host.wait(self._termination)

    @property
    def routers(self) -> list[Router]:
        """The routers of this chip."""
        return list(self._routers.values())

    def not_closed(self) -> list[str]:
        """Return a line of text for each open connection of a worker, except connections of muxes."""
        connections = (router.connection for router in self.routers if router.connection.worker is not None)
        return [
            f"worker {each.worker} has not closed its connection to {each.name}"
            for each in connections
            if each.worker not in self.mux_cores
        ]

    @property
    def mux_cores(self) -> list[Core]:
        """The workers that run muxes."""
        return [mux.core for mux in self._muxes]

    @property
    def muxed(self) -> list[SenderChannel]:
        """The channels of all muxes."""
        return [channel for mux in self._muxes for channel in mux.channels]

    @property
    def cores(self) -> list[Core]:
        """The Ethernet cores of the routers."""
        return [router.core for router in self.routers]

    def _take_words(self, worker: Core) -> int:
        """Allocate the words of one more connection of a worker, and exclude these words from the results."""
        words = self._words.take(worker)
        self._connections.append((worker, words))
        self._chip.declared.exclude(worker, range(words, words + WORKER_BYTES))
        return words

    def _worker(self, core: Core | tuple[int, int]) -> Core:
        return worker_tile(Core(*core), self._chip.plan.floor_plan.workers)

    def _check_open(self) -> None:
        if self.has_ended:
            raise KernelMisuse(f"this {self.topology} of SIP {self.rank} has ended; open another fabric")

    def _signal(self, value: Signal) -> None:
        for router in self.routers:
            self._termination.signal(router, value)

    def _lost_ranks(self, header: bytes, way: Direction, has_arrived: bool) -> tuple[int, ...]:
        """Return the ranks of :meth:`Router.lost_packets`."""
        if has_arrived:
            return self._places.ranks_of(header, self.rank, way)
        return self._places.ranks_of(header, self._places.neighbours(self.rank)[way], OPPOSITE[way])

    def _router(self, direction: Any, link: int) -> Router:
        self._check_open()
        way = DIRECTIONS.get(direction) if isinstance(direction, str) else direction
        router = self._routers.get((way, link)) if isinstance(way, Direction) else None
        if router is None:
            routers = ", ".join(f"{each.name} link {number}" for each, number in self._routers)
            direction = direction.name if isinstance(direction, Direction) else direction
            raise KernelMisuse(f"SIP {self.rank} has no router {direction} on link {link}; existing routers: {routers}")
        return router

    # --- building -------------------------------------------------------------------------------------------------

    def _make_layout(self, base: int) -> RouterLayout:
        params, revision, places = self._params, self._revision, self._places
        end = params.ethernet.l1_KiB * KIB
        self._vcs = 2 if places.is_ring and revision.avoidance is Avoidance.DATELINE else 1
        sync = revision.flow_control is FlowControl.SYNC_WORD
        senders = 1 + self._vcs * places.passing
        short = revision.has_short_headers
        slots = revision.choices(places.topology == "mesh")
        return layout(base, end, senders, self._vcs, slots, self.payload_bytes, short, sync)

    def _layout_at(self, rank: int, way: Direction) -> RouterLayout:
        """Return the layout of the router of a chip's link. Each end of a link needs the layouts of both ends."""
        role = self._places.role(rank, way) if self._spare_slots else ""
        if role not in self._spare_slots:
            return self._layout
        end = self._params.ethernet.l1_KiB * KIB
        return self._layout.with_spare(self._places.idle(role), self._revision.spare_slots, end)

    def _make_protocol(self) -> FabricProtocol:
        revision, places, shape = self._revision, self._places, self._layout.shape
        agreed = f"{self.revision} {places.topology}, {shape.senders[0]} and {shape.receivers[0]} slots of "
        agreed += f"{self.payload_bytes} B, "
        if self._spare_slots:
            agreed += f"spare slots {'+'.join(role[:4] for role in self._spare_slots)}, "
        agreed += f"{self.num_links} of chips {places.text}"
        flow, is_ring, fabric = revision.flow_control, places.is_ring, self._params.fabric
        # The newer flow control has first-level acknowledgements only on rings.
        is_acked = flow is FlowControl.SYNC_WORD or (flow is FlowControl.FIRST_LEVEL_ACK and is_ring)
        needs_bubble = is_ring and revision.avoidance is Avoidance.BUBBLE
        costs = CostsPs.of(revision.costs or fabric.costs)
        return FabricProtocol(handshake_of(agreed), is_acked, needs_bubble, fabric, costs, revision.is_first)

    def _make_router(self, way: Direction, link: int, near: Neighbours) -> Router:
        chip, far = self._chip, self._layout_at(near[way], OPPOSITE[way])
        channel = self._places.channel(chip.plan, self.rank, way, link)
        transmitter = chip.transmitter(channel)
        self._check_free(transmitter.core, channel)
        far_channel = chip.plan.links[self.rank][channel].far_channel
        far_name = f"SIP {near[way]} eth{far_channel}"
        fars = [SlotCredits(f"{far_name} receiver {vc}", far.receiver(vc)) for vc in range(self._vcs)]
        layout, name = self._layout_at(self.rank, way), f"SIP {self.rank} eth{channel}"
        return Router(name, way, layout, fars, self._protocol, transmitter, chip.tiles, self.rank)

    def _make_termination(self) -> Termination:
        path = self._places.path()
        index = path.index(self.rank)

        def router_to(at: int) -> Router | None:
            near = 0 <= at < len(path)
            return self._routers[self._places.way_to(self.rank, path[at]), 0] if near else None

        up, down = router_to(index + 1), router_to(index - 1)
        return Termination(self.routers, up, down, self._muxes, self._chip.tiles.engine, self._end)

    def _end(self) -> None:
        """Give back what the fabric had of this chip, as all routers are released."""
        for mux in self._muxes:
            mux.release()
        for worker, address in self._connections:
            self._words.give_back(worker, address)
        self._chip.fabrics.remove(self)
        self._chip.lost += self.lost
        self._chip.host.resume(self._termination)

    def _check_free(self, core: Core, channel: int) -> None:
        where = f"core {core} of SIP {self.rank} (eth{channel})"
        if any(core in fabric.cores for fabric in self._chip.fabrics):
            raise KernelMisuse(f"{where} runs a router of another fabric; a link belongs to one fabric")
        if self._chip.launches.is_used(core):
            raise KernelMisuse(
                f"{where} runs a kernel that has not ended, but a router needs the core; open the fabric first"
            )

    def _join(self, link: int, router: Router) -> None:
        """Connect the receivers of a router to the chip's other routers for parallel link ``link``."""
        if not self._places.passing:
            return
        for onward in self.ways():
            other = self._routers.get((onward, link))
            if other is router or other is None:
                continue
            order = self._places.order(onward, router.way)
            changes_vc = self._vcs > 1 and self._places.is_dateline(self.rank, router.way)
            # No packet crosses the dateline twice: a packet that arrives over the dateline on channel 1 ends here.
            for receiver in router.receivers[: 1 if changes_vc else None]:
                vc = 1 if changes_vc else receiver.vc
                channel = other.senders[1 + vc * self._places.passing + order]
                if channel.ring.slots:
                    router.join(receiver, other, channel)
