"""The schedule of a collective algorithm: the blocks that tensors are cut into, and each rank's steps. No side effects.

The ``cut`` of a collective states how tensors are cut into units of N elements, for G ranks:

* ``vector``: every rank's tensor has the same N elements, one unit. Block ``p`` is piece ``p`` of the unit.
* ``ranks``: the larger tensor has G * N elements, N for each rank. Unit ``r`` belongs to rank ``r``; its pieces are the
  blocks ``r * pieces + p``.
* ``pairs``: each rank has N elements for each rank. Rank ``i`` sends unit ``i * G + j`` to rank ``j``; pieces as above.

A schedule consists of flows that run in parallel, each on a share of the elements, such as the two directions of a
ring. A flow has a list of steps for every rank. In a step a rank sends blocks in one direction, or receives blocks from
one direction, or does both in turn, tile by tile.

Each step has a *round*. A message is sent and received in the same round and as the same tile of the step, so that it
has one position (round, tile) on both sides. A rank sends and receives in order of position; at equal positions the
rank sends first.

Therefore every schedule ends, with any number of slots. Proof: take a rank that has not ended and whose next position
is minimal. If this rank waits to receive, the sender of the message has passed this position, since no rank is at an
earlier position and each rank sends first: the message is in flight. If this rank waits to send because all slots are
taken, the receiver still has to receive a message of an earlier position, which contradicts the choice. The same holds
for several flows on one worker that processes them in one order of (round, tile, flow).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain, pairwise
from math import isqrt
from typing import Any, NamedTuple

VECTOR, RANKS, PAIRS = "vector", "ranks", "pairs"


class Share(NamedTuple):
    """A share of every unit, such as the share of one worker: the fractions ``start / whole`` to ``stop / whole``.

    The shares are cut identically on all ranks.
    """

    start: int
    stop: int
    whole: int

    def of(self, n_elem: int) -> tuple[int, int]:
        """Return the range (start, stop) of the share's elements in a unit of ``n_elem`` elements."""
        return n_elem * self.start // self.whole, n_elem * self.stop // self.whole


class Extent(NamedTuple):
    """Position of a block: ``length`` elements, at element ``source`` of a source tensor or ``result`` of a result."""

    length: int
    source: int
    result: int


def units(cut: str, size: int) -> int:
    """Return the number of units of a collective with this cut in a group of ``size`` ranks."""
    return {VECTOR: 1, RANKS: size, PAIRS: size * size}[cut]


def block_of(cut: str, gathers: bool, n_elem: int, size: int, part: Share, pieces: int, number: int) -> Extent:
    """Return the position of block ``number`` for share ``part`` of units of ``n_elem`` elements, cut into ``pieces``.

    ``gathers``: for cut ``ranks``, True if the source is the smaller tensor (gather), False if the result is (scatter).
    """
    unit, piece = divmod(number, pieces)
    first, stop = part.of(n_elem)
    start = first + (stop - first) * piece // pieces
    end = first + (stop - first) * (piece + 1) // pieces
    if cut == PAIRS:
        src, dst = divmod(unit, size)
        return Extent(end - start, dst * n_elem + start, src * n_elem + start)
    large = unit * n_elem + start
    source, result = (start, large) if gathers else (large, start)
    return Extent(end - start, source, result)


REPLACE, OWN_FIRST, ARRIVED_FIRST = 0, 1, 2
"""Handling of received values: replace the rank's values, or use them as the operator's second or first operand."""


class ScheduleError(ValueError):
    """Invalid schedule or wiring: no kernel can run it, or its result is wrong."""


class Step(NamedTuple):
    """One rank's step: it sends the blocks ``sends`` in direction ``send`` and receives ``recvs`` from ``recv``.

    ``send`` is "" if nothing is sent, ``recv`` if nothing is received. ``sends`` contains :func:`original` of a block
    to send its values from before the collective. ``combine``: how received values are handled. A rank has at most one
    step per round; a rank's steps are in order of rounds.
    """

    round: int
    send: str = ""
    sends: tuple[int, ...] = ()
    recv: str = ""
    recvs: tuple[int, ...] = ()
    combine: int = REPLACE


