"""Schedules of all-gather, all-to-all and reduce-scatter: functions that fill each worker's list of packets."""

from collections.abc import Sequence

from sipsim.chips.tensix.ccl.tensors import PageGroup
from sipsim.chips.tensix.ccl.workers import CallPlan, Cut, PacketOp, Until, Worker, half, one_hop
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Direction, Route, multicast, unicast


def line_all_gather(call: CallPlan, cut: Cut) -> None:
    """Make the packets of an all-gather on a line: each chip multicasts a slice in both directions.

    A piece has two places: in the source chip's input, and in the output.
    """
    position = call.place.position
    for worker in call.workers.values():
        own, reach = call.share(cut(position), worker.link), call.place.reach(worker.side)
        if reach:
            route = multicast(1, reach, worker.side)
            signal = call.toward(worker, worker.side).address(worker.words.done)
            worker.packets += sent(own, route, signal)
            others = (call.place.at(worker.side, hops) for hops in range(1, reach + 1))
            expect_done(worker, sum(1 for each in others if call.share(cut(each), worker.link)))


def ring_all_gather(call: CallPlan, cut: Cut, chunks: int) -> None:
    """Make the packets of an all-gather on a ring: each worker sends the chip's slice to one neighbour, and relays the
    slices from the other neighbour. Slices travel half of the ring in both directions, or the whole ring in
    one. ``chunks``: packets between semaphore increments. A piece has the same places as in :func:`line_all_gather`.
    """
    place = call.place
    for worker in call.workers.values():
        for hops in range(place.reach(worker.side) + 1):
            source = place.at(OPPOSITE[worker.side], hops)
            arriving = leaving = call.share(cut(source), worker.link)
            if hops and place.is_shared(hops):
                arriving = half(arriving, worker.side)
            if hops < place.reach(worker.side):
                leaving = half(leaving, worker.side) if place.is_shared(hops + 1) else leaving
                skipped = len(arriving) - len(leaving) if worker.side is Direction.W else 0
                worker.packets += relayed(worker, leaving, chunks, skipped if hops else None)
            if hops:
                worker.expect(worker.words.arrived, syncs(len(arriving), chunks))
        worker.end.append(worker.expect(worker.words.arrived, 0))


