"""Lists of packets of all-gather and all-to-all, which move data and add nothing.

All-gather on a line: each chip sends its slice to all chips on a side, as multicast, and routers pass it on. On a ring:
each worker sends its chip's slice to the neighbour, and relays what comes from the other neighbour, half-way around, or
all around in one direction. All-to-all: a unicast to each chip.
"""

from collections.abc import Sequence

from sipsim.chips.tensix.ccl.tensors.tensor import Piece
from sipsim.chips.tensix.ccl.workers.crew import Crew, Cut, Worker, half, hop
from sipsim.chips.tensix.ccl.workers.work import Packet
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Route, Way, multicast, unicast
from sipsim.chips.tensix.params import Order

ORDERS = tuple(order.value for order in Order)


def line_all_gather(crew: Crew, cut: Cut) -> None:
    """Places of a piece: in the input of its chip, in the output."""
    here = crew.place.position
    for worker in crew.workers.values():
        own, reach = crew.share(cut(here), worker.link), crew.place.reach(worker.side)
        if reach:
            route = multicast(1, reach, worker.side)
            signal = crew.toward(worker, worker.side).address(worker.words.done)
            worker.packets += sent(own, route, signal)
            others = (crew.place.at(worker.side, hops) for hops in range(1, reach + 1))
            expect_done(worker, sum(1 for each in others if crew.share(cut(each), worker.link)))


def ring_all_gather(crew: Crew, cut: Cut, chunks: int) -> None:
    """``chunks``: packets between increments. Places as of :func:`line_all_gather`."""
    place = crew.place
    for worker in crew.workers.values():
        for hops in range(place.reach(worker.side) + 1):
            source = place.at(OPPOSITE[worker.side], hops)
            come = going = crew.share(cut(source), worker.link)
            if hops and place.is_shared(hops):
                come = half(come, worker.side)
            if hops < place.reach(worker.side):
                going = half(going, worker.side) if place.is_shared(hops + 1) else going
                skipped = len(come) - len(going) if worker.side is Way.W else 0
                worker.packets += relayed(worker, going, chunks, skipped if hops else None)
            if hops:
                worker.expect(worker.words.arrived, syncs(len(come), chunks))
        worker.end.append(worker.expect(worker.words.arrived, 0))


def relayed(worker: Worker, going: Sequence[Piece], chunks: int, skipped: int | None) -> list[Packet]:
    """Packets to the neighbour: from the output, when they have come behind ``skipped`` others; None: the input."""
    found, arrived = [], worker.words.arrived
    for number, piece in enumerate(going):
        source, target = piece.places[0] if skipped is None else piece.places[-1], piece.places[-1]
        after = () if skipped is None else (worker.further(arrived, (number + skipped) // chunks + 1),)
        signal = worker.address(arrived) if ends_chunk(number, going, chunks) else None
        found.append(Packet(piece.pages, piece.nbytes, (source,), after, None, hop(worker.side), target, signal))
    return found


def all_to_all(crew: Crew, cut_to: Cut, cut_from: Cut, order: str) -> None:
    """``cut_to``: the slice for a chip; places in the input here, in its output. ``cut_from``: as a chip cuts what is
    for this one.
    """
    place = crew.place
    for worker in crew.workers.values():
        reach, count = place.reach(worker.side), 0
        for hops in ordered(reach, order):
            to = crew.share(cut_to(place.at(worker.side, hops)), worker.link)
            to = half(to, worker.side) if place.is_shared(hops) else to
            signal = crew.toward(worker, worker.side).address(worker.words.done)
            worker.packets += sent(to, unicast(hops, worker.side), signal)
        for hops in range(1, reach + 1):
            come = crew.share(cut_from(place.at(worker.side, hops)), worker.link)
            come = half(come, OPPOSITE[worker.side]) if place.is_shared(hops) else come
            count += bool(come)
        expect_done(worker, count)


def copies(own: Sequence[Piece]) -> list[Packet]:
    """Packets of a chip's own slice to its output."""
    return [Packet(piece.pages, piece.nbytes, piece.places[:1], local=piece.places[-1]) for piece in own]


def mixed(packets: Sequence[Packet], own: Sequence[Packet]) -> list[Packet]:
    """Copies of the own slice among the packets of a worker, evenly: while others have the link, it copies."""
    found = list[Packet]()
    done = 0
    for number, packet in enumerate(packets, 1):
        found.append(packet)
        due = number * len(own) // len(packets)
        found += own[done:due]
        done = due
    return [*found, *own[done:]]


def sent(pieces: Sequence[Piece], route: Route, signal: NocAddress) -> list[Packet]:
    """Packets from the first to the last place of each piece; the last one raises a semaphore."""
    found = [Packet(each.pages, each.nbytes, each.places[:1], route=route, target=each.places[-1]) for each in pieces]
    return [*found[:-1], found[-1]._replace(signal=signal)] if found else []


def expect_done(worker: Worker, sources: int) -> None:
    """So many sources tell a worker that all of theirs is here."""
    if sources:
        worker.end.append(worker.expect(worker.words.done, sources))


def ordered(reach: int, order: str) -> list[int]:
    """The distances of the chips that are sent to, one after the other."""
    near = list(range(1, reach + 1))
    if order == "nearest":
        return near
    if order == "farthest":
        return near[::-1]
    middle = (reach + 1) // 2
    mixed = [each for pair in zip(near[:middle], near[::-1], strict=False) for each in pair]
    return mixed[:reach]


def syncs(count: int, chunks: int) -> int:
    """Increments of so many packets."""
    return -(-count // chunks)


def ends_chunk(number: int, of: Sequence[object], chunks: int) -> bool:
    """Whether an increment goes with a packet."""
    return (number + 1) % chunks == 0 or number + 1 == len(of)
