"""The schedule of a collective algorithm: the blocks that tensors are cut into, and each rank's steps. Pure.

Three ways to cut tensors, by the ``cut`` of the collective's definition, for G ranks:

* ``vector``: every rank's tensor is the same N elements. A unit is the vector; block ``p`` is its piece ``p``.
* ``ranks``: a tensor of N elements for each rank, in a tensor of G * N. Unit ``r`` is rank ``r``'s; its pieces are the
  blocks ``r * pieces + p``.
* ``pairs``: N elements from each rank for each rank. Unit ``i * G + j`` goes from ``i`` to ``j``; pieces as above.

A schedule is made of flows that run side by side, each on a share of the elements, such as the two directions of a
ring. A flow gives every rank a list of steps. In a step a rank sends blocks in one direction and receives blocks in one
direction, tile by tile in turn, or does only one of both.

Steps have *rounds*. A message leaves in the round in which it is received, as the same tile of the step, so that it has
one position (round, tile) on both sides. A rank sends and receives in order of position, and of one position sends
first.

Therefore every schedule ends, with any number of slots. Proof: of the ranks that have not ended, take one whose next
position is the least. If it is to receive, its sender is at that position or behind it, and at that position it would
still have to send, which comes first, so it would be earlier: the message is on its way. If it is to send and all slots
are taken, the receiver has an earlier position before it, which contradicts the choice. The same holds for several
flows on one worker that takes them in one order of (round, tile, flow).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain, pairwise
from math import isqrt
from typing import Any, NamedTuple

VECTOR, RANKS, PAIRS = "vector", "ranks", "pairs"


class Part(NamedTuple):
    """A share of every unit, such as a worker's: from ``start`` to ``stop`` of ``whole``, in exact proportions.

    The cuts are the same on all ranks.
    """

    start: int
    stop: int
    whole: int

    def of(self, n_elem: int) -> tuple[int, int]:
        """The first element of a unit of ``n_elem``, and the first that is not in the part."""
        return n_elem * self.start // self.whole, n_elem * self.stop // self.whole


class Block(NamedTuple):
    """``length`` elements; ``source`` and ``result`` are offsets in the tensors of the ranks that have or need it."""

    length: int
    source: int
    result: int


def units(cut: str, size: int) -> int:
    """How many units a collective of a cut has in a group of ``size`` ranks."""
    return {VECTOR: 1, RANKS: size, PAIRS: size * size}[cut]


def block_of(cut: str, gathers: bool, n_elem: int, size: int, part: Part, pieces: int, number: int) -> Block:
    """Block ``number`` of a part of units of ``n_elem`` elements.

    ``gathers``: with cut ``ranks``, whether the small tensor is the source (of a gather) or the result (of a scatter).
    """
    unit, piece = divmod(number, pieces)
    first, stop = part.of(n_elem)
    start = first + (stop - first) * piece // pieces
    end = first + (stop - first) * (piece + 1) // pieces
    if cut == PAIRS:
        src, dst = divmod(unit, size)
        return Block(end - start, dst * n_elem + start, src * n_elem + start)
    large = unit * n_elem + start
    source, result = (start, large) if gathers else (large, start)
    return Block(end - start, source, result)


REPLACE, OWN_FIRST, ARRIVED_FIRST = 0, 1, 2
"""What comes replaces a rank's own values, or is combined with them by the operator, as its second or first operand."""


class ScheduleError(ValueError):
    """A schedule that no kernel can carry out."""


class Step(NamedTuple):
    """One rank's step: ``sends`` leave in direction ``send`` while ``recvs`` come from direction ``recv``.

    An empty direction: it sends, or receives, nothing. A block that is sent as it was before the collective, whatever
    has been combined with it since, stands as :func:`original`. ``combine``: what becomes of what comes. A rank has one
    step of a round at most, and steps in order of rounds.
    """

    round: int
    send: str = ""
    sends: tuple[int, ...] = ()
    recv: str = ""
    recvs: tuple[int, ...] = ()
    combine: int = REPLACE


