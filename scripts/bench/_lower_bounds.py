"""The least time of a collective by whatever algorithm: with few bytes, and with many.

**Few bytes** (:func:`latency_bound`). What a rank ends with depends on what another had. So some value of the other is
loaded, leaves in a message, passes the way between both SIPs, is taken from its slot, combined if the collective
combines, and stored; in this order, each behind the one before, by whatever algorithm and however many ranks pass it
on. The bound is the sum of these for the two ranks that are farthest apart, for one element, where nothing else is
under way, no credit is waited for, and no page or row of a memory is missed. A PE that has something to do until the
message comes needs no wake-up, so there is none in it. Messages go by the system's routes, from and to the PEs at the
same place; these have the fewest links, so with links of more than one kind a relay may be faster, and there is no
bound.

**Many bytes** (:func:`bandwidth_bound`), by what must cross links between SIPs. With units of n bytes and G ranks,
whatever the algorithm:

* Out of a set A of SIPs with ``a`` ranks, into the rest with ``b``, must go: n for an all-reduce, since for each
  element some value that depends on A's must get out; n for a broadcast whose root is in A, or a reduction whose root
  is not; ``a n`` for an all-gather, or a gather whose root is not in A; ``b n`` for a reduce-scatter, where each of B's
  parts needs A's contribution, or a scatter whose root is in A; ``a b n`` for an all-to-all.
* All links together carry at least: ``(G - 1)`` n for a broadcast or a reduction, since each rank but one receives, or
  sends, each element; ``G (G - 1)`` n for an all-gather or a reduce-scatter; for a gather, a scatter or an all-to-all n
  for each link of the shortest route of each unit. For each element of an all-reduce ``2 (G - 1)`` messages: until the
  first rank has its result, messages have joined all ranks, so there were ``G - 1``; each other rank receives its last
  one later, which makes as many again.

A link carries bytes of payload at its bandwidth, times the share of payload in the best message of at most
``message_bytes``. The bound is the greatest of the times of all links together and of cuts: around each SIP by the
number of links, and bands of rows and of columns, or of neighbours in a ring or line. Compute and memories add to it.
"""

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.cost import CommandTimes
from sipsim.chips.ahbm.collectives.launch import Place
from sipsim.collectives.group import towards
from sipsim.collectives.schedule import units
from sipsim.collectives.semantics import Task
from sipsim.fabric.links.kind import AnyLinkKind
from sipsim.fabric.sips import SipNetwork

PS_PER_S = 10**12


class Bound(NamedTuple):
    """``ps``: the least time, not rounded. ``where``: the links that bound it. ``nbytes``: payload that they carry."""

    ps: Fraction
    where: str
    nbytes: int


class Rates:
    """``system``: its links. ``message_bytes``: the largest payload of a message."""

    def __init__(self, system: SipNetwork, message_bytes: int) -> None:
        self.system = system
        self.of_links = [_payload_bps(kind, message_bytes) for kind in system.link_kinds]

    def out_of(self, sips: frozenset[int]) -> Fraction:
        """Bytes a second of all links that leave a set of SIPs."""
        links = zip(self.system.links, self.of_links, strict=True)
        return sum((rate for link, rate in links if link.src in sips and link.dst not in sips), Fraction(0))


@cache
def _payload_bps(kind: AnyLinkKind, message_bytes: int) -> Fraction:
    best = max(Fraction(nbytes, kind.wire_bytes(nbytes)) for nbytes in range(1, message_bytes + 1))
    return best * kind.bandwidth_bps


def bandwidth_bound(task: Task, message_bytes: int) -> Bound:
    """The least time that bytes over links take; 0 for one rank."""
    group, rates = task.group, Rates(task.group.system, message_bytes)
    if task.size == 1:
        return Bound(Fraction(0), "no link", 0)
    found = []
    for where, sips in cuts(group.system):
        inside = sum(sip in sips for sip in group.sips)
        nbytes = crossing_bytes(task, inside, group.sips[task.root] in sips)
        if 0 < inside < task.size and nbytes:
            found.append(Bound(nbytes * PS_PER_S / rates.out_of(sips), f"links out of {where}", nbytes))
    volume = least_volume(task)
    found.append(Bound(volume * PS_PER_S / sum(rates.of_links, Fraction(0)), "all links together", volume))
    return max(found, key=lambda bound: bound.ps)


