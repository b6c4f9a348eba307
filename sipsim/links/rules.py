"""Rules for ``links``, the link presets, and for the preset in use."""

from sipsim.config.check import convert_part
from sipsim.config.document import Problem, Rule, dotted, refused, unregistered
from sipsim.config.model import Resolved
from sipsim.links.base import LINK_KINDS
from sipsim.registry import unknown_name


def known_link(resolved: Resolved) -> Problem | None:
    """``system.sips.link`` is a preset of ``links``."""
    name, presets = resolved.topology.system.sips.link, resolved.links.links
    if name in presets:
        return None
    path = ("system", "sips", "link")
    return Problem((path,), f"{dotted(path)}: {unknown_name('link', name, presets)}")


def known_link_kinds(resolved: Resolved) -> Problem | None:
    """Every preset is of a registered link kind."""
    for name, preset in resolved.links.links.items():
        problem = unregistered(("links", name, "kind"), preset.kind, LINK_KINDS)
        if problem:
            return problem
    return None


def links_have_delay(resolved: Resolved) -> Problem | None:
    """Without latency a link has hardly any lookahead, and SIPs cannot run in parallel: zero is refused."""
    for name, preset in resolved.links.links.items():
        latency = preset.params.get("latency_ns")
        if latency == 0 and not isinstance(latency, bool):
            what = "a link between SIPs without delay cannot be simulated in parallel; must be more than 0"
            return refused(("links", name, "params", "latency_ns"), latency, what)
    return None


def link_params_fit_kind(resolved: Resolved) -> Problem | None:
    """Every preset's ``params`` are exactly its kind's, used or not."""
    for name, preset in resolved.links.links.items():
        fitted = convert_part(preset.params, LINK_KINDS.get(preset.kind), ("links", name, "params"))
        if isinstance(fitted, Problem):
            return Problem((*fitted.paths, ("links", name, "kind")), fitted.text)
    return None


RULES: tuple[Rule, ...] = (
    known_link,
    known_link_kinds,
    links_have_delay,
    link_params_fit_kind,
)