class Ahead(NamedTuple):
    """How far a worker runs ahead. ``sends``: how many receives of a direction, on which it does not depend, a send may
    overtake; ``receives``, ``loads``: how many are under way at the same time.

    A send blocks while its ring is full, and with it the receives that it has overtaken: with ``sends=3`` in place of 1
    a ring of 4 SIPs takes 80 us in place of 57 us, for 4 MiB. With 4 receives, those of the smallest messages are
    issued while the first value is loaded.
    """

    sends: int = 1
    receives: int = 4
    loads: int = 4

    def within(self, n_slots: int) -> "Ahead":
        """The same with rings of ``n_slots``: a send overtakes fewer receives than a ring has slots."""
        return self._replace(sends=min(self.sends, n_slots - 1))


class Flow(NamedTuple):
    """A part of a schedule: the steps of all ranks for a share of the elements.

    ``weight``: its share, relative to the other flows. ``pieces``: in how many blocks it wants each unit of data cut.
    ``steps_of(rank)``: the steps of a rank of the group. ``alike``: all ranks have the same steps, but for the numbers
    of their blocks. ``ahead``: how far its workers run ahead.
    """

    weight: int
    pieces: int
    steps_of: Callable[[int], list[Step]]
    alike: bool = False
    ahead: Ahead = Ahead()


Schedule = list[Flow]


def ahead_of(schedule: Schedule) -> Ahead:
    """How far the workers of a schedule run ahead: as far as any of its flows asks for."""
    return Ahead(*map(max, zip(*(flow.ahead for flow in schedule), strict=True)))


End = tuple[int, str]
"""A rank of the group, and one of its directions."""
Wiring = dict[End, End]
"""Where each direction of each rank leads: to a direction of another rank, which leads back."""


def original(block: int) -> int:
    """A block as its rank had it before, in ``sends`` and transfers; of that the block."""
    return ~block


def number_of(block: int) -> int:
    """The number of a block, original or not."""
    return max(block, ~block)


class Transfer(NamedTuple):
    """In a round ``src`` sends blocks in direction ``send``. ``combine``: what becomes of them at the other end."""

    round: int
    src: int
    send: str
    blocks: tuple[int, ...]
    combine: int = REPLACE


Sends = Callable[[int], Iterable[Transfer]]
"""The transfers of one rank as ``src``, by rank: what makes no other rank's before somebody asks for them."""


def flow_of(
    weight: int, pieces: int, transfers: Iterable[Transfer] | Sends, wiring: Wiring, alike: bool = False
) -> Flow:
    """A flow from the transfers of all ranks; those without blocks are left out.

    The steps of one rank are made from what it and the ranks that its directions lead to send, and from no more.

    Raises:
        ScheduleError: from ``steps_of``, when a rank sends or receives twice in a round, or in no direction of its own.
    """

    sends = transfers if callable(transfers) else _by_sender(transfers, wiring)
    # No object keeps functions that refer to it: schedules of groups are freed with the last reference to them.
    sent_by, peers = cache(partial(_sent, sends, wiring)), cache(partial(_peers, wiring))
    return Flow(weight, pieces, cache(partial(_steps_of, sent_by, peers, wiring)), alike)


def _by_sender(transfers: Iterable[Transfer], wiring: Wiring) -> Sends:
    """The transfers of each rank, all of which are checked when the first is asked for."""

    @cache
    def found() -> dict[int, list[Transfer]]:
        of: defaultdict[int, list[Transfer]] = defaultdict(list)
        for transfer in transfers:
            _check_wired(transfer, wiring)
            of[transfer.src].append(transfer)
        return of

    return lambda rank: found().get(rank, ())


def _check_wired(transfer: Transfer, wiring: Wiring) -> None:
    if not isinstance(transfer.round, int):
        raise ScheduleError(f"rank {transfer.src} sends in round {transfer.round!r}; a round is an integer")
    if not isinstance(transfer.blocks, tuple | list) or not all(isinstance(block, int) for block in transfer.blocks):
        what = f"rank {transfer.src} sends blocks {_short(transfer.blocks)} in round {transfer.round}"
        raise ScheduleError(f"{what}; give a tuple of their numbers, such as (0,)")
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
            ways = ", ".join(wiring[each.src, each.send][1] for each in (first, transfer))
            what = f"ranks {first.src} and {transfer.src} send to rank {rank} in round {first.round}"
            raise ScheduleError(f"{what} (its directions {ways}); a rank receives once in a round")
    return [_step(number, sends.get(number), recvs.get(number), wiring) for number in sorted({*sends, *recvs})]


