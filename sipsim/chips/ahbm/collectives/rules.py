"""Config rules for the default algorithm: its neighbour table, ranks, queues and rings."""

from collections.abc import Callable, Sequence

import msgspec

from sipsim.chips.ahbm.address import MIB
from sipsim.chips.ahbm.collectives.algorithm import exports
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, TABLES
from sipsim.chips.ahbm.collectives.settings import (
    PER_QUEUE_PAIR,
    credit_modes,
    effective_ipcq,
    effective_rank_per,
    effective_world_size,
    knob_path,
    pair_ipcq,
    rank_places,
    unknown_algorithm,
)
from sipsim.chips.ahbm.ipcq.credits import FAST_PATH, PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages import HEADER_BYTES
from sipsim.config.check import Path, Problem, Rule, check_registered, dotted, no_power_of_two, refused, shown
from sipsim.config.load import Override
from sipsim.config.schema import AlgorithmEntry, IpcqKnobs, Resolved
from sipsim.config.yaml import one_line
from sipsim.core.errors import ConfigError

TCM = "tcm"
NO_CREDITS = "has no effect with credit_return_mode fast_path, whose credits have a dedicated wire; use fabric"
NO_BUFFERS = "needs router buffers; set router.buffer_packets, or set this key to null"


def check_overrides(resolved: Resolved, overrides: Sequence[Override]) -> None:
    """Refuse an override of ``defaults.KEY`` that an algorithm's entry hides, since it would have no effect.

    Raises:
        ConfigError: names the key path that has an effect.
    """
    _check_hidden(resolved, overrides, [resolved.ccl.defaults.algorithm], lambda key: key not in PER_QUEUE_PAIR)


def check_overrides_of_job(resolved: Resolved, overrides: Sequence[Override], names: Sequence[str]) -> None:
    """Refuse overrides that have no effect if only the algorithms ``names`` run, without point-to-point messages.

    Raises:
        ConfigError: names a key path that has an effect.
    """
    _check_hidden(resolved, overrides, names, PER_QUEUE_PAIR.__contains__)
    channel = dotted(knob_path(resolved, "credit_virtual_channel"))
    given = next((each for each in overrides if channel in each.paths()), None)
    is_used = effective_ipcq(resolved, resolved.ccl.defaults.algorithm).credit_virtual_channel
    modes = {effective_ipcq(resolved, name).credit_return_mode for name in names}
    if given is not None and is_used and modes == {FAST_PATH}:
        raise ConfigError(one_line(f"{given.origin}: {channel} = true: {NO_CREDITS}"))


def _check_hidden(
    resolved: Resolved, overrides: Sequence[Override], names: Sequence[str], concerns: Callable[[str], bool]
) -> None:
    given = {path: override for override in overrides for path in override.paths()}
    for text, override in given.items():
        section, _, key = text.partition(".")
        if section != "defaults" or not hasattr(AlgorithmEntry, key) or not concerns(key):
            continue
        default = getattr(resolved.ccl.defaults, key)
        in_entries = {f"algorithms.{name}.{key}": getattr(resolved.ccl.algorithms[name], key) for name in names}
        if any(value in (None, default) or path in given for path, value in in_entries.items()):
            continue
        path, value = next(iter(in_entries.items()))
        others = f", and the other algorithms of the job also set {key}" if len(in_entries) > 1 else ""
        what = f"has no effect, since {path} = {shown(value)}{others}; set {path} instead"
        raise ConfigError(one_line(f"{override.origin}: {what}"))


def known_algorithm(resolved: Resolved) -> None:
    """Check that ``defaults.algorithm`` has an entry in ``algorithms``."""
    name = resolved.ccl.defaults.algorithm
    if name not in resolved.ccl.algorithms:
        text = unknown_algorithm(name, resolved.ccl.algorithms)
        raise Problem((("defaults", "algorithm"),), f"defaults.algorithm: {text}")


def known_neighbour_table(resolved: Resolved) -> None:
    """Check that the algorithm's ``topology`` is a registered neighbour table."""
    name = resolved.ccl.defaults.algorithm
    check_registered(("algorithms", name, "topology"), resolved.ccl.algorithms[name].topology, TABLES)


def world_size_has_places(resolved: Resolved) -> None:
    """Check that a configured world size is at most the number of places for ranks."""
    name = resolved.ccl.defaults.algorithm
    size, places = effective_world_size(resolved, name), rank_places(resolved, name)
    if size > places:
        per = effective_rank_per(resolved, name)
        what = f"must be null or 1 to {places}, as there are {places} places with rank_per {per}"
        raise refused(knob_path(resolved, "world_size"), size, what, *_rank_paths(name))


