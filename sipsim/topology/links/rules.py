"""Rules for ``system.sips``: topology, count, shape and edges."""

import re

from sipsim.config.document import Path, Problem, Rule, refused, shown, unregistered
from sipsim.config.schema.model import Resolved
from sipsim.core.errors import ConfigError
from sipsim.topology.links.base import TOPOLOGIES
from sipsim.topology.links.build import build_links

SIPS: Path = ("system", "sips")
LONGEST_PORT = 16
_PORT = re.compile(f"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST_PORT - 1}}}", re.ASCII)


def known_topology(resolved: Resolved) -> Problem | None:
    """``system.sips.topology`` is a registered topology."""
    return unregistered((*SIPS, "topology"), resolved.topology.system.sips.topology, TOPOLOGIES)


def custom_links_are_used(resolved: Resolved) -> Problem | None:
    """An edge list without topology ``custom`` would have no effect."""
    sips = resolved.topology.system.sips
    if not sips.custom_links or sips.topology == "custom":
        return None
    what = f"given, but system.sips.topology is {sips.topology}; use topology custom or leave the list out"
    return Problem(((*SIPS, "custom_links"), (*SIPS, "topology")), f"system.sips.custom_links: {what}")


def num_links_are_used(resolved: Resolved) -> Problem | None:
    """A number of links would have no effect on a topology whose links are given."""
    sips = resolved.topology.system.sips
    if sips.num_links is None or TOPOLOGIES.get(sips.topology).takes_num_links:
        return None
    able = " or ".join(name for name in TOPOLOGIES.names() if TOPOLOGIES.get(name).takes_num_links)
    what = f"given, but system.sips.topology is {sips.topology}; use topology {able}, or leave the number out"
    return Problem(((*SIPS, "num_links"), (*SIPS, "topology")), f"system.sips.num_links: {what}")


def ports_have_names(resolved: Resolved) -> Problem | None:
    """A port's name can stand in names of links and in flags."""
    for number, edge in enumerate(resolved.topology.system.sips.custom_links):
        for key, port in (("a_port", edge.a_port), ("b_port", edge.b_port)):
            if not _PORT.fullmatch(port):
                what = f"must be a letter and then letters, digits or _, {LONGEST_PORT} in all at most"
                return refused((*SIPS, "custom_links", number, key), shown(port), what)
    return None


def sips_can_be_joined(resolved: Resolved) -> Problem | None:
    """Count, shape and edges give links that join all SIPs."""
    try:
        build_links(resolved.topology.system.sips)
    except ConfigError as error:
        return Problem(tuple((*SIPS, key) for key in ("topology", "count", "shape", "custom_links")), str(error))
    return None


RULES: tuple[Rule, ...] = (
    custom_links_are_used,
    num_links_are_used,
    ports_have_names,
    sips_can_be_joined,
)
