"""Rules for the memories of ``components``: their kinds, and what each kind is told."""

from sipsim.config.check import convert_part
from sipsim.config.document import Problem, Rule, unregistered
from sipsim.config.model import Resolved
from sipsim.memory.port import FIXED_LATENCY, MEMORY_KINDS
from sipsim.topology.address import SPACES


def known_memory_kinds(resolved: Resolved) -> Problem | None:
    """``kind`` of every memory is registered."""
    for space in SPACES:
        kind = getattr(resolved.components, space).kind
        problem = unregistered((space, "kind"), kind, MEMORY_KINDS) if kind is not None else None
        if problem:
            return problem
    return None


def memory_params_fit_kind(resolved: Resolved) -> Problem | None:
    """``params`` of every memory are exactly its kind's."""
    for space in SPACES:
        cost = getattr(resolved.components, space)
        kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
        fitted = convert_part(cost.params, kind.Params, (space, "params"))
        if isinstance(fitted, Problem):
            return Problem((*fitted.paths, (space, "kind")), fitted.text)
    return None


RULES: tuple[Rule, ...] = (
    known_memory_kinds,
    memory_params_fit_kind,
)