def relayed(worker: Worker, leaving: Sequence[PageGroup], chunks: int, skipped: int | None) -> list[PacketOp]:
    """Return packets to the neighbour. ``skipped``: arriving pieces before the relayed pieces; None for own input."""
    packets, arrived = [], worker.words.arrived
    for number, piece in enumerate(leaving):
        source, target = piece.places[0] if skipped is None else piece.places[-1], piece.places[-1]
        after = () if skipped is None else (worker.further(arrived, (number + skipped) // chunks + 1),)
        signal = worker.address(arrived) if ends_chunk(number, leaving, chunks) else None
        route = one_hop(worker.side)
        packets.append(PacketOp(piece.pages, piece.nbytes, (source,), after, None, route, target, signal))
    return packets


def all_to_all(call: CallPlan, cut_to: Cut, cut_from: Cut) -> None:
    """Make the packets of an all-to-all: a unicast to each chip. ``cut_to``: returns the pieces for a destination, with
    places in this chip's input and the destination's output. ``cut_from``: returns the pieces from a source chip.
    """
    place = call.place
    for worker in call.workers.values():
        reach, count = place.reach(worker.side), 0
        for hops in near_and_far(reach):
            to = call.share(cut_to(place.at(worker.side, hops)), worker.link)
            to = half(to, worker.side) if place.is_shared(hops) else to
            signal = call.toward(worker, worker.side).address(worker.words.done)
            worker.packets += sent(to, unicast(hops, worker.side), signal)
        for hops in range(1, reach + 1):
            arriving = call.share(cut_from(place.at(worker.side, hops)), worker.link)
            arriving = half(arriving, OPPOSITE[worker.side]) if place.is_shared(hops) else arriving
            count += bool(arriving)
        expect_done(worker, count)


def broadcast(call: CallPlan, own: Sequence[PageGroup], root: int) -> None:
    """Make the packets of a broadcast: the chip at position ``root`` multicasts ``own`` in both directions. A piece has
    the same places as in :func:`line_all_gather`.
    """
    place = call.place
    for worker in call.workers.values():
        part, side = call.share(own, worker.link), worker.side
        if place.position == root and place.reach_once(side):
            signal = call.toward(worker, side).address(worker.words.done)
            worker.packets += sent(part, multicast(1, place.reach_once(side), side), signal)
        elif part:
            # Packets in one direction reach as far from each chip of a ring, and all chips of a line.
            far = place.reach_once(OPPOSITE[side]) if place.is_ring else place.reach(side)
            expect_done(worker, sum(place.at(side, hops) == root for hops in range(1, far + 1)))


def copies(own: Sequence[PageGroup]) -> list[PacketOp]:
    """Return packets that copy the chip's input slice to the chip's output."""
    return [PacketOp(piece.pages, piece.nbytes, piece.places[:1], local=piece.places[-1]) for piece in own]


def mixed(packets: Sequence[PacketOp], own: Sequence[PacketOp]) -> list[PacketOp]:
    """Return a worker's packets with the copies ``own`` spread evenly among them."""
    merged = list[PacketOp]()
    done = 0
    for number, packet in enumerate(packets, 1):
        merged.append(packet)
        due = number * len(own) // len(packets)
        merged += own[done:due]
        done = due
    return [*merged, *own[done:]]


def sent(pieces: Sequence[PageGroup], route: Route, signal: NocAddress) -> list[PacketOp]:
    """Return packets from the first to the last place of each piece. The last packet raises semaphore ``signal``."""
    ops = [PacketOp(each.pages, each.nbytes, each.places[:1], route=route, target=each.places[-1]) for each in pieces]
    return [*ops[:-1], ops[-1]._replace(signal=signal)] if ops else []


def expect_done(worker: Worker, sources: int) -> None:
    """Make a worker wait at the end until ``sources`` chips have signalled that all of their data has arrived."""
    if sources:
        worker.end.append(worker.expect(worker.words.done, sources))


def near_and_far(reach: int) -> list[int]:
    """Return the distances 1 to ``reach`` in hops, near and far in turn."""
    near = list(range(1, reach + 1))
    middle = (reach + 1) // 2
    in_turn = [each for pair in zip(near[:middle], near[::-1], strict=False) for each in pair]
    return in_turn[:reach]


def syncs(count: int, chunks: int) -> int:
    """Return the number of semaphore increments for ``count`` packets with one increment per ``chunks``."""
    return -(-count // chunks)


def ends_chunk(number: int, packets: Sequence[object], chunks: int) -> bool:
    """Whether packet ``number``, from 0 on, is the last of a chunk or of ``packets``, and so carries an increment."""
    return (number + 1) % chunks == 0 or number + 1 == len(packets)


INPUT, FORWARD, BACKWARD, SCRATCH, OUTPUT = range(5)
"""Indices of the places of a reduce-scatter's piece: in the input, in the partial sums that arrive in either direction,
in the scratch tensor through which the forward worker hands sums to the backward worker, in the output.
"""
PARTIAL = {Direction.E: FORWARD, Direction.W: BACKWARD}


def ring_reduce_scatter(call: CallPlan, cut: Cut, chunks: int, group: int) -> None:
    """Make the packets of a reduce-scatter on a ring: a relay adds the chip's input to the arrived partial sum and
    forwards the sum. Each direction carries half of each slice around the ring. ``chunks``: packets between increments.
    ``group``: packets of a slice that a worker sends before the next slice (the tensor slicer); 0 for all packets.
    """
    place = call.place
    for worker in call.workers.values():
        hops = range(1, place.size + 1)
        slices = [_share(worker, call, cut, place.at(OPPOSITE[worker.side], each)) for each in hops]
        longest = max(map(len, slices))
        length = group or max(longest, 1)
        for first in range(0, longest, length):
            for step, whole in enumerate(slices):
                part = whole[first : first + length]
                is_last = step == place.size - 1
                after = _arriving(worker, part, chunks) if step else None
                worker.packets += _step(worker, part, chunks, after, not is_last)


def line_reduce_scatter(call: CallPlan, cut: Cut, chunks: int) -> None:
    """Make the packets of a reduce-scatter on a line: partial sums arrive from both ends, and the forward worker hands
    its sum to the chip's backward worker. Slices of the farthest chips are sent first; the chip's slice is last.
    """
    place = call.place
    for worker in call.workers.values():
        is_relay = place.reach(OPPOSITE[worker.side]) > 0
        for hops in range(place.reach(worker.side), 0, -1):
            part = call.share(cut(place.at(worker.side, hops)), worker.link)
            after = _arriving(worker, part, chunks) if is_relay else None
            worker.packets += _step(worker, part, chunks, after, is_sent=True)
        if is_relay:
            own = call.share(cut(place.position), worker.link)
            worker.packets += _finish(call, worker, own, _arriving(worker, own, chunks), chunks)


def direct_reduce_scatter(call: CallPlan, cut: Cut) -> None:
    """Make the packets of a direct reduce-scatter: each chip sends each slice to its owner, and owners add the slices.

    A piece has a place in the input, one for each source chip in the owner's inbox, and one in the output.
    """
    place = call.place
    for worker in call.workers.values():
        for hops in range(1, place.reach(worker.side) + 1):
            to = place.at(worker.side, hops)
            for side in (Direction.E, Direction.W):
                part = half(call.share(cut(to), worker.link), side)
                if place.is_shared(hops) and side is not worker.side:
                    continue
                worker.packets += _direct(call, worker, part, hops, side)
        own = half(call.share(cut(place.position), worker.link), worker.side)
        sources = [each for each in range(place.size) if each != place.position]
        done = worker.expect(worker.words.done, len(sources) if own else 0)
        for piece in own:
            reads = (piece.places[INPUT], *(piece.places[_inbox(each)] for each in sources))
            worker.packets.append(PacketOp(piece.pages, piece.nbytes, reads, (done,), piece.places[-1]))


def _inbox(source: int) -> int:
    """Return the index of the place for a source chip in a piece of a direct reduce-scatter."""
    return INPUT + 1 + source


def _share(worker: Worker, call: CallPlan, cut: Cut, number: int) -> list[PageGroup]:
    """Return the pieces of slice ``number`` that a worker handles."""
    share = call.share(cut(number), worker.link)
    return half(share, worker.side) if call.place.is_both else share


def _arriving(worker: Worker, part: Sequence[PageGroup], chunks: int) -> list[Until]:
    """Return for each packet of ``part`` the condition that the packet has arrived; count these arrivals."""
    arrived = worker.words.arrived
    conditions = [worker.further(arrived, number // chunks + 1) for number in range(len(part))]
    worker.expect(arrived, syncs(len(part), chunks))
    return conditions


def _step(
    worker: Worker, part: Sequence[PageGroup], chunks: int, after: Sequence[Until] | None, is_sent: bool
) -> list[PacketOp]:
    """Return packets of the chip's input pieces, added to arrived partial sums if ``after`` is given. The target is the
    neighbour's partial sums if ``is_sent``, else the output.
    """
    packets, partial = [], PARTIAL[worker.side]
    for number, piece in enumerate(part):
        own, arriving = piece.places[INPUT], piece.places[partial]
        reads, conditions = ((own,), ()) if after is None else ((arriving, own), (after[number],))
        packet = PacketOp(piece.pages, piece.nbytes, reads, conditions)
        if is_sent:
            signal = worker.address(worker.words.arrived) if ends_chunk(number, part, chunks) else None
            packet = packet._replace(route=one_hop(worker.side), target=arriving, signal=signal)
        else:
            packet = packet._replace(local=piece.places[OUTPUT])
        packets.append(packet)
    return packets


def _finish(
    call: CallPlan, worker: Worker, own: Sequence[PageGroup], after: Sequence[Until], chunks: int
) -> list[PacketOp]:
    """Return the packets of the chip's slice on a line. If partial sums arrive from both directions, the forward worker
    hands its sum to the backward worker.
    """
    if not call.place.reach(worker.side):
        return _step(worker, own, chunks, after, is_sent=False)
    other = call.workers[worker.link, OPPOSITE[worker.side]]
    packets = []
    for number, piece in enumerate(own):
        arriving, places = piece.places[PARTIAL[worker.side]], piece.places
        if worker.side is Direction.E:
            signal = other.address(other.words.partial) if ends_chunk(number, own, chunks) else None
            reads = arriving, places[INPUT]
            packet = PacketOp(piece.pages, piece.nbytes, reads, (after[number],), places[SCRATCH])
            packets.append(packet._replace(local_signal=signal))
        else:
            handed = worker.further(worker.words.partial, number // chunks + 1)
            reads = arriving, places[SCRATCH]
            packets.append(PacketOp(piece.pages, piece.nbytes, reads, (after[number], handed), places[OUTPUT]))
    if worker.side is Direction.W:
        worker.expect(worker.words.partial, syncs(len(own), chunks))
    return packets


def _direct(call: CallPlan, worker: Worker, part: Sequence[PageGroup], hops: int, side: Direction) -> list[PacketOp]:
    """Return packets of a slice to the chip ``hops`` away, whose worker for direction ``side`` adds the pieces."""
    signal = call.workers[worker.link, side].address(worker.words.done)
    route, inbox = unicast(hops, worker.side), _inbox(call.place.position)
    packets = [
        PacketOp(each.pages, each.nbytes, each.places[:1], route=route, target=each.places[inbox]) for each in part
    ]
    return [*packets[:-1], packets[-1]._replace(signal=signal)] if packets else []
