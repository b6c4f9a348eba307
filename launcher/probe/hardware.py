"""Facts of the hardware of PE_IPCQ for a config: registers, rings, the record's estimates, and steps."""

from typing import Any, NamedTuple

from launcher.result.fields import DelayRow, HardwareDocument, ModuleRow, RegisterFileRow, RegisterRow, StepRow
from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.collectives.queue_pairs import ring_memory
from sipsim.chips.ahbm.collectives.rules import space_for_rings
from sipsim.chips.ahbm.collectives.wirings import ring_size
from sipsim.chips.ahbm.hardware import (
    ACTIVE_MW,
    DELAYS_NS,
    FLIP_FLOPS,
    GATES,
    MAX_DIRECTIONS,
    MODULES,
    QUEUE_PAIR_BYTES,
    REGISTER_BYTES,
    REGISTERS,
    STEPS,
    Module,
)
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.group import Group
from sipsim.config.check import dotted
from sipsim.core.units import BYTES_PER_KIB

AREA, TIMING, LATENCY = "ADR-0023 D21, area estimate", "ADR-0023 D21, timing", "ADR-0023 D17"
"""Sources of the figures."""


class Wired(NamedTuple):
    """Directions that a wiring installs on a PE, and the size of their rings."""

    pe: PePlace
    directions: list[str]
    n_slots: int
    slot_size: int


def hardware(plan: Plan, **heading: Any) -> HardwareDocument:
    """Return the document of a plan's hardware. ``heading``: the keys of ``Heading``."""
    wired, knobs = _wired(plan), plan.ipcq
    path, _ = space_for_rings(plan.resolved, knobs.buffer_kind)
    clock_ps = 1000 / plan.resolved.components.pe_gemm.clock_GHz
    counts = {"installed": len(wired.directions), "register file": MAX_DIRECTIONS}
    return HardwareDocument(
        **heading,
        algorithm=plan.algorithm.name,
        pe=list(wired.pe),
        directions=wired.directions,
        registers=[RegisterRow(name, REGISTER_BYTES * 8, meaning) for name, meaning in REGISTERS.items()],
        register_bytes=QUEUE_PAIR_BYTES,
        region=f"{knobs.buffer_kind}, {dotted(path)}",
        region_bytes=ring_memory(plan.system, knobs.buffer_kind).size,
        tcm_bytes=plan.system.tcm.size,
        files=[_file(plan, wired, what, count) for what, count in counts.items()],
        modules=_modules(len(wired.directions)),
        clock_ps=clock_ps,
        delays=[DelayRow(name, ns, clock_ps / (ns * 1000), TIMING) for name, ns in DELAYS_NS.items()],
        active_mW=ACTIVE_MW,
        steps=[
            StepRow(name, [least, most], plan.ipcq_overhead_ps if is_charged else 0, why, LATENCY)
            for name, least, most, is_charged, why in STEPS
        ],
    )


def _wired(plan: Plan) -> Wired:
    """Return the PE with the most directions; for a schedule, a worker of the rank with the most if all SIPs are one
    group.
    """
    knobs, algorithm = plan.ipcq, plan.algorithm
    if algorithm.wiring is None:
        place, entries = max(plan.entries.items(), key=lambda each: len(each[1]))
        return Wired(place, [entry.direction for entry in entries], knobs.n_slots, knobs.slot_size)
    wiring = algorithm.wiring(Group(tuple(range(plan.system.n_sips)), plan.system))
    size = ring_size(wiring, knobs, plan.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB)
    directions: dict[int, list[str]] = {0: []}
    for rank, direction in sorted(wiring):
        directions.setdefault(rank, []).append(direction)
    rank = max(directions, key=lambda each: len(directions[each]))
    return Wired(PePlace(rank, 0, LEAD_PE), directions[rank], size.n_slots, size.slot_size)


def _file(plan: Plan, wired: Wired, what: str, count: int) -> RegisterFileRow:
    ring_bytes, kind = count * wired.n_slots * wired.slot_size, plan.ipcq.buffer_kind
    return RegisterFileRow(
        what,
        count,
        count * QUEUE_PAIR_BYTES,
        wired.n_slots,
        wired.slot_size,
        ring_bytes,
        ring_bytes / ring_memory(plan.system, kind).size,
        ring_bytes / plan.system.tcm.size if kind == "tcm" else 0.0,
    )


def _modules(directions: int) -> list[ModuleRow]:
    """Return the modules, and the sums of the controller's and of all modules."""
    sums = {
        "controller": [module for module in MODULES if module.is_controller],
        "all that a PE gains": list(MODULES),
    }
    every = {**{module.name: [module] for module in MODULES}, **sums}
    return [_module(name, modules, directions) for name, modules in every.items()]


def _module(name: str, modules: list[Module], directions: int) -> ModuleRow:
    def share(module: Module) -> float:
        return directions / MAX_DIRECTIONS if module.scales else 1

    units = {module.unit for module in modules}
    return ModuleRow(
        name,
        " and ".join(unit for unit in (FLIP_FLOPS, GATES) if unit in units),
        round(sum(module.amount * share(module) for module in modules)),
        sum(module.mm2 * share(module) for module in modules),
        sum(module.amount for module in modules),
        sum(module.mm2 for module in modules),
        any(module.scales for module in modules),
        AREA,
    )