def _sent(sends: Sends, wiring: Wiring, src: int) -> dict[int, list[Transfer]]:
    """The transfers of a rank, by receiver."""
    found: defaultdict[int, list[Transfer]] = defaultdict(list)
    for transfer in sends(src):
        _check_wired(transfer, wiring)
        if transfer.src != src:
            raise ScheduleError(
                f"the transfers of rank {src} have one that rank {transfer.src} sends; give its own alone"
            )
        if transfer.blocks:
            found[wiring[src, transfer.send][0]].append(transfer)
    return found


def _peers(wiring: Wiring) -> dict[int, dict[int, None]]:
    """For each rank, the ranks whose directions lead to it."""
    found: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for (rank, _), (other, _) in wiring.items():
        found[other][rank] = None
    return found


def _step(number: int, out: Transfer | None, into: Transfer | None, wiring: Wiring) -> Step:
    step = Step(number) if out is None else Step(number, out.send, out.blocks)
    if into is None:
        return step
    recvs = tuple(map(number_of, into.blocks))
    return step._replace(recv=wiring[into.src, into.send][1], recvs=recvs, combine=into.combine)


def joined(*each: Sends) -> Sends:
    """All that several functions say of a rank."""
    return lambda rank: chain(*(sends(rank) for sends in each))


def not_wired(rank: int, does: str, direction: str, number: int, wiring: Wiring) -> str:
    """What is wrong with a direction in a round that a rank does not have."""
    own = ", ".join(sorted(str(each) for end, each in wiring if end == rank)) or "none"
    what = f"rank {rank} {does} in direction {direction!r} in round {number}, which its wiring() does not join"
    return f"{what}; directions of rank {rank}: {own}"


def mutual(pairs: dict[End, End]) -> Wiring:
    """A wiring from one end of each of its pairs of directions.

    Raises:
        ValueError: for a direction that leads to two places.
    """
    wiring: Wiring = {}
    for a, b in [*pairs.items(), *((b, a) for a, b in pairs.items())]:
        if wiring.setdefault(a, b) != b:
            raise ValueError(f"direction {a[1]} of rank {a[0]} leads to {wiring[a]} and to {b}")
    return wiring


FOR_NEW_NAMES = "#"
"""In names of queue pairs that are made while time runs, so in no direction."""


def check_wiring(wiring: Any, size: int) -> None:
    """Check the wiring of a group of ``size`` ranks: each direction of a rank leads to one of another, and back.

    Raises:
        ScheduleError: with the first rank and direction that does not.
    """
    if not isinstance(wiring, dict):
        raise ScheduleError(f"wiring() returned {_short(wiring)}; must be a dict of (rank, direction) to the like")
    for end, peer in wiring.items():
        for each in (end, peer):
            if not _is_end(each, size):
                raise ScheduleError(
                    f"wiring() has {_short(each)}; must be (rank, direction), of ranks 0 to {size - 1} and a name "
                    f"without {FOR_NEW_NAMES}"
                )
        (rank, direction), (other, back) = end, peer
        if other == rank:
            raise ScheduleError(f"wiring() leads direction {direction} of rank {rank} back to the rank itself")
        if wiring.get(peer) != end:
            raise ScheduleError(
                f"wiring() leads direction {direction} of rank {rank} to {back} of rank {other}, which does not lead "
                f"back; mutual() of sipsim.collectives.schedule makes both"
            )


def check_schedule(schedule: Any, wiring: Wiring, size: int, n_units: int) -> None:
    """Check all steps of all ranks. ``n_units``: units of the collective (:func:`units`).

    Whether all ranks end with the collective's result is for :func:`~sipsim.collectives.evaluate.check_results`.

    Raises:
        ScheduleError: with the first rank and round in which something is wrong.
    """
    if not isinstance(schedule, list) or not schedule or not all(isinstance(flow, Flow) for flow in schedule):
        raise ScheduleError(f"schedule() returned {_short(schedule)}; must be a list of flows, such as [flow_of(...)]")
    for flow in schedule:
        for name in ("weight", "pieces"):
            if not isinstance(getattr(flow, name), int) or getattr(flow, name) < 1:
                raise ScheduleError(f"a flow has {name} {getattr(flow, name)!r}; must be an integer of at least 1")
        ahead = flow.ahead
        if not isinstance(ahead, Ahead) or ahead.sends < 0 or min(ahead.receives, ahead.loads) < 1:
            what = "must be an Ahead with sends >= 0, receives >= 1 and loads >= 1"
            raise ScheduleError(f"a flow has ahead {ahead}; {what}")
        steps_of = [flow.steps_of(rank) for rank in range(size)]
        for rank, steps in enumerate(steps_of):
            _check_rounds(rank, [step.round for step in steps])
        # Senders first: what a rank receives wrongly comes from one that sends it wrongly, if flow_of has made it.
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
            raise ScheduleError(f"rank {rank} has a step of round {later} behind one of round {earlier}; rounds rise")


