"""Delays of transfers by others: by earlier transfers of their train, and by transfers on the same edges.

Computed after a run from the history of a fabric.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from sipsim.fabric.graph import FAR, Edge, Node, Route

Ps = int
MOST_NAMED = 16
"""At most so many flows on an edge are examined to find the most common path beside a delayed flow."""


class Sharing(NamedTuple):
    """Delay on the edge from ``src`` to ``dst``, or on a ``memory``; ``others``: the path of most others there."""

    src: Node
    dst: Node
    memory: str
    others: str
    delay_ps: Ps

    @classmethod
    def on(cls, edge: Edge, others: str, delay_ps: Ps) -> "Sharing":
        """Make the delay on ``edge``."""
        return cls(edge.src, edge.dst, edge.memory, others, delay_ps)


class Delayed(NamedTuple):
    """Transfer of ``nbytes`` from ``src`` to ``dst``, started at ``now_ps``, whose tail arrived late, at ``end_ps``."""

    src: str
    dst: str
    nbytes: int
    now_ps: Ps
    end_ps: Ps
    shares: tuple[Sharing, ...]


class Stretch(NamedTuple):
    """Period of a flow from ``from_ps`` on, with ``part`` of ``whole`` of its limit on ``neck``, beside ``others``."""

    from_ps: Ps
    part: int
    whole: int
    neck: Edge | None
    others: str


class Past:
    """Transfer in the history of a fabric, from its start at ``now_ps`` on.

    ``begin_ps``, ``leave_ps``: when its first and last byte left; ``own_ps``: the time between them for a transfer
    alone. ``drained_ps``: when all bytes that its source then had were sent, except the last. ``late_ps``: its delay,
    against a transfer alone, before ``begin_ps``.
    """

    __slots__ = ("begin_ps", "drained_ps", "late_ps", "leave_ps", "nbytes", "now_ps", "own_ps", "route", "stretches")

    def __init__(self, route: Route, nbytes: int, now_ps: Ps) -> None:
        self.route = route
        self.nbytes = nbytes
        self.now_ps = now_ps
        self.begin_ps = self.drained_ps = self.leave_ps = -1
        self.own_ps = self.late_ps = 0
        self.stretches: list[Stretch] = []

    def begun(self, begin_ps: Ps, own_ps: Ps, late_ps: Ps) -> None:
        """Note that its first byte has left its source."""
        self.begin_ps, self.own_ps, self.late_ps, self.leave_ps = begin_ps, own_ps, late_ps, begin_ps + own_ps

    @property
    def path_text(self) -> str:
        """The route as text, such as ``cube0.pe0 to link E``."""
        if not self.route.edges:
            return f"{self.route.start} to itself"
        end = self.route.edges[-1].dst
        return f"{self.route.start} to {f'link {end.place}' if end.kind == FAR else end}"

    def divided(self, now_ps: Ps, rate: int, limit: int, neck: Edge | None, others: Iterable[str]) -> None:
        """Note a new rate: that of edge ``neck``, which transfers on the paths ``others`` share."""
        met = Counter(islice(others, MOST_NAMED))
        most = max(met, key=lambda path: (met[path], path), default="")
        self.stretches.append(
            Stretch(now_ps, rate, limit, neck, f"others of its way, {most}" if most == self.path_text else most)
        )


def delayed(history: Iterable[Past]) -> Iterator[Delayed]:
    """Yield the transfers that others delayed, in the order of their starts."""
    for past in history:
        if past.begin_ps < 0 or not past.route.edges:
            continue
        shares = [*_waiting(past), *_sharing(past)]
        if shares:
            end_ps = past.leave_ps + past.route.head_ps()
            src, dst = str(past.route.start), str(past.route.edges[-1].dst)
            yield Delayed(src, dst, past.nbytes, past.now_ps, end_ps, tuple(shares))


def _waiting(past: Past) -> Iterator[Sharing]:
    """Yield the wait for earlier transfers of the same source."""
    if past.late_ps:
        first = next((edge for edge in past.route.edges if not edge.memory), past.route.edges[0])
        yield Sharing.on(first, "earlier transfers of its source", past.late_ps)


def _sharing(past: Past) -> Iterator[Sharing]:
    """Yield the delay on each edge, with the path of the others there. The rounding error is added to the last edge."""
    lost: dict[tuple[Edge, str], Ps] = {}
    starts_ps = [each.from_ps for each in past.stretches]
    last_ps = past.leave_ps if past.drained_ps < 0 else past.drained_ps
    for stretch, end_ps in zip(past.stretches, [*starts_ps[1:], last_ps], strict=False):
        if stretch.neck is not None:
            key = stretch.neck, stretch.others
            lost_ps = (end_ps - stretch.from_ps) * (stretch.whole - stretch.part) // stretch.whole
            lost[key] = lost.get(key, 0) + lost_ps
    if lost:
        lost[key] += last_ps - past.begin_ps - past.own_ps - sum(lost.values())
    return (Sharing.on(edge, others, lost_ps) for (edge, others), lost_ps in lost.items() if lost_ps > 0)