def table_takes_the_ranks(resolved: Resolved) -> None:
    """Check that the neighbour table can wire the number of ranks (a grid needs a square)."""
    name = resolved.ccl.defaults.algorithm
    kind = resolved.ccl.algorithms[name].topology
    refusal = TABLES.get(kind).refuses(effective_world_size(resolved, name), rank_places(resolved, name))
    if refusal is not None:
        others = knob_path(resolved, "world_size"), *_rank_paths(name)
        raise refused(("algorithms", name, "topology"), kind, refusal, *others)


def _rank_paths(name: str) -> tuple[Path, ...]:
    """Return the key paths that determine the number of places."""
    return ("algorithms", name, "rank_per"), ("system", "sips", "count"), ("sip", "cube_mesh"), ("cube", "pes")


def opposites_are_pairs(resolved: Resolved) -> None:
    """Check that each direction is in only one pair of opposites, with another direction."""
    name = resolved.ccl.defaults.algorithm
    pairs = dict(OPPOSITE)
    for a, b in resolved.ccl.algorithms[name].opposites.items():
        path = ("algorithms", name, "opposites", a)
        if a == b:
            raise refused(path, b, "a direction cannot be its own opposite; name another direction")
        for direction, opposite in ((a, b), (b, a)):
            previous = pairs.setdefault(direction, opposite)
            if previous != opposite:
                what = f"{direction} is already the opposite of {previous}; remove one of these two pairs"
                raise refused(path, b, what)


def a_ring_fits_its_memory(resolved: Resolved) -> None:
    """Check that one receive ring fits; the installation checks again with the number of rings per PE."""
    check_room_of_rings(resolved, effective_ipcq(resolved, resolved.ccl.defaults.algorithm), 1)


def check_room_of_rings(resolved: Resolved, knobs: IpcqKnobs, rings: int) -> None:
    """Check that ``rings`` rings per PE fit. A TCM and a slice of HBM serve one PE; PEs share a cube's SRAM.

    Raises:
        Problem: names the keys that make the rings smaller.
    """
    need, (owner, free_bytes) = rings * knobs.n_slots * knobs.slot_size, space_for_rings(resolved, knobs.buffer_kind)
    if need <= free_bytes:
        return
    slots, size = knob_path(resolved, "n_slots"), knob_path(resolved, "slot_size")
    count, take = ("1 ring", "takes") if rings == 1 else (f"{rings} rings", "take")
    rings_text = f"{count} of {knobs.n_slots} slots of {knobs.slot_size} B {take} {need} B"
    what = f"more than the {free_bytes} B per PE from {dotted(owner)}; lower {dotted(slots)} or {dotted(size)}"
    others = size, knob_path(resolved, "buffer_kind"), owner, ("cube", "pes")
    raise refused(slots, knobs.n_slots, f"{rings_text}, {what}", *others)