class Ahead(NamedTuple):
    """Limits of a worker's lookahead. ``sends``: number of receives of one direction that an independent send may
    overtake; ``receives``, ``loads``: number of receives and of loads in flight.

    A send that blocks on a full ring also delays the receives that it has overtaken: with ``sends=3`` in place of 1, an
    all-reduce of 4 MiB on a ring of 4 SIPs takes 80 us in place of 57 us. With 4 receives, all receives of a smallest
    message are issued while its first value is loaded.
    """

    sends: int = 1
    receives: int = 4
    loads: int = 4

    def within(self, n_slots: int) -> "Ahead":
        """Limit ``sends`` for rings of ``n_slots`` slots: a send overtakes at most ``n_slots - 1`` receives."""
        return self._replace(sends=min(self.sends, n_slots - 1))


class Flow(NamedTuple):
    """A part of a schedule: the steps of all ranks for a share of the elements.

    ``weight``: the share, relative to the other flows. ``pieces``: number of blocks per unit. ``steps_of(rank)``:
    returns the steps of a rank of the group. ``alike``: all ranks have the same steps except for block numbers.
    ``ahead``: limits of the workers' lookahead.
    """

    weight: int
    pieces: int
    steps_of: Callable[[int], list[Step]]
    alike: bool = False
    ahead: Ahead = Ahead()


Schedule = list[Flow]


def ahead_of(schedule: Schedule) -> Ahead:
    """Return the lookahead limits of a schedule: for each limit the maximum over all flows."""
    return Ahead(*map(max, zip(*(flow.ahead for flow in schedule), strict=True)))


End = tuple[int, str]
"""(rank of the group, one of its directions): one end of a queue pair."""
Wiring = dict[End, End]
"""The peer of each end; contains each connection twice, from either end."""


def original(block: int) -> int:
    """Return the code, in ``sends`` and transfers, for a block's values before the collective; inverse of itself."""
    return ~block


def number_of(block: int) -> int:
    """Return the number of a block; ``block`` is this number, or its code by :func:`original`."""
    return max(block, ~block)


class Transfer(NamedTuple):
    """Rank ``src`` sends blocks in direction ``send`` in a round. ``combine``: how the receiver handles the values."""

    round: int
    src: int
    send: str
    blocks: tuple[int, ...]
    combine: int = REPLACE


Sends = Callable[[int], Iterable[Transfer]]
"""Function that returns the transfers of a sender, given its rank; so transfers are made per rank on demand."""


def flow_of(
    weight: int, pieces: int, transfers: Iterable[Transfer] | Sends, wiring: Wiring, alike: bool = False
) -> Flow:
    """Make a flow from the transfers of all ranks; transfers without blocks are omitted.

    The steps of a rank are made from the transfers of the rank and its neighbours in the wiring only.

    Raises:
        ScheduleError: raised by ``steps_of``: a rank sends or receives twice in a round, or uses an unwired direction.
    """
    sends = transfers if callable(transfers) else _by_sender(transfers, wiring)
    # No reference cycles: a group's schedules are freed with the last reference to them.
    sent_by, peers = cache(partial(_sent, sends, wiring)), cache(partial(_peers, wiring))
    return Flow(weight, pieces, cache(partial(_steps_of, sent_by, peers, wiring)), alike)


def _by_sender(transfers: Iterable[Transfer], wiring: Wiring) -> Sends:
    """Group transfers by sender; the first request checks all transfers."""

    @cache
    def by_sender() -> dict[int, list[Transfer]]:
        groups: defaultdict[int, list[Transfer]] = defaultdict(list)
        for transfer in transfers:
            _check_wired(transfer, wiring)
            groups[transfer.src].append(transfer)
        return groups

    return lambda rank: by_sender().get(rank, ())


