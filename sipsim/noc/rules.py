"""Rules for the meshes: ports on cubes, PEs on routers."""

from sipsim.config.document import Path, Problem, Rule, dotted
from sipsim.config.model import Resolved


def ports_sit_on_cubes(resolved: Resolved) -> Problem | None:
    """Each IO port sits on a cube of the mesh."""
    sip = resolved.topology.sip
    cubes = sip.cube_mesh.w * sip.cube_mesh.h
    for side in sip.ports.__struct_fields__:
        cube = getattr(sip.ports, side)
        if cube is not None and cube >= cubes:
            path = ("sip", "ports", side)
            mesh = f"{sip.cube_mesh.w}x{sip.cube_mesh.h}"
            what = f"no such cube in a {mesh} mesh; allowed: null, 0 to {cubes - 1}"
            return Problem((path, ("sip", "cube_mesh")), f"{dotted(path)} = {cube}: {what}")
    return None


def every_pe_has_a_router(resolved: Resolved) -> Problem | None:
    """PE ``i`` sits on router ``i``, so there are at least as many routers."""
    cube = resolved.topology.cube
    routers = cube.noc.routers.w * cube.noc.routers.h
    if cube.pes <= routers:
        return None
    paths: tuple[Path, ...] = (("cube", "pes"), ("cube", "noc", "routers"))
    mesh = f"{cube.noc.routers.w}x{cube.noc.routers.h}"
    what = f"must be at most {routers}, one PE a router (cube.noc.routers is {mesh})"
    return Problem(paths, f"cube.pes = {cube.pes}: {what}")


RULES: tuple[Rule, ...] = (
    ports_sit_on_cubes,
    every_pe_has_a_router,
)
