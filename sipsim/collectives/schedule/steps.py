"""The steps of a collective algorithm: what each rank sends and receives, in blocks. Plain data.

A *schedule* is made of flows that run side by side, each on a share of the elements, such as the two directions of a
ring. A flow gives every rank of the group a list of steps. In a step a rank sends blocks in one direction and receives
blocks in one direction, tile by tile in turn, or does only one of both. Blocks are numbered as
:mod:`sipsim.collectives.schedule.blocks` says; a message that combines is added to the block that the receiver has.

Steps have *rounds*. A message leaves in the round in which it is received, as the same tile of the step, so that it has
one position (round, tile) on both sides. A rank sends and receives in order of position, and of one position sends
first. Therefore every schedule ends, with any number of slots: of the ranks that have not ended, take one whose next
position is the least. If it is to receive, its sender is at that position or behind it, and at that position it would
still have to send, which comes first, so it would be earlier: the message is on its way. If it is to send and
all slots are taken, the receiver has an earlier position before it, which contradicts the choice. The same holds for
several flows on one worker that takes them in one order of (round, tile, flow).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

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


class Flow(NamedTuple):
    """``weight``: its share of the elements, relative to the other flows. ``pieces``: in how many blocks it wants each
    unit of data cut (:mod:`~sipsim.collectives.schedule.blocks`). ``steps_of(rank)``: the steps of a rank of the group.
    ``alike``: all ranks have the same steps, but for the numbers of their blocks.
    """

    weight: int
    pieces: int
    steps_of: Callable[[int], list[Step]]
    alike: bool = False


Schedule = list[Flow]
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
        if transfer.blocks:
            _check_wired(transfer, wiring)
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