def _check_wired(transfer: Transfer, wiring: Wiring) -> None:
    if not isinstance(transfer.round, int):
        raise ScheduleError(f"rank {transfer.src} sends in round {transfer.round!r}; a round is an integer")
    if not isinstance(transfer.blocks, tuple | list) or not all(isinstance(block, int) for block in transfer.blocks):
        what = f"rank {transfer.src} sends blocks {_short(transfer.blocks)} in round {transfer.round}"
        raise ScheduleError(f"{what}; give a tuple of block numbers, such as (0,)")
    if transfer.blocks and (transfer.src, transfer.send) not in wiring:
        raise ScheduleError(not_wired(transfer.src, "sends", transfer.send, transfer.round, wiring))


SentBy = Callable[[int], dict[int, list[Transfer]]]
Peers = Callable[[], dict[int, dict[int, None]]]


def _steps_of(sent_by: SentBy, peers: Peers, wiring: Wiring, rank: int) -> list[Step]:
    sends: dict[int, Transfer] = {}
    for transfer in chain(*sent_by(rank).values()):
        first = sends.setdefault(transfer.round, transfer)
        if first is not transfer:
            ends = " and ".join(str(wiring[rank, each.send][0]) for each in (first, transfer))
            what = f"rank {rank} sends to ranks {ends} in round {first.round}"
            raise ScheduleError(f"{what} (directions {first.send}, {transfer.send}); a rank sends once in a round")
    recvs: dict[int, Transfer] = {}
    for transfer in chain(*(sent_by(src).get(rank, ()) for src in peers().get(rank, ()))):
        first = recvs.setdefault(transfer.round, transfer)
        if first is not transfer:
            directions = ", ".join(wiring[each.src, each.send][1] for each in (first, transfer))
            what = f"ranks {first.src} and {transfer.src} send to rank {rank} in round {first.round}"
            raise ScheduleError(f"{what} (its directions {directions}); a rank receives once in a round")
    return [_step(number, sends.get(number), recvs.get(number), wiring) for number in sorted({*sends, *recvs})]


def _sent(sends: Sends, wiring: Wiring, src: int) -> dict[int, list[Transfer]]:
    """Return the transfers that a rank sends, by receiver."""
    sent: defaultdict[int, list[Transfer]] = defaultdict(list)
    for transfer in sends(src):
        _check_wired(transfer, wiring)
        if transfer.src != src:
            raise ScheduleError(
                f"the transfers of rank {src} contain one with src={transfer.src}; return only transfers with src={src}"
            )
        if transfer.blocks:
            sent[wiring[src, transfer.send][0]].append(transfer)
    return sent


def _peers(wiring: Wiring) -> dict[int, dict[int, None]]:
    """Return for each rank the ranks that are wired to it, in order."""
    peers: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for (rank, _), (other, _) in wiring.items():
        peers[other][rank] = None
    return peers


def _step(number: int, out: Transfer | None, into: Transfer | None, wiring: Wiring) -> Step:
    step = Step(number) if out is None else Step(number, out.send, out.blocks)
    if into is None:
        return step
    recvs = tuple(map(number_of, into.blocks))
    return step._replace(recv=wiring[into.src, into.send][1], recvs=recvs, combine=into.combine)


def joined(*each: Sends) -> Sends:
    """Return a function that returns, for a rank, the transfers of all the given functions."""
    return lambda rank: chain(*(sends(rank) for sends in each))


def not_wired(rank: int, does: str, direction: str, number: int, wiring: Wiring) -> str:
    """Return the error message for a rank that uses a direction which is not in the wiring."""
    directions = ", ".join(sorted(str(each) for end, each in wiring if end == rank)) or "none"
    what = f"rank {rank} {does} in direction {direction!r} in round {number}, which is not in wiring()"
    return f"{what}; directions of rank {rank}: {directions}"


