"""Rules for the meshes: the number of cubes, ports on cubes, PEs on routers."""

from sipsim.chips.ahbm.address import CUBE_BITS
from sipsim.chips.ahbm.mesh.base import PARTS, part_kinds
from sipsim.config.check.check import convert_part
from sipsim.config.document import Problem, Rule, refused, unregistered
from sipsim.config.schema.model import Resolved


def cubes_fit_addresses(resolved: Resolved) -> Problem | None:
    """A physical address has ``CUBE_BITS`` for the cube."""
    mesh, most = resolved.topology.sip.cube_mesh, 1 << CUBE_BITS
    if mesh.w * mesh.h <= most:
        return None
    return refused(("sip", "cube_mesh"), f"{mesh.w}x{mesh.h}", f"must have at most {most} cubes, as addresses do")


def ports_sit_on_cubes(resolved: Resolved) -> Problem | None:
    """Each IO port sits on a cube of the mesh."""
    sip = resolved.topology.sip
    cubes = sip.cube_mesh.w * sip.cube_mesh.h
    for side in sip.ports.__struct_fields__:
        cube = getattr(sip.ports, side)
        if cube is not None and cube >= cubes:
            mesh = f"{sip.cube_mesh.w}x{sip.cube_mesh.h}"
            what = f"no such cube in a {mesh} mesh; allowed: null, 0 to {cubes - 1}"
            return refused(("sip", "ports", side), cube, what, ("sip", "cube_mesh"))
    return None


def every_pe_has_a_router(resolved: Resolved) -> Problem | None:
    """PE ``i`` sits on router ``i``, so there are at least as many routers."""
    cube = resolved.topology.cube
    routers = cube.noc.routers.w * cube.noc.routers.h
    if cube.pes <= routers:
        return None
    mesh = f"{cube.noc.routers.w}x{cube.noc.routers.h}"
    what = f"must be at most {routers}, one PE a router (cube.noc.routers is {mesh})"
    return refused(("cube", "pes"), cube.pes, what, ("cube", "noc", "routers"))


def known_parts(resolved: Resolved) -> Problem | None:
    """``parts`` names node kinds of registered parts."""
    for kind in resolved.components.parts:
        problem = unregistered(("parts", kind), kind, PARTS)
        if problem:
            return problem
    return None


def part_params_fit(resolved: Resolved) -> Problem | None:
    """``parts.<kind>`` is exactly what the part takes; for the parts of ``ahbm``, which have sections, nothing."""
    for kind in part_kinds(resolved):
        fitted = convert_part(resolved.components.parts.get(kind, {}), PARTS.get(kind).Params, ("parts", kind))
        if isinstance(fitted, Problem):
            return fitted
    return None


def flits_have_room(resolved: Resolved) -> Problem | None:
    """A flit between cubes carries more than its own header."""
    port = resolved.components.ucie_port
    if port.flit_bytes is None or port.flit_overhead_bytes < port.flit_bytes:
        return None
    what = f"must be less than ucie_port.flit_bytes ({port.flit_bytes})"
    path = ("ucie_port", "flit_overhead_bytes")
    return refused(path, port.flit_overhead_bytes, what, ("ucie_port", "flit_bytes"))


NOC_RULES: tuple[Rule, ...] = (
    cubes_fit_addresses,
    flits_have_room,
    known_parts,
    part_params_fit,
    ports_sit_on_cubes,
    every_pe_has_a_router,
)
