"""Rules for ``system.sips``: topology, count, shape and edges; and for the number of cubes."""

from sipsim.config.document import Path, Problem, Rule, dotted
from sipsim.config.model import Resolved
from sipsim.errors import ConfigError
from sipsim.registry import UnknownName
from sipsim.topology.address import CUBE_BITS
from sipsim.topology.base import TOPOLOGIES
from sipsim.topology.build import build_links

SIPS: Path = ("system", "sips")


def known_topology(resolved: Resolved) -> Problem | None:
    """``system.sips.topology`` is a registered topology."""
    try:
        TOPOLOGIES.get(resolved.topology.system.sips.topology)
    except UnknownName as error:
        path = (*SIPS, "topology")
        return Problem((path,), f"{dotted(path)}: {error}")
    return None


def custom_links_are_used(resolved: Resolved) -> Problem | None:
    """An edge list without topology ``custom`` would have no effect."""
    sips = resolved.topology.system.sips
    if not sips.custom_links or sips.topology == "custom":
        return None
    what = f"given, but system.sips.topology is {sips.topology}; use topology custom or leave the list out"
    return Problem(((*SIPS, "custom_links"), (*SIPS, "topology")), f"system.sips.custom_links: {what}")


def sips_can_be_joined(resolved: Resolved) -> Problem | None:
    """Count, shape and edges give links that join all SIPs."""
    try:
        build_links(resolved.topology.system.sips)
    except ConfigError as error:
        return Problem(tuple((*SIPS, key) for key in ("topology", "count", "shape", "custom_links")), str(error))
    return None


def cubes_fit_addresses(resolved: Resolved) -> Problem | None:
    """A physical address has ``CUBE_BITS`` for the cube."""
    mesh, most = resolved.topology.sip.cube_mesh, 1 << CUBE_BITS
    if mesh.w * mesh.h <= most:
        return None
    path = ("sip", "cube_mesh")
    return Problem((path,), f"sip.cube_mesh = {mesh.w}x{mesh.h}: must have at most {most} cubes, as addresses do")


RULES: tuple[Rule, ...] = (
    custom_links_are_used,
    sips_can_be_joined,
    cubes_fit_addresses,
)