def mutual(pairs: dict[End, End]) -> Wiring:
    """Make a wiring from connections that are given in one direction each.

    Raises:
        ValueError: an end is connected to two others.
    """
    wiring: Wiring = {}
    for a, b in [*pairs.items(), *((b, a) for a, b in pairs.items())]:
        if wiring.setdefault(a, b) != b:
            raise ValueError(f"direction {a[1]} of rank {a[0]} leads to {wiring[a]} and to {b}; connect it once")
    return wiring


FOR_NEW_NAMES = "#"
"""Character reserved for the names of queue pairs that are created during a run; not allowed in directions."""


def check_wiring(wiring: Any, size: int) -> None:
    """Check the wiring of a group of ``size`` ranks: each end leads to an end of another rank, which leads back.

    Raises:
        ScheduleError: names the first wrong rank and direction.
    """
    if not isinstance(wiring, dict):
        raise ScheduleError(f"wiring() returned {_short(wiring)}; it must return a dict of (rank, direction) pairs")
    for end, peer in wiring.items():
        for each in (end, peer):
            if not _is_end(each, size):
                raise ScheduleError(
                    f"wiring() contains {_short(each)}; give (rank, direction): a rank from 0 to {size - 1} and a name "
                    f"without {FOR_NEW_NAMES}"
                )
        (rank, direction), (other, back) = end, peer
        if other == rank:
            raise ScheduleError(f"wiring() leads direction {direction} of rank {rank} back to the rank itself")
        if wiring.get(peer) != end:
            raise ScheduleError(
                f"wiring() leads direction {direction} of rank {rank} to {back} of rank {other}, which does not lead "
                f"back; add the reverse, as mutual() of sipsim.collectives.schedule does"
            )


def check_schedule(schedule: Any, wiring: Wiring, size: int, n_units: int) -> None:
    """Check all steps of all ranks. ``n_units``: number of units of the collective (:func:`units`).

    Results are checked by :func:`~sipsim.collectives.evaluate.check_results`.

    Raises:
        ScheduleError: names the first wrong rank and round.
    """
    if not isinstance(schedule, list) or not schedule or not all(isinstance(flow, Flow) for flow in schedule):
        raise ScheduleError(f"schedule() returned {_short(schedule)}; return a list of flows, such as [flow_of(...)]")
    for flow in schedule:
        for name in ("weight", "pieces"):
            if not isinstance(getattr(flow, name), int) or getattr(flow, name) < 1:
                raise ScheduleError(f"a flow has {name} {getattr(flow, name)!r}; give an integer of at least 1")
        ahead = flow.ahead
        if not isinstance(ahead, Ahead) or ahead.sends < 0 or min(ahead.receives, ahead.loads) < 1:
            what = "give an Ahead with sends >= 0, receives >= 1 and loads >= 1"
            raise ScheduleError(f"a flow has ahead {ahead}; {what}")
        steps_of = [flow.steps_of(rank) for rank in range(size)]
        for rank, steps in enumerate(steps_of):
            _check_rounds(rank, [step.round for step in steps])
        # Senders first: in a flow made by flow_of, a wrong receive is caused by a wrong send.
        for does in ("sends", "receives"):
            for rank, steps in enumerate(steps_of):
                for step in steps:
                    _check_step(rank, does, step, wiring, n_units, flow.pieces)
        for rank, steps in enumerate(steps_of):
            for step in steps:
                _check_order(rank, step)


def _check_rounds(rank: int, rounds: list[int]) -> None:
    for earlier, later in pairwise(rounds):
        if later <= earlier:
            raise ScheduleError(f"rank {rank}: a step of round {later} follows round {earlier}; order steps by round")


