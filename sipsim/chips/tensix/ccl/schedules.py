"""The packets of all-gather and all-to-all, which move data and add nothing, and of reduce-scatter."""

from collections.abc import Sequence

from sipsim.chips.tensix.ccl.tensors import Piece
from sipsim.chips.tensix.ccl.workers import Crew, Cut, Packet, Until, Worker, half, hop
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Route, Way, multicast, unicast


def line_all_gather(crew: Crew, cut: Cut) -> None:
    """Each chip sends its slice to all chips on a side, as multicast, and routers pass it on.

    Places of a piece: in the input of its chip, in the output.
    """
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
    """Each worker sends its chip's slice to the neighbour, and relays what comes from the other neighbour.

    It does so half-way around, or all around in one direction. ``chunks``: packets between increments. Places as of
    :func:`line_all_gather`.
    """
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


def all_to_all(crew: Crew, cut_to: Cut, cut_from: Cut) -> None:
    """A unicast to each chip. ``cut_to``: the slice for a chip; places in the input here, in its output.

    ``cut_from``: as a chip cuts what is for this one.
    """
    place = crew.place
    for worker in crew.workers.values():
        reach, count = place.reach(worker.side), 0
        for hops in near_and_far(reach):
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


def near_and_far(reach: int) -> list[int]:
    """The distances of the chips that are sent to, near and far by turns."""
    near = list(range(1, reach + 1))
    middle = (reach + 1) // 2
    mixed = [each for pair in zip(near[:middle], near[::-1], strict=False) for each in pair]
    return mixed[:reach]


