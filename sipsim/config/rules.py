"""Rules between config values that the schema cannot say: one small pure function each.

A rule gets checked structs and answers with the first problem it sees, or None. They run in the order of
``RULES``, and each may rely on those before it. Also here: what follows from the values, such as the IPCQ
settings of one algorithm. Nothing here reads a file.
"""

from collections.abc import Callable

from sipsim.ccl.tables.base import TABLES
from sipsim.config.check import convert_part
from sipsim.config.document import Document, Path, Problem, dotted, shown
from sipsim.config.model import AlgorithmEntry, IpcqKnobs, RankPer, Resolved
from sipsim.errors import ConfigError
from sipsim.ipcq.flits import HEADER_BYTES
from sipsim.links.base import LINK_KINDS
from sipsim.registry import UnknownName, unknown_name
from sipsim.topology.address import CUBE_BITS
from sipsim.topology.base import TOPOLOGIES
from sipsim.topology.build import build_links

MIB = 2**20
SIPS: Path = ("system", "sips")

Rule = Callable[[Resolved], Problem | None]


def check_rules(resolved: Resolved, document: Document) -> None:
    """Apply every rule.

    Raises:
        ConfigError: the first problem, named by whoever set the value last.
    """
    problem = next(filter(None, (rule(resolved) for rule in RULES)), None)
    if problem:
        raise document.error(problem)


def effective_ipcq(resolved: Resolved, algorithm_name: str) -> IpcqKnobs:
    """The IPCQ settings of an algorithm: its own entry over ``defaults``, key by key."""
    entry = resolved.ccl.algorithms[algorithm_name]
    return IpcqKnobs(**{key: getattr(_knob_owner(resolved, entry, key), key) for key in IpcqKnobs.__struct_fields__})


def effective_rank_per(resolved: Resolved, algorithm_name: str) -> RankPer:
    """What a rank of the wiring is: a cube where the algorithm wires itself (ADR-0032 D3), else a PE (ADR-0023 D11)."""
    entry = resolved.ccl.algorithms[algorithm_name]
    return entry.rank_per or ("cube" if TABLES.get(entry.topology).self_wired else "pe")


def rank_places(resolved: Resolved, algorithm_name: str) -> int:
    """How many places for ranks the system has."""
    sips, mesh = resolved.topology.system.sips.count, resolved.topology.sip.cube_mesh
    cubes = sips * mesh.w * mesh.h
    return {"sip": sips, "cube": cubes, "pe": cubes * resolved.topology.cube.pes}[
        effective_rank_per(resolved, algorithm_name)
    ]


def effective_world_size(resolved: Resolved, algorithm_name: str) -> int:
    """Ranks of the wiring as ADR-0023 D11 resolves them: the algorithm's entry, else ``defaults``, else every place."""
    own = resolved.ccl.algorithms[algorithm_name].world_size
    return own or resolved.ccl.defaults.world_size or rank_places(resolved, algorithm_name)


def wiring_view(resolved: Resolved, algorithm_name: str) -> list[object]:
    """Table, kind of rank and world size for digests; nothing for what ADR-0032 has: its own wiring of all cubes."""
    kind, per = resolved.ccl.algorithms[algorithm_name].topology, effective_rank_per(resolved, algorithm_name)
    size = effective_world_size(resolved, algorithm_name)
    own = TABLES.get(kind).self_wired
    if own and per == "cube" and size == rank_places(resolved, algorithm_name):
        return []
    return ["none" if own else kind, per, size]


def _knob_owner(resolved: Resolved, entry: AlgorithmEntry, key: str) -> AlgorithmEntry | IpcqKnobs:
    return resolved.ccl.defaults if getattr(entry, key) is None else entry


def _knob_path(resolved: Resolved, key: str) -> Path:
    name = resolved.ccl.defaults.algorithm
    own = getattr(resolved.ccl.algorithms[name], key) is not None
    return ("algorithms", name, key) if own else ("defaults", key)


def known_topology(resolved: Resolved) -> Problem | None:
    """``system.sips.topology`` is a registered topology."""
    try:
        TOPOLOGIES.get(resolved.topology.system.sips.topology)
    except UnknownName as error:
        path = (*SIPS, "topology")
        return Problem((path,), f"{dotted(path)}: {error}")
    return None


def known_link(resolved: Resolved) -> Problem | None:
    """``system.sips.link`` is a preset of ``links``."""
    name, presets = resolved.topology.system.sips.link, resolved.links.links
    if name in presets:
        return None
    path = (*SIPS, "link")
    return Problem((path,), f"{dotted(path)}: {unknown_name('link', name, presets)}")