def crossing_bytes(task: Task, inside: int, has_root: bool) -> int:
    """Bytes that must leave a set of SIPs with so many ranks and, maybe, the root."""
    outside = task.size - inside
    factor = {
        "all_reduce": 1,
        "broadcast": int(has_root),
        "reduce": int(not has_root),
        "all_gather": inside,
        "gather": 0 if has_root else inside,
        "reduce_scatter": outside,
        "scatter": outside if has_root else 0,
        "all_to_all": inside * outside,
    }[task.collective.name]
    return factor * task.n_elem * task.itemsize


def least_volume(task: Task) -> int:
    """Bytes that all links carry together at least."""
    size, name, sips = task.size, task.collective.name, task.group.sips
    if name == "all_reduce":
        factor = 2 * (size - 1)
    elif name in ("broadcast", "reduce"):
        factor = size - 1
    elif name in ("all_gather", "reduce_scatter"):
        factor = size * (size - 1)
    else:
        starts = sips if name == "all_to_all" else (sips[task.root],)
        hops = [_hops_from(task.group.system, start) for start in starts]
        factor = sum(each[sip] for each in hops for sip in sips)
    return factor * task.n_elem * task.itemsize


def cuts(system: SipNetwork) -> Iterator[tuple[str, frozenset[int]]]:
    """Sets of SIPs, each with a name."""
    for sip in range(system.n_sips):
        hops = _hops_from(system, sip)
        for radius in range(max(hops.values())):
            inside = frozenset(other for other, distance in hops.items() if distance <= radius)
            yield (f"SIP {sip}" if radius == 0 else f"the {len(inside)} SIPs around SIP {sip}"), inside
    width, height = system.shape
    for axis, length in enumerate((width, height)):
        for first in range(length):
            for last in range(first, length):
                band = range(first, last + 1)
                inside = frozenset(sip for sip in range(system.n_sips) if (sip % width, sip // width)[axis] in band)
                # A band and the rest are the two sides of one cut.
                sides = (("", inside), ("not ", frozenset(range(system.n_sips)) - inside))
                for prefix, side in sides if len(band) < length else ():
                    yield f"SIPs {prefix}in {('columns', 'rows')[axis]} {first} to {last}", side


def _hops_from(system: SipNetwork, start: int) -> dict[int, int]:
    """Links of the shortest route to each SIP; as many as back, since links go both ways."""
    hops, queue = {start: 0}, deque([start])
    while queue:
        sip = queue.popleft()
        for link in system.links:
            if link.src == sip and link.dst not in hops:
                hops[link.dst] = hops[sip] + 1
                queue.append(link.dst)
    return hops


Ps = int


class LatencyBound(NamedTuple):
    """In ps: the value's ``load``; the ``send``, the ``way`` and the ``latch`` of the message; what is ``combined``, 0
    if nothing is; and the ``store``. ``ranks``: where from and to.
    """

    ranks: tuple[int, int]
    load: Ps
    send: Ps
    way: Ps
    latch: Ps
    combined: Ps
    store: Ps

    @property
    def ps(self) -> Ps:
        """All of it."""
        return sum(self[1:])


def latency_bound(task: Task, place: Place, commands: CommandTimes) -> LatencyBound | None:
    """Of a task whose worker is at ``place`` on each SIP; None where no rank needs what another has, or where links are
    of several kinds.
    """
    nbytes = task.itemsize

    def way_ps(ranks: tuple[int, int]) -> Ps:
        src, dst = ((task.group.sips[rank], *place) for rank in ranks)
        return sum(commands.message_ps((src, towards(ranks[1]), dst), nbytes))

    pairs = dependences(task)
    if not pairs or len(set(task.group.system.link_kinds)) > 1:
        return None
    farthest = max(pairs, key=way_ps)
    return LatencyBound(
        farthest,
        commands.issue_ps + sum(commands.load_ps(nbytes)),
        commands.issue_ps,
        way_ps(farthest),
        commands.latch_ps(nbytes),
        commands.issue_ps + commands.math_ps(nbytes) if task.collective.combines else 0,
        commands.issue_ps + commands.store_ps(nbytes),
    )


def dependences(task: Task) -> list[tuple[int, int]]:
    """The pairs of ranks of which the second one's result depends on what the first one has, in order."""
    collective, size, root = task.collective, task.size, task.root
    found: set[tuple[int, int]] = set()
    for unit in range(units(collective.cut, size)):
        holders = [rank for rank in range(size) if collective.holds(unit, rank, size, root)]
        for rank in range(size):
            is_own = rank in holders and not collective.combines
            if collective.needs(unit, rank, size, root) and not is_own:
                found.update((holder, rank) for holder in holders if holder != rank)
    return sorted(found)
