"""Delays of transfers by other transfers: by earlier ones of the same train, and by those on the same edges.

The delays are computed from the history of a fabric after the run.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from sipsim.fabric.graph import FAR, Edge, Node, Route

Ps = int
_MAX_EXAMINED = 16
"""Maximum number of flows on an edge that are examined for the most common path beside a delayed flow."""


class Sharing(NamedTuple):
    """Delay on an edge from ``src`` to ``dst``, or on a ``memory``; ``others``: the usual path of other flows there."""

    src: Node
    dst: Node
    memory: str
    others: str
    delay_ps: Ps

    @classmethod
    def on(cls, edge: Edge, others: str, delay_ps: Ps) -> "Sharing":
        """Return a delay of ``delay_ps`` on ``edge``."""
        return cls(edge.src, edge.dst, edge.memory, others, delay_ps)


class Delayed(NamedTuple):
    """Delayed transfer: started at ``now_ps``, its tail arrived at ``dst`` at ``end_ps``; ``shares``: delay by edge."""

    src: str
    dst: str
    nbytes: int
    now_ps: Ps
    end_ps: Ps
    shares: tuple[Sharing, ...]


class RatePeriod(NamedTuple):
    """Period of a flow at one ``rate``, from ``from_ps`` on; ``limit``: the rate of the flow alone. ``neck``: the edge
    that bounds the rate, if any; ``others``: the most common path of other flows there.
    """

    from_ps: Ps
    rate: int
    limit: int
    neck: Edge | None
    others: str


class Past:
    """Transfer in the history of a fabric, started at ``now_ps``.

    ``begin_ps``, ``leave_ps``: when its first and last byte left the source, -1 until known; ``own_ps``: the time
    between them for a transfer alone. ``drained_ps``: when the source only waited for the last byte, -1 if it never
    did. ``late_ps``: its delay before ``begin_ps``, by earlier transfers of its train.
    """

    __slots__ = ("begin_ps", "drained_ps", "late_ps", "leave_ps", "nbytes", "now_ps", "own_ps", "periods", "route")

    def __init__(self, route: Route, nbytes: int, now_ps: Ps) -> None:
        self.route = route
        self.nbytes = nbytes
        self.now_ps = now_ps
        self.begin_ps = self.drained_ps = self.leave_ps = -1
        self.own_ps = self.late_ps = 0
        self.periods: list[RatePeriod] = []

    def note_begin(self, begin_ps: Ps, own_ps: Ps, late_ps: Ps) -> None:
        """Note when the transfer's first byte left its source."""
        self.begin_ps, self.own_ps, self.late_ps, self.leave_ps = begin_ps, own_ps, late_ps, begin_ps + own_ps

    @property
    def path_text(self) -> str:
        """The route as text, such as ``cube0.pe0 to link E``."""
        if not self.route.edges:
            return f"{self.route.start} to itself"
        end = self.route.edges[-1].dst
        return f"{self.route.start} to {f'link {end.place}' if end.kind == FAR else end}"

    def note_rate(self, now_ps: Ps, rate: int, limit: int, neck: Edge | None, others: Iterable[str]) -> None:
        """Note a new rate, bounded by edge ``neck``; ``others``: the paths of the other flows that share ``neck``."""
        counts = Counter(islice(others, _MAX_EXAMINED))
        path = max(counts, key=lambda path: (counts[path], path), default="")
        text = f"other transfers on its route, {path}" if path == self.path_text else path
        self.periods.append(RatePeriod(now_ps, rate, limit, neck, text))


def delayed(history: Iterable[Past]) -> Iterator[Delayed]:
    """Yield the transfers that others delayed, in the order of their starts."""
    for past in history:
        if past.begin_ps < 0 or not past.route.edges:
            continue
        shares = [*_delay_by_train(past), *_delays_by_sharing(past)]
        if shares:
            end_ps = past.leave_ps + past.route.head_ps()
            src, dst = str(past.route.start), str(past.route.edges[-1].dst)
            yield Delayed(src, dst, past.nbytes, past.now_ps, end_ps, tuple(shares))


def _delay_by_train(past: Past) -> Iterator[Sharing]:
    """Yield the delay by earlier transfers of the same source, if there is any."""
    if past.late_ps:
        first = next((edge for edge in past.route.edges if not edge.memory), past.route.edges[0])
        yield Sharing.on(first, "earlier transfers of its source", past.late_ps)


def _delays_by_sharing(past: Past) -> Iterator[Sharing]:
    """Return the delay by sharing each edge with other flows. The rounding error is added to the last delay."""
    lost: dict[tuple[Edge, str], Ps] = {}
    starts_ps = [period.from_ps for period in past.periods]
    last_ps = past.leave_ps if past.drained_ps < 0 else past.drained_ps
    for period, end_ps in zip(past.periods, [*starts_ps[1:], last_ps], strict=False):
        if period.neck is not None:
            key = period.neck, period.others
            lost_ps = (end_ps - period.from_ps) * (period.limit - period.rate) // period.limit
            lost[key] = lost.get(key, 0) + lost_ps
    if lost:
        lost[key] += last_ps - past.begin_ps - past.own_ps - sum(lost.values())
    return (Sharing.on(edge, others, lost_ps) for (edge, others), lost_ps in lost.items() if lost_ps > 0)
