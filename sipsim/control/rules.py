"""Rules for the control path: the sections that belong together, and the ranks that have a start skew."""

from collections.abc import Mapping

from sipsim.config.document import Path, Problem, Rule, refused
from sipsim.config.model import Resolved


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


def skews_of_ranks(skews_ns: Mapping[str, float], path: Path, count: int) -> Problem | None:
    """The keys of ``skews_ns``, which stand at ``path``, are ranks of ``count``."""
    for rank, skew_ns in skews_ns.items():
        if not (rank.isascii() and rank.isdigit() and str(int(rank)) == rank and int(rank) < count):
            what = f"{rank!r} is no rank; allowed: 0 to {count - 1}"
            return refused((*path, rank), skew_ns, what, ("system", "sips", "count"))
    return None


RULES: tuple[Rule, ...] = (
    start_skews_are_of_ranks,
    a_launch_has_its_cpus,
    io_cpu_sits_on_a_cube,
)
