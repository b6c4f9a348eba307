"""New names of modules that were moved; an import of an old name fails with the new name in its message."""

import sys
from importlib.machinery import ModuleSpec

_SCHEDULES = """
    bidirectional_ring direct double_tree halving_doubling line
    multidim_ring one_shot recursive_doubling ring tree
"""
_KERNELS = """
    intercube_allreduce intercube_allreduce_fused intercube_hierarchical intercube_per_pe
    intercube_per_pe_rows intercube_pipelined
"""
LABEL = "sipsim.ccl.algorithms"
"""Name of the package of built-in algorithms in earlier versions, still used in digests."""
HOMES = SCHEDULES, KERNELS = "sipsim.collectives.algorithms", "sipsim.chips.ahbm.collectives.algorithms"
"""The packages that now contain the built-in algorithms."""
MOVED = {
    **{f"{LABEL}.{name}": f"{SCHEDULES}.{name}" for name in _SCHEDULES.split()},
    **{f"{LABEL}.{name}": f"{KERNELS}.{name}" for name in _KERNELS.split()},
    "sipsim.arithmetic": "sipsim.core.arithmetic",
    "sipsim.arithmetic.matmul": "sipsim.core.arithmetic.matmul",
    "sipsim.arithmetic.operations": "sipsim.core.arithmetic.operations",
    "sipsim.ccl.collectives.base": "sipsim.collectives.call",
    "sipsim.ccl.collectives.group": "sipsim.collectives.semantics",
    "sipsim.ccl.group": "sipsim.collectives.group",
    "sipsim.ccl.schedule.blocks": "sipsim.collectives.schedule",
    "sipsim.ccl.schedule.kernel": "sipsim.chips.ahbm.collectives.kernel",
    "sipsim.ccl.schedule.pipeline": "sipsim.collectives.schedule",
    "sipsim.ccl.schedule.slicer": "in docs/ccl-author-guide.md",
    "sipsim.ccl.schedule.steps": "sipsim.collectives.schedule",
    "sipsim.chips.base": "sipsim.chips.api.chip",
    "sipsim.config.components": "sipsim.config.schema",
    "sipsim.config.model": "sipsim.config.schema",
    "sipsim.config.section": "sipsim.config.schema",
    "sipsim.dtypes": "sipsim.core.dtypes",
    "sipsim.engine": "sipsim.core.engine",
    "sipsim.errors": "sipsim.core.errors",
    "sipsim.host": "sipsim.chips.ahbm.host",
    "sipsim.host.bridge.greenlet_bridge": "sipsim.chips.api.bridge",
    "sipsim.host.dp_policy": "sipsim.chips.ahbm.host.layout",
    "sipsim.io.delivery": "sipsim.fabric.links.network",
    "sipsim.io.interface": "sipsim.fabric.links.network",
    "sipsim.io.router": "sipsim.fabric.links.network",
    "sipsim.links.base": "sipsim.fabric.links.kind",
    "sipsim.links.frames": "sipsim.fabric.links.frames",
    "sipsim.links.port": "sipsim.fabric.links.kind",
    "sipsim.memory.port": "sipsim.chips.ahbm.memory.ports",
    "sipsim.memory.store": "sipsim.chips.ahbm.memory.store",
    "sipsim.noc.arbitration": "sipsim.fabric.channels",
    "sipsim.noc.fabric": "sipsim.fabric.flows",
    "sipsim.noc.graph": "sipsim.fabric.graph",
    "sipsim.noc.grid": "sipsim.fabric.graph",
    "sipsim.noc.parts.base": "sipsim.chips.ahbm.mesh",
    "sipsim.plan.base": "sipsim.chips.api.run_plan",
    "sipsim.plan.job": "sipsim.records.job",
    "sipsim.sync.session": "sipsim.core.session",
    "sipsim.system.joined": "sipsim.fabric.sips",
    "sipsim.task": "sipsim.core.task",
    "sipsim.tensix.edm": "sipsim.chips.tensix.edm",
    "sipsim.tensix.fabric.connection": "sipsim.chips.tensix.fabric.connection",
    "sipsim.tensix.fabric.packet": "sipsim.chips.tensix.fabric.packet",
    "sipsim.topology.base": "sipsim.topology.links",
    "sipsim.units": "sipsim.core.units",
}


def current(module: str) -> str:
    """Return the new name of a module. Entries of algorithms in ``ccl.yaml`` may contain old names."""
    return MOVED.get(module, module)


class OldPaths:
    """Import finder, last in ``sys.meta_path``, that raises ImportError for old module names."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return an empty package for a parent of old modules; None for names that are not old.

        Raises:
            ImportError: for an old module, with the new name.
        """
        if name in MOVED:
            below = (f"; {old} is {new}" for old, new in MOVED.items() if old.startswith(f"{name}."))
            raise ImportError(f"{name} is {MOVED[name]} now{''.join(below)}", name=name)
        is_above = any(old.startswith(f"{name}.") for old in MOVED)
        return ModuleSpec(name, None, is_package=True) if is_above else None


def refuse_old_paths() -> None:
    """Install :class:`OldPaths`, so that imports of old names fail with the new name."""
    if OldPaths not in sys.meta_path:
        sys.meta_path.append(OldPaths)
