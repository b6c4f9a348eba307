"""How much of the machine a row used, from the counters of all ranks."""

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType

from launcher.result.fields import EngineRow, LinkRow, StackRow, TlbRow, UsageRow
from sipsim.chips.api.chip import StackBound
from sipsim.fabric.flows import BUSY
from sipsim.records.report import EngineUse, LinkUse, TlbUse, Usage

ENDED = "ended"
Bound = Callable[[int], StackBound | None]
"""What binds PEs that stream so many slices of a stack."""


def row_usage(
    of_ranks: Sequence[Usage], time_ps: float, ranks: Sequence[int] = (), bound: Bound = lambda _slices: None
) -> UsageRow:
    """The use of a row whose iterations take ``time_ps``, by its ``ranks``, all of them unless they are given.

    Bytes and busy times are those of one iteration.
    """
    by_rank = list(zip(ranks or range(len(of_ranks)), of_ranks, strict=True))
    iterations = of_ranks[0].iterations or 1
    # Of a whole run, only the time of its launches counts: what the script does between them is no kernel's.
    is_row = of_ranks[0].iterations > 0
    links = [_link(link, iterations, time_ps) for each in of_ranks for link in each.links]
    used = max((each for each in links if each.wire_bytes), key=lambda each: each.busy_ps, default=None)
    rank, most = max(by_rank, key=lambda each: (each[1].edge_busy_ps, -each[0]))
    edge_ps = most.edge_busy_ps
    kernels = sum(each.ran.kernels for each in of_ranks)
    kernels_ps = kernels * time_ps if is_row else sum(each.ran.launch_ps for each in of_ranks)
    tlbs = [_tlb(rank, tlb, iterations) for rank, each in by_rank for tlb in each.tlbs]
    used_engines = [each.engines for each in of_ranks if each.engines is not None]
    return UsageRow(
        link_payload_bytes=sum(each.payload_bytes for each in links),
        link_wire_bytes=sum(each.wire_bytes for each in links),
        busiest_link=used.name if used else None,
        busiest_link_payload_bytes=used.payload_bytes if used else None,
        busiest_link_wire_bytes=used.wire_bytes if used else None,
        busiest_link_utilisation=used.utilisation if used else None,
        busiest_edge=f"sip{rank}.{most.edge}" if edge_ps else None,
        busiest_edge_utilisation=_part(edge_ps / iterations, time_ps) if edge_ps else None,
        kernels=kernels // iterations,
        links=links,
        kernel_time=_kernel_time(of_ranks, kernels_ps),
        tlbs=tlbs,
        engines=_engines(used_engines) if used_engines else None,
        stack=_stack(by_rank, iterations * time_ps, bound),
    )


def _stack(by_rank: Sequence[tuple[int, Usage]], time_ps: float, bound: Bound) -> StackRow | UnsetType:
    """The stack that moved most bytes, if it came near to what binds it."""
    used = [(each.stack.nbytes, -rank, each.stack) for rank, each in by_rank if each.stack is not None]
    if not used or not time_ps:
        return UNSET
    nbytes, rank, use = max(used, key=lambda each: each[:2])
    limit, GBps = bound(use.slices), nbytes * 1000 / time_ps
    if limit is None or GBps < BUSY * limit.GBps:
        return UNSET
    return StackRow(
        name=f"sip{-rank}.{use.cube}",
        GBps=GBps,
        published_GBps=limit.published_GBps,
        bound_GBps=limit.GBps,
        bound=limit.what,
        keys=list(limit.keys),
    )


def _engines(some: Sequence[EngineUse]) -> EngineRow:
    """Parts of the time in which kernels ran on the PEs that multiplied."""
    kernels_ps = sum(each.kernel_ps for each in some)
    commands_ps = _added([each.commands_ps for each in some])
    whole_ps = sum(commands_ps.values())
    return EngineRow(
        pes=sum(each.pes for each in some),
        busy={name: _part(ps, kernels_ps) for name, ps in _added([each.busy_ps for each in some]).items()},
        peak=_part(sum(each.peak_ps for each in some), kernels_ps),
        commands={name: _part(ps, whole_ps) for name, ps in commands_ps.items() if ps},
    )


def _added(some: Sequence[dict[str, int]]) -> dict[str, int]:
    """The sums, the largest first."""
    total: dict[str, int] = {}
    for each in some:
        for name, ps in each.items():
            total[name] = total.get(name, 0) + ps
    return dict(sorted(total.items(), key=lambda each: (-each[1], each[0])))


def _tlb(rank: int, tlb: TlbUse, iterations: int) -> TlbRow:
    hits, misses = _per(tlb.hits, iterations), _per(tlb.misses, iterations)
    return TlbRow(f"sip{rank}.{tlb.pe}", hits, misses)


def _link(link: LinkUse, iterations: int, time_ps: float) -> LinkRow:
    return LinkRow(
        name=link.link,
        frames=_per(link.frames, iterations),
        payload_bytes=_per(link.payload_bytes, iterations),
        credit_bytes=_per(link.credit_bytes, iterations),
        wire_bytes=_per(link.wire_bytes, iterations),
        busy_ps=round(link.busy_ps / iterations),
        utilisation=_part(link.busy_ps / iterations, time_ps),
    )


def _kernel_time(of_ranks: Sequence[Usage], whole_ps: float) -> dict[str, float]:
    """Parts of the time of all kernels by what they waited for, the largest first; after their end they are idle."""
    if not whole_ps:
        return {}
    waited: dict[str, int] = {}
    for each in of_ranks:
        for name, ps in each.ran.waited_ps.items():
            waited[name] = waited.get(name, 0) + ps
    parts = {name: ps / whole_ps for name, ps in sorted(waited.items(), key=lambda each: (-each[1], each[0])) if ps}
    if sum(waited.values()) > whole_ps:
        return {}  # kernels that have not ended waited, too
    ended = 1 - sum(each.ran.kernel_ps for each in of_ranks) / whole_ps
    return {**parts, ENDED: ended} if ended > 0 else parts


def _part(ps: float, of_ps: float) -> float:
    return ps / of_ps if of_ps else 0.0


def _per(count: int, iterations: int) -> float | int:
    """Exact where iterations are alike."""
    return count // iterations if count % iterations == 0 else count / iterations