def _check_step(rank: int, does: str, step: Step, wiring: Wiring, n_units: int, pieces: int) -> None:
    count = n_units * pieces
    direction, blocks = (step.send, step.sends) if does == "sends" else (step.recv, step.recvs)
    if blocks and (rank, direction) not in wiring:
        raise ScheduleError(not_wired(rank, does, direction, step.round, wiring))
    for block in blocks:
        if number_of(block) >= count:
            units = f"{n_units} unit{'s' * (n_units > 1)} in {pieces} piece{'s' * (pieces > 1)}"
            raise ScheduleError(
                f"rank {rank} {does} block {number_of(block)} of {count} in round {step.round}; with {units} blocks "
                f"are numbered from 0 to {count - 1}"
            )
    if step.combine not in (REPLACE, OWN_FIRST, ARRIVED_FIRST):
        what = "must be REPLACE, OWN_FIRST or ARRIVED_FIRST"
        raise ScheduleError(f"rank {rank} receives in round {step.round} with combine {step.combine!r}; {what}")


def _check_order(rank: int, step: Step) -> None:
    """A step sends and receives tiles in turn, and how many tiles a block has depends on its size. So a block that it
    sends as it is then, and receives, stands behind the same blocks of both.
    """
    for place in range(len(step.sends)):
        block = step.sends[place]
        if block in step.recvs and step.sends[: place + 1] != step.recvs[: place + 1]:
            what = f"rank {rank} sends and receives block {block} in round {step.round}, behind other blocks"
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
    """In how many pieces to send ``nbytes`` through so many transfers one after the other; at least 1.

    A message costs its time on a link and, whatever its size, about as much as a link takes for ``MESSAGE_BYTES``. With
    ``k`` pieces through ``h`` transfers one after the other, ``h + k - 1`` of a piece's time pass, which is least for
    ``k = sqrt((h - 1) * bytes / MESSAGE_BYTES)``. Where workers share the bytes, the cost of a message and a worker's
    share of the link shrink alike; but framing and commands cost more of a message of less than ``LEAST_BYTES``.

    ``blocks``: in how many the bytes are cut anyhow. ``workers``: how many share each. A block of a piece is worth its
    messages.
    """
    wanted = isqrt(max(transfers - 1, 0) * nbytes // MESSAGE_BYTES)
    worth = nbytes // (blocks * max(MESSAGE_BYTES, workers * LEAST_BYTES))
    return max(min(wanted, MOST_PIECES, worth), 1)


def staggered(flow: Flow, copies: int, lag: int) -> Flow:
    """The flow ``copies`` times, each ``lag`` rounds behind the one before, on a share of each of its blocks.

    Rounds of the same time follow each other in the order of the copies.
    """
    if copies == 1:
        return flow

    def moved(step: Step, copy: int) -> Step:
        def share(blocks: tuple[int, ...]) -> tuple[int, ...]:
            # Of an original block too: ~(b * copies + copy) is ~b * copies + copies - 1 - copy.
            return tuple(block * copies + (copy if block >= 0 else copies - 1 - copy) for block in blocks)

        number = (step.round + copy * lag) * copies + copy
        return step._replace(round=number, sends=share(step.sends), recvs=share(step.recvs))

    def steps_of(rank: int) -> list[Step]:
        steps = [moved(step, copy) for step in flow.steps_of(rank) for copy in range(copies)]
        return sorted(steps, key=lambda step: step.round)

    return flow._replace(pieces=flow.pieces * copies, steps_of=steps_of)
