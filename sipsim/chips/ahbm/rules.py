"""Config rules of chip ``ahbm``: meshes, memories and control path."""

from collections.abc import Iterator

from sipsim.chips.ahbm.address import CUBE_BITS
from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY, MEMORY_KINDS
from sipsim.chips.ahbm.mesh import PARTS, memories_of, part_kinds
from sipsim.chips.config import check_skews
from sipsim.config.check import Problem, Rule, check_registered, convert_part, dotted, no_power_of_two, refused, shown
from sipsim.config.schema import NoParams, Resolved


def cubes_fit_addresses(resolved: Resolved) -> None:
    """Check that cube numbers fit the ``CUBE_BITS`` of a physical address."""
    mesh, limit = resolved.topology.sip.cube_mesh, 1 << CUBE_BITS
    if mesh.w * mesh.h > limit:
        what = f"must have at most {limit} cubes, the limit of an address"
        raise refused(("sip", "cube_mesh"), f"{mesh.w}x{mesh.h}", what)


def flits_have_room(resolved: Resolved) -> None:
    """Check that a flit between cubes is larger than its header."""
    port = resolved.components.ucie_port
    if port.flit_bytes is not None and port.flit_overhead_bytes >= port.flit_bytes:
        what = f"must be less than ucie_port.flit_bytes ({port.flit_bytes})"
        path = ("ucie_port", "flit_overhead_bytes")
        raise refused(path, port.flit_overhead_bytes, what, ("ucie_port", "flit_bytes"))


def known_parts(resolved: Resolved) -> None:
    """Check that ``parts`` contains only node kinds of registered parts."""
    for kind in resolved.components.parts:
        check_registered(("parts", kind), kind, PARTS)


def part_params_fit(resolved: Resolved) -> None:
    """Check ``parts.<kind>`` against the part's schema; it is empty for built-in parts, which have sections."""
    for kind in part_kinds(resolved):
        convert_part(resolved.components.parts.get(kind, {}), PARTS.get(kind).Params, ("parts", kind))


def ports_sit_on_cubes(resolved: Resolved) -> None:
    """Check that the cube of each IO port exists."""
    sip = resolved.topology.sip
    cubes = sip.cube_mesh.w * sip.cube_mesh.h
    for side in sip.ports.__struct_fields__:
        cube = getattr(sip.ports, side)
        if cube is not None and cube >= cubes:
            mesh = f"{sip.cube_mesh.w}x{sip.cube_mesh.h}"
            what = f"no such cube in a {mesh} mesh; allowed: null, 0 to {cubes - 1}"
            raise refused(("sip", "ports", side), cube, what, ("sip", "cube_mesh"))


def every_pe_has_a_router(resolved: Resolved) -> None:
    """Check that a cube has at least as many routers as PEs: PE ``i`` is on router ``i``."""
    cube = resolved.topology.cube
    routers = cube.noc.routers.w * cube.noc.routers.h
    if cube.pes > routers:
        mesh = f"{cube.noc.routers.w}x{cube.noc.routers.h}"
        what = f"must be at most {routers}, one PE per router (cube.noc.routers is {mesh})"
        raise refused(("cube", "pes"), cube.pes, what, ("cube", "noc", "routers"))


def known_memory_kinds(resolved: Resolved) -> None:
    """Check that ``kind`` of every memory is registered, and that no process serves a TCM."""
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
        if cost.kind is not None:
            check_registered((*path, "kind"), cost.kind, MEMORY_KINDS)
            if memory.regions is not None and MEMORY_KINDS.get(cost.kind).is_served:
                raise refused((*path, "kind"), cost.kind, "its processes serve no TCM; must be a kind without serve()")


def memory_params_fit_kind(resolved: Resolved) -> None:
    """Check that ``params`` of every memory fit its kind's schema, each other and the memory's size."""
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
        kind = MEMORY_KINDS.get(cost.kind or FIXED_LATENCY)
        try:
            params = convert_part(cost.params, kind.Params, (*path, "params"))
        except Problem as problem:
            which = "" if kind.Params is not NoParams else f"; {dotted(path)}.kind is {shown(cost.kind)}"
            raise Problem(problem.paths, f"{problem}{which}", problem.lacks).caused_by((*path, "kind")) from None
        refusal = kind.refusal(params, memory.capacity_bytes())
        if refusal is not None:
            where = (*path, "params", refusal.name)
            value = shown(getattr(params, refusal.name))
            raise refused(where, value, refusal.what, (*path, "kind"), *refusal.others)


def pages_are_powers_of_two(resolved: Resolved) -> None:
    """Check that the page size is a power of two: a page number is the upper bits of an address."""
    mmu = resolved.components.pe_mmu
    if mmu is not None and (what := no_power_of_two(mmu.page_KiB)):
        raise refused(("pe_mmu", "page_KiB"), mmu.page_KiB, what)


def start_skews_are_of_ranks(resolved: Resolved) -> None:
    """Check that the keys of ``start_skew_ns`` are ranks."""
    launch, count = resolved.components.launch, resolved.topology.system.sips.count
    check_skews(launch.start_skew_ns if launch else {}, ("launch", "start_skew_ns"), count)


def a_launch_has_its_cpus(resolved: Resolved) -> None:
    """Check that a config with ``launch`` has ``io_cpu`` and ``m_cpu``."""
    components = resolved.components
    for name in ("io_cpu", "m_cpu"):
        if components.launch is not None and getattr(components, name) is None:
            what = f"launch needs {name}; give {name} its keys, or set launch to null"
            raise refused((name,), "null", what, ("launch",))


def io_cpu_sits_on_a_cube(resolved: Resolved) -> None:
    """Check that the cube of IO_CPU exists."""
    mesh, section = resolved.topology.sip.cube_mesh, resolved.components.io_cpu
    if section is not None and section.cube >= mesh.w * mesh.h:
        what = f"no such cube in a {mesh.w}x{mesh.h} mesh; allowed: 0 to {mesh.w * mesh.h - 1}"
        raise refused(("io_cpu", "cube"), section.cube, what, ("sip", "cube_mesh"))


RULES: tuple[Rule, ...] = (
    cubes_fit_addresses,
    flits_have_room,
    known_parts,
    part_params_fit,
    ports_sit_on_cubes,
    every_pe_has_a_router,
    known_memory_kinds,
    memory_params_fit_kind,
    pages_are_powers_of_two,
    start_skews_are_of_ranks,
    a_launch_has_its_cpus,
    io_cpu_sits_on_a_cube,
)


def unused_keys(resolved: Resolved) -> Iterator[Problem]:
    """Yield the keys of memories that have no effect with their kinds."""
    for memory in memories_of(resolved):
        path, cost = memory.path, memory.cost
        name = cost.kind or FIXED_LATENCY
        for key, instead in MEMORY_KINDS.get(name).unused.items():
            here = dotted(path)
            what = f"has no effect with {here}.kind = {name}; set {here}.{instead}, or {here}.kind=null"
            yield refused((*path, key), f"{getattr(cost, key):g}", what)