def known_link_kinds(resolved: Resolved) -> Problem | None:
    """Every preset is of a registered link kind."""
    for name, preset in resolved.links.links.items():
        try:
            LINK_KINDS.get(preset.kind)
        except UnknownName as error:
            path = ("links", name, "kind")
            return Problem((path,), f"{dotted(path)}: {error}")
    return None


def links_have_delay(resolved: Resolved) -> Problem | None:
    """The latency of a link is the lookahead that lets SIPs run in parallel: none at all is refused by name."""
    for name, preset in resolved.links.links.items():
        latency = preset.params.get("latency_ns")
        if latency == 0 and not isinstance(latency, bool):
            path = ("links", name, "params", "latency_ns")
            what = "a link between SIPs without delay cannot be simulated in parallel; must be more than 0"
            return Problem((path,), f"{dotted(path)} = {shown(latency)}: {what}")
    return None


def link_params_fit_kind(resolved: Resolved) -> Problem | None:
    """Every preset's ``params`` are exactly its kind's, used or not."""
    for name, preset in resolved.links.links.items():
        fitted = convert_part(preset.params, LINK_KINDS.get(preset.kind), ("links", name, "params"))
        if isinstance(fitted, Problem):
            return Problem((*fitted.paths, ("links", name, "kind")), fitted.text)
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
    """A physical address names the cube in ``CUBE_BITS``."""
    mesh, most = resolved.topology.sip.cube_mesh, 1 << CUBE_BITS
    if mesh.w * mesh.h <= most:
        return None
    path = ("sip", "cube_mesh")
    return Problem((path,), f"sip.cube_mesh = {mesh.w}x{mesh.h}: must have at most {most} cubes, as addresses do")


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


def known_algorithm(resolved: Resolved) -> Problem | None:
    """``defaults.algorithm`` has an entry in ``algorithms``."""
    name = resolved.ccl.defaults.algorithm
    if name in resolved.ccl.algorithms:
        return None
    text = unknown_name("algorithm", name, resolved.ccl.algorithms)
    return Problem((("defaults", "algorithm"),), f"defaults.algorithm: {text}")


def known_neighbour_table(resolved: Resolved) -> Problem | None:
    """The algorithm's ``topology`` is a registered neighbour table."""
    name = resolved.ccl.defaults.algorithm
    try:
        TABLES.get(resolved.ccl.algorithms[name].topology)
    except UnknownName as error:
        path = ("algorithms", name, "topology")
        return Problem((path,), f"{dotted(path)}: {error}")
    return None


def world_size_has_places(resolved: Resolved) -> Problem | None:
    """A configured world size takes the first so many places, so there are as many."""
    name = resolved.ccl.defaults.algorithm
    size, places = effective_world_size(resolved, name), rank_places(resolved, name)
    if size <= places:
        return None
    path, per = _knob_path(resolved, "world_size"), effective_rank_per(resolved, name)
    what = f"must be null or 1 to {places}, as there are {places} places with rank_per {per}"
    return Problem((path, *_rank_paths(name)), f"{dotted(path)} = {size}: {what}")


def table_takes_the_ranks(resolved: Resolved) -> Problem | None:
    """A grid of ranks is square."""
    name = resolved.ccl.defaults.algorithm
    kind = resolved.ccl.algorithms[name].topology
    refusal = TABLES.get(kind).refuses(effective_world_size(resolved, name), rank_places(resolved, name))
    if refusal is None:
        return None
    path = ("algorithms", name, "topology")
    paths = (path, _knob_path(resolved, "world_size"), *_rank_paths(name))
    return Problem(paths, f"{dotted(path)} = {kind}: {refusal}")


def _rank_paths(name: str) -> tuple[Path, ...]:
    """All that the number of places follows from."""
    return ("algorithms", name, "rank_per"), (*SIPS, "count"), ("sip", "cube_mesh"), ("cube", "pes")


def root_cube_is_south_east(resolved: Resolved) -> Problem | None:
    """Rows reduce eastwards and the last column southwards, so the sum can only stand in the south-east cube."""
    name, mesh = resolved.ccl.defaults.algorithm, resolved.topology.sip.cube_mesh
    root, last = resolved.ccl.algorithms[name].root_cube, mesh.w * mesh.h - 1
    if root is None or root == last:
        return None
    path = ("algorithms", name, "root_cube")
    what = f"must be null or {last}, the south-east cube of the {mesh.w}x{mesh.h} mesh, where the reduction ends"
    return Problem((path,), f"{dotted(path)} = {root}: {what}")


