"""Rules for the control path: the sections that belong together, and the ranks that have a start skew."""

from sipsim.chips.config.rules import skews_of_ranks
from sipsim.config.document import Problem, Rule, refused
from sipsim.config.schema.model import Resolved


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
