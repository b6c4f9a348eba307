"""Machine usage of a row, from the counters of all ranks."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from launcher.result.fields import EngineRow, LinkRow, StackRow, TlbRow, UsageRow
from sipsim.chips.api.chip import StackBound
from sipsim.fabric.flows import BUSY
from sipsim.records.report import EngineUse, LinkUse, TlbUse, Usage

ENDED = "ended"
Bound = Callable[[int], StackBound | None]
"""Function from a number of HBM slices in use to the bandwidth limit of the PEs that use these; None if unknown."""


def row_usage(
    of_ranks: Sequence[Usage], time_ps: float, ranks: Sequence[int] = (), bound: Bound = lambda _slices: None
) -> UsageRow:
    """Return the machine usage per iteration, for a row whose iterations take ``time_ps`` ps on average.

    ``of_ranks``: the counters of each rank in ``ranks``; if ``ranks`` is empty, of all ranks.
    """
    by_rank = list(zip(ranks or range(len(of_ranks)), of_ranks, strict=True))
    iterations = of_ranks[0].iterations or 1
    # For a whole run, only the time of its launches counts: between launches, no kernel runs.
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
    """Return the HBM stack that moved most bytes if the stack's rate is near its limit; else UNSET."""
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


def _engines(used: Sequence[EngineUse]) -> EngineRow:
    """Return the use of engines, as fractions of the time in which kernels ran on PEs whose PE_GEMM ran."""
    kernels_ps = sum(each.kernel_ps for each in used)
    commands_ps = _sums([each.commands_ps for each in used])
    whole_ps = sum(commands_ps.values())
    return EngineRow(
        pes=sum(each.pes for each in used),
        busy={name: _part(ps, kernels_ps) for name, ps in _sums([each.busy_ps for each in used]).items()},
        peak=_part(sum(each.peak_ps for each in used), kernels_ps),
        commands={name: _part(ps, whole_ps) for name, ps in commands_ps.items() if ps},
    )


def _sums(terms: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of each name's values in ``terms``, the largest sum first."""
    total: dict[str, int] = {}
    for each in terms:
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
    """Return fractions of the time of all kernels, by name of the command that kernels waited for, the largest first.
    The last entry, ``ended``, is the fraction of time after the kernels' ends.
    """
    if not whole_ps:
        return {}
    waited = _sums([each.ran.waited_ps for each in of_ranks])
    parts = {name: ps / whole_ps for name, ps in waited.items() if ps}
    if sum(waited.values()) > whole_ps:
        return {}  # waits of kernels that have not ended are included
    ended = 1 - sum(each.ran.kernel_ps for each in of_ranks) / whole_ps
    return {**parts, ENDED: ended} if ended > 0 else parts


def _part(ps: float, of_ps: float) -> float:
    return ps / of_ps if of_ps else 0.0


def _per(count: int, iterations: int) -> float | int:
    """Return the mean of a count per iteration, as an integer if the mean is whole."""
    return count // iterations if count % iterations == 0 else count / iterations