def a_ring_fits_its_memory(resolved: Resolved) -> Problem | None:
    """One receive ring, at least. How many a PE has is known when the algorithm is installed, which asks again."""
    return ring_overflow(resolved, effective_ipcq(resolved, resolved.ccl.defaults.algorithm), 1)


def ring_overflow(resolved: Resolved, knobs: IpcqKnobs, rings: int) -> Problem | None:
    """What is wrong with so many rings a PE. A TCM and a slice of HBM serve one PE; PEs share their cube's SRAM."""
    need, (owner, room) = rings * knobs.n_slots * knobs.slot_size, _ring_room(resolved, knobs.buffer_kind)
    if need <= room:
        return None
    slots, size = _knob_path(resolved, "n_slots"), _knob_path(resolved, "slot_size")
    count, take = ("1 ring", "takes") if rings == 1 else (f"{rings} rings", "take")
    those = f"{count} of {knobs.n_slots} slots of {knobs.slot_size} B {take} {need} B"
    what = f"more than the {room} B that a PE has of {dotted(owner)}; lower {dotted(slots)} or {dotted(size)}"
    paths = (slots, size, _knob_path(resolved, "buffer_kind"), owner, ("cube", "pes"))
    return Problem(paths, f"{dotted(slots)} = {knobs.n_slots}: {those}, {what}")


def hardware_is_strict(resolved: Resolved) -> Problem | None:
    """``hw_strict``: a slot is found with a mask (ADR-0023 D21), and a credit is one header flit (D19)."""
    name = resolved.ccl.defaults.algorithm
    knobs = effective_ipcq(resolved, name)
    if not knobs.hw_strict:
        return None
    for key in ("n_slots", "slot_size"):
        value = getattr(knobs, key)
        if value & (value - 1):
            path = _knob_path(resolved, key)
            what = f"must be a power of two under hw_strict, such as {1 << value.bit_length() - 1}"
            return Problem((path, _knob_path(resolved, "hw_strict")), f"{dotted(path)} = {value}: {what}")
    if knobs.ipcq_credit_size_bytes != HEADER_BYTES:
        path = _knob_path(resolved, "ipcq_credit_size_bytes")
        what = f"must be {HEADER_BYTES} under hw_strict: a credit is one header"
        text = f"{dotted(path)} = {knobs.ipcq_credit_size_bytes}: {what}"
        return Problem((path, _knob_path(resolved, "hw_strict")), text)
    return None


def credits_have_a_channel_to_use(resolved: Resolved) -> Problem | None:
    """A virtual channel for credits needs virtual channels, and credits that travel over the fabric."""
    knobs = effective_ipcq(resolved, resolved.ccl.defaults.algorithm)
    if not knobs.credit_virtual_channel:
        return None
    path, paths = _knob_path(resolved, "credit_virtual_channel"), ("virtual_channels", "credit_return_mode")
    if not knobs.virtual_channels:
        what = "needs virtual_channels: true"
    elif knobs.credit_return_mode == "fast_path":
        what = "has no effect with credit_return_mode fast_path, whose credits have a wire of their own; use fabric"
    else:
        return None
    return Problem((path, *(_knob_path(resolved, key) for key in paths)), f"{dotted(path)} = true: {what}")


def _ring_room(resolved: Resolved, buffer_kind: str) -> tuple[Path, int]:
    cube, tcm = resolved.topology.cube, resolved.components.tcm_layout
    rooms: dict[str, tuple[Path, int]] = {
        "tcm": (("tcm_layout", "ipcq_MiB"), tcm.ipcq_MiB * MIB),
        "hbm": (("cube", "hbm_MiB_per_pe"), cube.hbm_MiB_per_pe * MIB),
        "sram": (("cube", "sram_MiB"), cube.sram_MiB * MIB // cube.pes),
    }
    return rooms[buffer_kind]


RULES: tuple[Rule, ...] = (
    known_topology,
    known_link,
    known_link_kinds,
    links_have_delay,
    link_params_fit_kind,
    custom_links_are_used,
    sips_can_be_joined,
    cubes_fit_addresses,
    ports_sit_on_cubes,
    every_pe_has_a_router,
    known_algorithm,
    known_neighbour_table,
    world_size_has_places,
    table_takes_the_ranks,
    root_cube_is_south_east,
    a_ring_fits_its_memory,
    hardware_is_strict,
    credits_have_a_channel_to_use,
)
