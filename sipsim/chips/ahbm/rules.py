"""The rules of chip ``ahbm`` for its control path, its memories and its meshes."""

from collections.abc import Iterator

from sipsim.chips.ahbm.address import CUBE_BITS
from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY, MEMORY_KINDS
from sipsim.chips.ahbm.mesh import PARTS, memories_of, part_kinds
from sipsim.chips.config import skews_of_ranks
from sipsim.config.check import convert_part
from sipsim.config.document import Problem, Rule, dotted, no_power_of_two, refused, shown, unregistered
from sipsim.config.schema import NoParams, Resolved


def a_launch_has_its_cpus(resolved: Resolved) -> Problem | None:
    """``launch`` needs ``io_cpu`` and ``m_cpu``."""
    components = resolved.components
    for name in ("io_cpu", "m_cpu"):
        if components.launch is not None and getattr(components, name) is None:
            what = f"launch needs it; give {name} its keys, or set launch to null"
            return refused((name,), "null", what, ("launch",))
    return None


def io_cpu_sits_on_a_cube(resolved: Resolved) -> Problem | None:
    """The cube of IO_CPU exists."""
    mesh, section = resolved.topology.sip.cube_mesh, resolved.components.io_cpu
    if section is None or section.cube < mesh.w * mesh.h:
        return None
    what = f"no such cube in a {mesh.w}x{mesh.h} mesh; allowed: 0 to {mesh.w * mesh.h - 1}"
    return refused(("io_cpu", "cube"), section.cube, what, ("sip", "cube_mesh"))


def start_skews_are_of_ranks(resolved: Resolved) -> Problem | None:
    """``start_skew_ns`` names ranks."""
    launch, count = resolved.components.launch, resolved.topology.system.sips.count
    return skews_of_ranks(launch.start_skew_ns if launch else {}, ("launch", "start_skew_ns"), count)


CONTROL_RULES: tuple[Rule, ...] = (
    start_skews_are_of_ranks,
    a_launch_has_its_cpus,
    io_cpu_sits_on_a_cube,
)


def known_memory_kinds(resolved: Resolved) -> Problem | None:
    """``kind`` of every memory is registered."""
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
        problem = unregistered((*path, "kind"), cost.kind, MEMORY_KINDS) if cost.kind is not None else None
        if problem:
            return problem
    return None


def memory_params_fit_kind(resolved: Resolved) -> Problem | None:
    """``params`` of every memory are exactly its kind's, and fit each other and the memory's size."""
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
        kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
        fitted = convert_part(cost.params, kind.Params, (*path, "params"))
        if isinstance(fitted, Problem):
            which = "" if kind.Params is not NoParams else f"; {dotted(path)}.kind is {shown(cost.kind)}"
            return fitted._replace(text=f"{fitted.text}{which}").caused_by((*path, "kind"))
        refusal = kind.refusal(fitted, memory.capacity_bytes())
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
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
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
