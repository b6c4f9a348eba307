"""Operations over data movers: the share of each worker, the channels of the data movers, and the program of one chip.

Every chip moves packets between its two neighbours only. A *unit* moves them in one direction: it has a channel from
the neighbour behind, a channel to the next one, and one worker tile (reduce-scatter) or two (all-gather).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from sipsim.chips.tensix.ccl.circular_buffer import CircularBuffer, slots_for
from sipsim.chips.tensix.ccl.data_mover_workers import (
    ChannelEnd,
    ReceiverUnit,
    ScatterOp,
    ScatterUnit,
    SenderUnit,
    gather_reader,
    gather_receiver,
    gather_sender,
    gather_writer,
    scatter_adder,
    scatter_reader,
    scatter_writer,
)
from sipsim.chips.tensix.ccl.packets import Packet, packetize, segments_per_packet
from sipsim.chips.tensix.ccl.tensor_slicer import TensorSlicer
from sipsim.chips.tensix.ccl.tensors import Segments, Tensor, segments_of
from sipsim.chips.tensix.ccl.workers import SIDES, Place
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.durations import Operation
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.fabric.channels import Ring
from sipsim.chips.tensix.fabric.fabric import Places
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Direction
from sipsim.chips.tensix.lines import Line
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import CclParams
from sipsim.chips.tensix.programs import ComputeConfig, Config, DataMovementConfig, KernelSpec, Program
from sipsim.core.errors import KernelMisuse

READER, WRITER = DataMovementConfig(processor=1, noc=0), DataMovementConfig(processor=0, noc=1)
UnitKey = tuple[Direction, int]
"""Direction in which a unit's packets travel, and number of the unit among those of the direction."""
Cut = Callable[[int], list[Packet]]
"""A function that returns the packets of a chip's slice by the chip's position."""
IN_DATA_MOVERS = 2
"""Packets of a channel in the L1s of Ethernet cores: one in the buffer of each end."""


class Traffic(NamedTuple):
    """Numbers of messages of a unit on one chip: received from the neighbour, and sent to the next one."""

    received: int
    sent: int


class GatherShare(NamedTuple):
    """Packets of a unit in an all-gather: of the chip's input, taken from the neighbour, and of these the leading ones
    that go onward. At the end of a line nothing is sent.
    """

    own: list[Packet]
    taken: list[Packet]
    onward: list[Packet]


