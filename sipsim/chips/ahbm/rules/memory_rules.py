"""Rules for memories: their kinds, and what each kind is told."""

from collections.abc import Iterator

from sipsim.chips.ahbm.memory.ports.port import FIXED_LATENCY, MEMORY_KINDS
from sipsim.chips.ahbm.mesh.base import memory_parts
from sipsim.config.check.check import convert_part
from sipsim.config.document import Problem, Rule, dotted, no_power_of_two, refused, shown, unregistered
from sipsim.config.schema.model import Resolved


def known_memory_kinds(resolved: Resolved) -> Problem | None:
    """``kind`` of every memory is registered."""
    for part in memory_parts(resolved):
        path, cost = part.memory()
        problem = unregistered((*path, "kind"), cost.kind, MEMORY_KINDS) if cost.kind is not None else None
        if problem:
            return problem
    return None


def memory_params_fit_kind(resolved: Resolved) -> Problem | None:
    """``params`` of every memory are exactly its kind's, and fit each other and the memory's size."""
    for part in memory_parts(resolved):
        path, cost = part.memory()
        kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
        fitted = convert_part(cost.params, kind.Params, (*path, "params"))
        if isinstance(fitted, Problem):
            return fitted.caused_by((*path, "kind"))
        refusal = kind.refusal(fitted, part.capacity_bytes())
        if refusal is not None:
            where = (*path, "params", refusal.name)
            value = shown(getattr(fitted, refusal.name))
            return refused(where, value, refusal.what, (*path, "kind"), *refusal.others)
    return None


def pages_are_powers_of_two(resolved: Resolved) -> Problem | None:
    """A page number is the upper bits of an address."""
    mmu = resolved.components.pe_mmu
    if mmu is None or not (what := no_power_of_two(mmu.page_KiB)):
        return None
    return refused(("pe_mmu", "page_KiB"), mmu.page_KiB, what)


def unused_keys(resolved: Resolved) -> Iterator[Problem]:
    """Keys of memories that their kinds do not use."""
    for part in memory_parts(resolved):
        path, cost = part.memory()
        name = cost.kind or FIXED_LATENCY
        for key, instead in MEMORY_KINDS.get(name).unused.items():
            here = dotted(path)
            what = f"has no effect with {here}.kind = {name}; set {here}.{instead}, or {here}.kind=null"
            yield refused((*path, key), f"{getattr(cost, key):g}", what)


MEMORY_RULES: tuple[Rule, ...] = (
    known_memory_kinds,
    memory_params_fit_kind,
    pages_are_powers_of_two,
)