def _check_step(rank: int, does: str, step: Step, wiring: Wiring, n_units: int, pieces: int) -> None:
    count = n_units * pieces
    direction, blocks = (step.send, step.sends) if does == "sends" else (step.recv, step.recvs)
    if blocks and (rank, direction) not in wiring:
        raise ScheduleError(not_wired(rank, does, direction, step.round, wiring))
    for block in blocks:
        if number_of(block) >= count:
            units = f"{n_units} unit{'s' * (n_units > 1)} in {pieces} piece{'s' * (pieces > 1)}"
            raise ScheduleError(
                f"rank {rank} {does} block {number_of(block)} in round {step.round}; with {units} blocks "
                f"are numbered from 0 to {count - 1}"
            )
    if step.combine not in (REPLACE, OWN_FIRST, ARRIVED_FIRST):
        what = "give REPLACE, OWN_FIRST or ARRIVED_FIRST"
        raise ScheduleError(f"rank {rank} receives in round {step.round} with combine {step.combine!r}; {what}")


def _check_order(rank: int, step: Step) -> None:
    """Check that a block in both ``sends`` and ``recvs`` of a step follows the same blocks in both. Otherwise block
    sizes would decide whether the block is received or sent first, since a step sends and receives tiles in turn.
    """
    for index in range(len(step.sends)):
        block = step.sends[index]
        if block in step.recvs and step.sends[: index + 1] != step.recvs[: index + 1]:
            what = f"rank {rank} sends and receives block {block} in round {step.round} after different blocks"
            raise ScheduleError(f"{what}; send it in another round, or as original({block})")


def _is_end(thing: Any, size: int) -> bool:
    if not isinstance(thing, tuple) or len(thing) != 2:
        return False
    rank, direction = thing
    is_rank = isinstance(rank, int) and 0 <= rank < size
    return is_rank and isinstance(direction, str) and bool(direction) and FOR_NEW_NAMES not in direction


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:60]}..."


MESSAGE_BYTES = 8192
LEAST_BYTES = 4096
MOST_PIECES = 64


def pieces_of(nbytes: int, transfers: int, blocks: int = 1, workers: int = 1) -> int:
    """Return the number of pieces (at least 1) that pipeline ``nbytes`` best through a chain of ``transfers``.

    A message costs its serialization time plus a fixed cost, about the link's time for ``MESSAGE_BYTES``. ``k`` pieces
    through ``h`` successive transfers take ``h + k - 1`` times the time of one piece; this total is minimal for
    ``k = sqrt((h - 1) * bytes / MESSAGE_BYTES)``. Workers that share the bytes also share the link, so both costs
    scale alike. In messages of less than ``LEAST_BYTES``, framing and commands dominate.

    ``blocks``: number of blocks into which the bytes are already cut. ``workers``: number of workers that share each
    block. A piece of a block has at least ``MESSAGE_BYTES``, and ``LEAST_BYTES`` per worker.
    """
    wanted = isqrt(max(transfers - 1, 0) * nbytes // MESSAGE_BYTES)
    most = nbytes // (blocks * max(MESSAGE_BYTES, workers * LEAST_BYTES))
    return max(min(wanted, MOST_PIECES, most), 1)


def staggered(flow: Flow, copies: int, lag: int) -> Flow:
    """Pipeline a flow: run ``copies`` copies, each on one share of every block, ``lag`` rounds after the previous copy.

    Rounds of several copies that coincide run in the order of the copies.
    """
    if copies == 1:
        return flow

    def delayed(step: Step, copy: int) -> Step:
        def share(blocks: tuple[int, ...]) -> tuple[int, ...]:
            # For the code of an original block: ~(b * copies + copy) is ~b * copies + copies - 1 - copy.
            return tuple(block * copies + (copy if block >= 0 else copies - 1 - copy) for block in blocks)

        number = (step.round + copy * lag) * copies + copy
        return step._replace(round=number, sends=share(step.sends), recvs=share(step.recvs))

    def steps_of(rank: int) -> list[Step]:
        steps = [delayed(step, copy) for step in flow.steps_of(rank) for copy in range(copies)]
        return sorted(steps, key=lambda step: step.round)

    return flow._replace(pieces=flow.pieces * copies, steps_of=steps_of)