class DataMoverLine:
    """Line or ring of chips whose neighbours are connected by data movers, as seen by one chip.

    ``num_links``: parallel links between neighbours. ``number``: the lowest number of their links in the system.
    ``is_both``: whether packets of a ring take both directions.
    """

    def __init__(self, chip: Any, line: Line, num_links: int, is_both: bool) -> None:
        self._chip = chip
        self._ccl: CclParams = chip.plan.params.ccl
        places, rank = Places(line.topology, line.chips), chip.session.rank
        self.chips = places.chips
        self.size = places.size
        self.topology = places.topology
        self.num_links = num_links
        self.number = places.first_link(chip.plan, num_links)
        self._place = Place(places.position(rank), self.size, places.is_ring, is_both or not places.is_ring)
        ethernet = chip.plan.floor_plan.ethernet
        self._cores = {
            (way, link): ethernet[places.channel(chip.plan, rank, way, link)]
            for way in places.neighbours(rank)
            for link in range(num_links)
        }
        self._sides = SIDES if self._place.is_both else SIDES[:1]
        self._units_per_link: int = self._ccl.data_mover_workers
        self._units = [(side, unit) for unit in range(num_links * self._units_per_link) for side in self._sides]

    def all_gather(self, tensor: Tensor, output: Tensor, dim: int, operation: Operation) -> Program:
        """Return the program of an all-gather. On a ring, each direction carries half of each tensor all the way round;
        on a line, both directions carry all of it, up to the ends.

        Raises:
            KernelMisuse: if a page does not fit a packet, or the units need more workers than there are.
        """
        own, whole = segments_of((tensor, output), dim, 1)
        n_shares = len(self._units) // (1 if self._place.is_ring else 2)
        packet_bytes = self._packet_bytes(own, len(own.all()), n_shares)

        @cache
        def cut(source: int) -> list[Packet]:
            return packetize(((own, own.all()), (whole, whole.slice(dim, source, self.size))), packet_bytes)

        shares = {
            (side, unit): self._gather_share(side, number if self._place.is_ring else unit, n_shares, cut)
            for number, (side, unit) in enumerate(self._units)
        }
        builder = _Builder(self._chip, Program(operation=operation), packet_bytes, self._ccl)
        traffic = {key: Traffic(len(each.taken), len(each.own) + len(each.onward)) for key, each in shares.items()}
        ends = self._data_movers(builder, traffic, cores_per_unit=2)
        copying = next(side for (side, _), each in shares.items() if each.own)
        for key, share in shares.items():
            sender, receiver = self._unit_cores(key, 2)
            arrived = builder.semaphore(sender)
            if traffic[key].sent:
                copies = self._place.is_ring or key[0] is copying
                packets, buffer = [*share.own, *share.onward], builder.buffer(sender, 1)
                unit = SenderUnit(packets, len(share.own), copies, arrived, ends[key, True], buffer, self._ccl)
                builder.add(gather_reader, sender, READER, unit)
                builder.add(gather_sender, sender, WRITER, unit)
            if share.taken:
                buffer, signal = builder.buffer(receiver, 1), NocAddress(sender, arrived)
                end, forwarded = ends[key, False], len(share.onward)
                of_receiver = ReceiverUnit(share.taken, forwarded, signal, end, buffer, self._ccl)
                builder.add(gather_receiver, receiver, READER, of_receiver)
                builder.add(gather_writer, receiver, WRITER, of_receiver)
        return builder.program

    def _gather_share(self, side: Direction, number: int, n_shares: int, cut: Cut) -> GatherShare:
        """Return the packets of share ``number`` of ``n_shares`` that travel in direction ``side``."""
        place, behind = self._place, OPPOSITE[side]
        hops = self.size - 1 if place.is_ring else place.reach(behind)
        taken = [cut(place.at(behind, each))[number::n_shares] for each in range(1, hops + 1)]
        own, onward = cut(place.position)[number::n_shares], taken[:-1] if place.is_ring else taken
        if not (place.is_ring or place.reach(side)):
            own, onward = [], []
        return GatherShare(own, [*chain(*taken)], [*chain(*onward)])

    def reduce_scatter(
        self, tensor: Tensor, output: Tensor, dim: int, slice_packets: int, operation: Operation
    ) -> Program:
        """Return the program of a reduce-scatter on a ring. A worker handles its slices one after the other. It
        first sends the slice in the fracture of the previous chip, then adds its chip's input to each partial sum that
        arrives and sends the sum on, until the sum of its chip's fracture is complete. ``slice_packets``: packets of a
        slice; 0 for as many as the pipeline holds.

        Raises:
            KernelMisuse: on a line, and as :meth:`all_gather`.
        """
        place, n_workers = self._place, len(self._units)
        if not place.is_ring:
            what = "a reduce-scatter over data movers goes round a ring, and these chips are a line"
            raise KernelMisuse(f"{what}; give topology='ring' and chips that form one, or transport='fabric'")
        source, target = segments_of((tensor, output), dim, self.size)
        packet_bytes = self._packet_bytes(source, len(target.all()), n_workers)
        packet_pages = segments_per_packet(source, packet_bytes)
        builder = _Builder(self._chip, Program(operation=operation), packet_bytes, self._ccl)
        # A partial sum needs a free slot of the circular buffer before its payload leaves the data mover.
        pipeline = builder.slots(2) - 1 + IN_DATA_MOVERS
        most_pages = (slice_packets or pipeline) * packet_pages
        slicer = TensorSlicer(n_workers, source.grid, dim, self.size, most_pages)
        hint = ""
        longest = max(-(-part.n_pages // packet_pages) for part in slicer.slices)
        if longest > pipeline:
            what = f"a slice has {longest} packets, and the pipeline to the next chip holds {pipeline}"
            hint = f" ({what}: give slice_packets={pipeline} or less)"
        lists = {}
        for worker, key in enumerate(self._units):
            places = [place.at(OPPOSITE[key[0]], each + 1) for each in range(self.size)]
            lists[key] = [
                ScatterOp(packet, fracture == places[0], fracture == place.position)
                for part, summed in [(each, (target, slicer.pages(each, None))) for each in slicer.of_worker(worker)]
                for fracture in places
                for packet in packetize(((source, slicer.pages(part, fracture)), summed), packet_bytes)
            ]
        traffic = {
            key: Traffic(sum(not op.is_first for op in ops), sum(not op.is_last for op in ops))
            for key, ops in lists.items()
        }
        ends = self._data_movers(builder, traffic, cores_per_unit=1)
        for key, ops in lists.items():
            if ops:
                (core,) = self._unit_cores(key, 1)
                buffer, to_and_fro = builder.buffer(core, 2, hint), (ends[key, False], ends[key, True])
                unit = ScatterUnit(ops, *to_and_fro, buffer, tensor.dtype, self._ccl)
                builder.add(scatter_reader, core, READER, unit)
                builder.add(scatter_adder, core, ComputeConfig(), unit)
                builder.add(scatter_writer, core, WRITER, unit)
        return builder.program

    def _packet_bytes(self, segments: Segments, count: int, n_shares: int) -> int:
        """Return the size of full packets: as many segments as fit, but so few that all shares have packets."""
        metal = self._chip.metal
        buffer_bytes: int = metal.edm_builder(len(self._sides) * self._units_per_link, WORD_BYTES).buffer_bytes
        most = min(self._ccl.data_mover_packet_bytes, buffer_bytes)
        return min(most, -(-count // n_shares) * segments.nbytes)

    def _unit_cores(self, key: UnitKey, cores_per_unit: int) -> Sequence[Core]:
        """Return the worker tiles of a unit.

        Raises:
            KernelMisuse: if all units need more tiles than there are.
        """
        workers: list[Core] = self._chip.plan.floor_plan.workers
        needed = len(self._units) * cores_per_unit
        if needed > len(workers):
            what = f"{self.num_links} links need {needed} workers, and the chip has {len(workers)}"
            raise KernelMisuse(f"{what}; reduce num_links, or ccl.data_mover_workers")
        first = self._units.index(key) * cores_per_unit
        return workers[first : first + cores_per_unit]

    def _data_movers(
        self, builder: "_Builder", traffic: Mapping[UnitKey, Traffic], cores_per_unit: int
    ) -> dict[tuple[UnitKey, bool], ChannelEnd]:
        """Add the data movers to the program. Return the workers' ends of the channels, by unit and by whether the
        worker sends.
        """
        ends: dict[tuple[UnitKey, bool], ChannelEnd] = {}
        for (way, link), core in self._cores.items():
            channels = []
            for key, count in traffic.items():
                sends = key[0] is way
                messages = count.sent if sends else count.received
                if messages and key[1] // self._units_per_link == link:
                    worker = self._unit_cores(key, cores_per_unit)[0 if sends else -1]
                    channels.append((key, sends, messages, worker))
            if channels:
                ends |= builder.data_mover(core, channels)
        return ends


class _Builder:
    """Builder of one chip's program. ``packet_bytes``: size of full packets."""

    def __init__(self, chip: Any, program: Program, packet_bytes: int, ccl: CclParams) -> None:
        self._metal = chip.metal
        self._packet_bytes = packet_bytes
        self._ccl = ccl
        self.program = program

    def add(self, kernel: Callable[..., None], core: Core, config: Config, unit: object) -> None:
        """Add a kernel with its unit as argument."""
        self.program.add(KernelSpec(kernel, core, config, (unit,), False))

    def semaphore(self, core: Core) -> int:
        """Return the address of a new semaphore, which is 0 when the program starts."""
        address: int = self._metal.create_semaphore(self.program, core)
        return address

    def slots(self, operands: int) -> int:
        """Return the number of slots of a circular buffer whose slots have space for several operands."""
        return slots_for(operands * self._packet_bytes, self._ccl)

    def buffer(self, core: Core, operands: int, hint: str = "") -> CircularBuffer:
        """Return the circular buffer of a worker."""
        ring = Ring(self._metal.l1_base(core), self.slots(operands), operands * self._packet_bytes)
        pushed, summed, popped = (self.semaphore(core) for _ in range(3))
        return CircularBuffer(ring, self._packet_bytes, pushed, summed, popped, 1 / self._ccl.add_GBps, hint)

    def data_mover(
        self, core: Core, channels: Sequence[tuple[UnitKey, bool, int, Core]]
    ) -> dict[tuple[UnitKey, bool], ChannelEnd]:
        """Add a data mover with channels, given by unit, whether the worker sends, messages and worker."""
        ends = {}
        nbytes = -(-self._packet_bytes // WORD_BYTES) * WORD_BYTES
        edm = self._metal.edm_builder(len(channels), nbytes)
        for key, sends, messages, worker in channels:
            semaphore = self.semaphore(worker)
            add = edm.add_sender_channel if sends else edm.add_receiver_channel
            ends[key, sends] = ChannelEnd(core, add(semaphore, messages, worker, nbytes), semaphore)
        edm.generate_edm_kernel(self.program, core)
        return ends