def space_for_rings(resolved: Resolved, buffer_kind: str) -> tuple[Path, int]:
    """Return the key of the size of the memory for rings, and the memory's bytes of one PE."""
    cube, tcm = resolved.topology.cube, resolved.components.tcm_layout
    spaces: dict[str, tuple[Path, int]] = {
        "tcm": (("tcm_layout", "ipcq_MiB"), tcm.ipcq_MiB * MIB),
        "hbm": (("cube", "hbm_MiB_per_pe"), cube.hbm_MiB_per_pe * MIB),
        "sram": (("cube", "sram_MiB"), cube.sram_MiB * MIB // cube.pes),
    }
    return spaces[buffer_kind]


def hardware_is_strict(resolved: Resolved) -> None:
    """Check ``hw_strict``: a slot is addressed with a mask (ADR-0023 D21), and a credit is one header flit (D19)."""
    knobs = effective_ipcq(resolved, resolved.ccl.defaults.algorithm)
    if not knobs.hw_strict:
        return
    strict, credit = knob_path(resolved, "hw_strict"), knobs.ipcq_credit_size_bytes
    for key in ("n_slots", "slot_size"):
        value = getattr(knobs, key)
        if what := no_power_of_two(value, " under hw_strict"):
            raise refused(knob_path(resolved, key), value, what, strict)
    if credit != HEADER_BYTES:
        what = f"must be {HEADER_BYTES} B under hw_strict, since a credit is one header"
        raise refused(knob_path(resolved, "ipcq_credit_size_bytes"), credit, what, strict)


def credits_have_a_channel_to_use(resolved: Resolved) -> None:
    """Check that ``credit_virtual_channel`` has an effect: virtual channels are on, and some credits use the fabric."""
    knobs = effective_ipcq(resolved, resolved.ccl.defaults.algorithm)
    if not knobs.credit_virtual_channel:
        return
    if not knobs.virtual_channels:
        what = "needs virtual_channels: true"
    elif credit_modes(resolved) == {FAST_PATH}:
        what = NO_CREDITS
    else:
        return
    others = (knob_path(resolved, key) for key in ("virtual_channels", "credit_return_mode"))
    raise refused(knob_path(resolved, "credit_virtual_channel"), "true", what, *others)


def doorbells_carry_no_credits(resolved: Resolved) -> None:
    """Check that no queue pair has credits that travel with messages if messages are followed by doorbells."""
    name = resolved.ccl.defaults.algorithm
    if not effective_ipcq(resolved, name).has_doorbells:
        return
    head, key = knob_path(resolved, "head_update"), "credit_return_mode"
    why = "since a data write carries no credits; set fabric, or use --variant doorbell"
    what = f"needs {dotted(head)}: piggyback, {why}"
    modes: dict[Path, str | None] = {("defaults", key): resolved.ccl.defaults.credit_return_mode}
    modes |= {("algorithms", each, key): getattr(entry, key) for each, entry in resolved.ccl.algorithms.items()}
    for path, mode in modes.items():
        if mode == PIGGYBACK:
            raise refused(path, mode, what, head)


def a_channel_has_weight(resolved: Resolved) -> None:
    """Check that at most one of the two channels has weight 0, which means strict priority."""
    knobs = effective_ipcq(resolved, resolved.ccl.defaults.algorithm)
    if knobs.virtual_channels and not knobs.vc_compute_weight and not knobs.vc_comm_weight:
        what = "must be 1 to 100 if vc_comm_weight is 0; only one channel can have strict priority, weight 0"
        raise refused(knob_path(resolved, "vc_compute_weight"), 0, what, knob_path(resolved, "vc_comm_weight"))


def buffers_hold_packets(resolved: Resolved) -> None:
    """Check finite buffers: packets hold at least an arbitration chunk, and link buffers require router buffers."""
    router, io_port = resolved.components.router, resolved.components.io_port
    if io_port.buffer_packets is not None and router.buffer_packets is None:
        path, what = ("io_port", "buffer_packets"), NO_BUFFERS
        raise refused(path, io_port.buffer_packets, what, ("router", "buffer_packets"))
    path = "router", "packet_bytes"
    if router.packet_bytes is None:
        return
    if router.buffer_packets is None:
        raise refused(path, router.packet_bytes, NO_BUFFERS, ("router", "buffer_packets"))
    chunk = knob_path(resolved, "vc_chunk_size")
    chunk_bytes = effective_ipcq(resolved, resolved.ccl.defaults.algorithm).vc_chunk_size
    if router.packet_bytes < chunk_bytes:
        what = f"must be at least {chunk_bytes} B, one chunk ({dotted(chunk)}), or null for packets of one chunk"
        raise refused(path, router.packet_bytes, what, chunk)


def schedules_share_their_pes(resolved: Resolved) -> None:
    """Check that no schedule has a setting that applies to all queue pairs of a PE; modules are inspected, not run."""
    for name in sorted(resolved.ccl.algorithms):
        try:
            check_schedule_settings(resolved, name)
        except Problem:
            if exports(resolved.ccl.algorithms[name].module, "schedule"):
                raise


def check_schedule_settings(resolved: Resolved, name: str) -> None:
    """Check the settings of a schedule's entry: schedules share PEs with other algorithms.

    Raises:
        Problem: names the first setting that a schedule cannot have.
    """
    entry = msgspec.structs.asdict(resolved.ccl.algorithms[name])
    of_pe = msgspec.structs.asdict(resolved.ccl.defaults)
    for key in IpcqKnobs.__struct_fields__:
        if key in PER_QUEUE_PAIR or entry[key] in (None, of_pe[key]):
            continue
        what = f"{key} applies to the queue pairs of all algorithms; set defaults.{key} instead"
        value = str(entry[key]).lower() if isinstance(entry[key], bool) else entry[key]
        raise refused(("algorithms", name, key), value, what, ("defaults", key))


def group_kinds(resolved: Resolved) -> list[str]:
    """Return the memories that contain rings of groups: for point-to-point messages and for all schedules.

    An entry with rings outside the TCM counts as a schedule if its source defines ``schedule``.
    """
    with resolved.reads.apart():
        kinds = {name: effective_ipcq(resolved, name).buffer_kind for name in resolved.ccl.algorithms}
        modules = {name: entry.module for name, entry in resolved.ccl.algorithms.items()}
        used = {kind for name, kind in kinds.items() if kind == TCM or exports(modules[name], "schedule")}
        return sorted(used | {pair_ipcq(resolved).buffer_kind})


RULES: tuple[Rule, ...] = (
    known_algorithm,
    known_neighbour_table,
    world_size_has_places,
    table_takes_the_ranks,
    opposites_are_pairs,
    a_ring_fits_its_memory,
    hardware_is_strict,
    credits_have_a_channel_to_use,
    doorbells_carry_no_credits,
    a_channel_has_weight,
    buffers_hold_packets,
    schedules_share_their_pes,
)