def syncs(count: int, chunks: int) -> int:
    """Increments of so many packets."""
    return -(-count // chunks)


def ends_chunk(number: int, of: Sequence[object], chunks: int) -> bool:
    """Whether an increment goes with a packet."""
    return (number + 1) % chunks == 0 or number + 1 == len(of)


INPUT, FORWARD, BACKWARD, SCRATCH, OUTPUT = range(5)
"""Places of a piece of a reduce-scatter: in the input, in the partial sums that come over a side's link (one tensor a
side), in what one worker hands to the other, in the output.
"""
PARTIAL = {Way.E: FORWARD, Way.W: BACKWARD}


def ring_reduce_scatter(crew: Crew, cut: Cut, chunks: int, group: int) -> None:
    """Each chip ends with the sum of its slice: a relay adds its own slice to what has come and sends the sum on.

    Each direction carries half of each slice all the way. ``chunks``: packets between increments. ``group``: packets of
    each slice that a worker passes on before it begins with the next packets of all slices (the tensor slicer); 0: all.
    """
    place = crew.place
    for worker in crew.workers.values():
        hops = range(1, place.size + 1)
        slices = [_of(worker, crew, cut, place.at(OPPOSITE[worker.side], each)) for each in hops]
        most = max(map(len, slices))
        length = group or max(most, 1)
        for first in range(0, most, length):
            for step, whole in enumerate(slices):
                part = whole[first : first + length]
                is_last = step == place.size - 1
                after = _arriving(worker, part, chunks) if step else None
                worker.packets += _step(worker, part, chunks, after, not is_last)


def line_reduce_scatter(crew: Crew, cut: Cut, chunks: int) -> None:
    """Sums come from both ends, and the chip's forward worker hands its own to the other one.

    Slices of the chips farthest away first, the own one last.
    """
    place = crew.place
    for worker in crew.workers.values():
        is_relay = place.reach(OPPOSITE[worker.side]) > 0
        for hops in range(place.reach(worker.side), 0, -1):
            part = crew.share(cut(place.at(worker.side, hops)), worker.link)
            after = _arriving(worker, part, chunks) if is_relay else None
            worker.packets += _step(worker, part, chunks, after, is_sent=True)
        if is_relay:
            own = crew.share(cut(place.position), worker.link)
            worker.packets += _finish(crew, worker, own, _arriving(worker, own, chunks), chunks)


def direct_reduce_scatter(crew: Crew, cut: Cut, source_of: Cut) -> None:
    """Each chip sends each slice to its owner, which adds all of them.

    ``source_of``: the pieces of this chip's slice that a chip sends; its places are the source's room here, and the
    output.
    """
    place = crew.place
    for worker in crew.workers.values():
        for hops in range(1, place.reach(worker.side) + 1):
            to = place.at(worker.side, hops)
            for side in (Way.E, Way.W):
                part = half(crew.share(cut(to), worker.link), side)
                if place.is_shared(hops) and side is not worker.side:
                    continue
                worker.packets += _direct(crew, worker, part, hops, side)
        sources = [each for each in range(place.size) if each != place.position]
        lists = [half(crew.share(source_of(each), worker.link), worker.side) for each in sources]
        done = worker.expect(worker.words.done, sum(1 for each in lists if each))
        for number, piece in enumerate(half(crew.share(cut(place.position), worker.link), worker.side)):
            reads = (piece.places[INPUT], *(each[number].places[0] for each in lists))
            worker.packets.append(Packet(piece.pages, piece.nbytes, reads, (done,), piece.places[-1]))


def _of(worker: Worker, crew: Crew, cut: Cut, number: int) -> list[Piece]:
    """A worker's part of a slice."""
    found = crew.share(cut(number), worker.link)
    return half(found, worker.side) if crew.place.is_both else found


def _arriving(worker: Worker, part: Sequence[Piece], chunks: int) -> list[Until]:
    """For each packet, the condition that it has come."""
    arrived = worker.words.arrived
    found = [worker.further(arrived, number // chunks + 1) for number in range(len(part))]
    worker.expect(arrived, syncs(len(part), chunks))
    return found


def _step(
    worker: Worker, part: Sequence[Piece], chunks: int, after: Sequence[Until] | None, is_sent: bool
) -> list[Packet]:
    """Packets with the own slice added to what has come, if anything comes: to the neighbour's partial sums, or to the
    output.
    """
    found, room = [], PARTIAL[worker.side]
    for number, piece in enumerate(part):
        own, come = piece.places[INPUT], piece.places[room]
        reads, conditions = ((own,), ()) if after is None else ((come, own), (after[number],))
        packet = Packet(piece.pages, piece.nbytes, reads, conditions)
        if is_sent:
            signal = worker.address(worker.words.arrived) if ends_chunk(number, part, chunks) else None
            packet = packet._replace(route=hop(worker.side), target=come, signal=signal)
        else:
            packet = packet._replace(local=piece.places[OUTPUT])
        found.append(packet)
    return found


def _finish(crew: Crew, worker: Worker, own: Sequence[Piece], after: Sequence[Until], chunks: int) -> list[Packet]:
    """The own slice on a line: with partial sums of both sides, the forward worker hands its sum to the backward
    worker.
    """
    if not crew.place.reach(worker.side):
        return _step(worker, own, chunks, after, is_sent=False)
    other = crew.workers[worker.link, OPPOSITE[worker.side]]
    found = []
    for number, piece in enumerate(own):
        come, places = piece.places[PARTIAL[worker.side]], piece.places
        if worker.side is Way.E:
            told = other.address(other.words.partial) if ends_chunk(number, own, chunks) else None
            reads = come, places[INPUT]
            found.append(Packet(piece.pages, piece.nbytes, reads, (after[number],), places[SCRATCH], told=told))
        else:
            handed = worker.further(worker.words.partial, number // chunks + 1)
            reads = come, places[SCRATCH]
            found.append(Packet(piece.pages, piece.nbytes, reads, (after[number], handed), places[OUTPUT]))
    if worker.side is Way.W:
        worker.expect(worker.words.partial, syncs(len(own), chunks))
    return found


def _direct(crew: Crew, worker: Worker, part: Sequence[Piece], hops: int, side: Way) -> list[Packet]:
    """Packets to an owner, whose worker on ``side`` adds them."""
    signal = crew.workers[worker.link, side].address(worker.words.done)
    found = [
        Packet(each.pages, each.nbytes, each.places[:1], route=unicast(hops, worker.side), target=each.places[1])
        for each in part
    ]
    return [*found[:-1], found[-1]._replace(signal=signal)] if found else []
