"""Settings of the algorithm that runs, as they follow from ``ccl.yaml``: its own entry over ``defaults``."""

from collections.abc import Iterable
from pathlib import PurePath

import msgspec

from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, TABLES
from sipsim.config.check import Path
from sipsim.config.schema import IpcqKnobs, RankPer, Resolved, merged
from sipsim.core.moved import HOMES, LABEL
from sipsim.core.registry import unknown_name


def unknown_algorithm(name: str, entries: Iterable[str]) -> str:
    """What is wrong with a name that no entry of ``ccl.yaml`` has; of a file, how to make it one."""
    hint = ""
    if name.endswith(".py"):
        stem = PurePath(name).stem
        entry = f"algorithms: {{{stem}: {{module: {name}, topology: none}}}}"
        hint = f"to run a file, write '{entry}' in a file for --ccl, and name {stem}; "
    return unknown_name("algorithm", name, entries, hint)


OF_A_QUEUE_PAIR = frozenset({"n_slots", "slot_size", "credit_return_mode"})
"""The queue settings that a schedule may have of its own; a PE has the others for all its queue pairs."""


def effective_ipcq(resolved: Resolved, algorithm_name: str) -> IpcqKnobs:
    """The IPCQ settings of an algorithm: its own entry over ``defaults``, key by key."""
    entry, defaults = resolved.ccl.algorithms[algorithm_name], resolved.ccl.defaults
    own = msgspec.structs.asdict(entry)
    return merged(IpcqKnobs, {key: defaults if own[key] is None else entry for key in IpcqKnobs.__struct_fields__})


def pair_ipcq(resolved: Resolved) -> IpcqKnobs:
    """The settings of messages between two ranks: those of a queue pair are of ``defaults``, whatever is wired."""
    defaults = resolved.ccl.defaults
    every = dict.fromkeys(IpcqKnobs.__struct_fields__, effective_ipcq(resolved, defaults.algorithm))
    return merged(IpcqKnobs, {**every, **dict.fromkeys(OF_A_QUEUE_PAIR, defaults)})


def credit_modes(resolved: Resolved) -> set[str]:
    """Each ``credit_return_mode`` of a queue pair that may be made: of ``defaults``, and of every algorithm's entry."""
    return {
        resolved.ccl.defaults.credit_return_mode,
        *(effective_ipcq(resolved, name).credit_return_mode for name in resolved.ccl.algorithms),
    }


def least_credit_bytes(resolved: Resolved) -> int:
    """The least ``ipcq_credit_size_bytes`` of a queue pair that may be made: of ``defaults``, and of every entry."""
    every = (effective_ipcq(resolved, name).ipcq_credit_size_bytes for name in resolved.ccl.algorithms)
    return min(resolved.ccl.defaults.ipcq_credit_size_bytes, *every)


def effective_rank_per(resolved: Resolved, algorithm_name: str) -> RankPer:
    """The kind of a rank of the wiring: a cube for a self-wired algorithm (ADR-0032 D3), else a PE (ADR-0023 D11)."""
    entry = resolved.ccl.algorithms[algorithm_name]
    return entry.rank_per or ("cube" if TABLES.get(entry.topology).self_wired else "pe")


def rank_places(resolved: Resolved, algorithm_name: str) -> int:
    """Number of places for ranks in the system."""
    sips, mesh = resolved.topology.system.sips.count, resolved.topology.sip.cube_mesh
    cubes = sips * mesh.w * mesh.h
    return {"sip": sips, "cube": cubes, "pe": cubes * resolved.topology.cube.pes}[
        effective_rank_per(resolved, algorithm_name)
    ]


def effective_world_size(resolved: Resolved, algorithm_name: str) -> int:
    """Ranks of the wiring as ADR-0023 D11 resolves them: the algorithm's entry, else ``defaults``, else every place."""
    own = resolved.ccl.algorithms[algorithm_name].world_size
    return own or resolved.ccl.defaults.world_size or rank_places(resolved, algorithm_name)


def effective_opposites(resolved: Resolved, algorithm_name: str) -> dict[str, str]:
    """The opposite of each direction that has one: the built-in pairs and those of the algorithm's entry."""
    own = resolved.ccl.algorithms[algorithm_name].opposites
    return {**OPPOSITE, **own, **{b: a for a, b in own.items()}}


def label_of(module: str) -> str:
    """The name of an algorithm's module in digests: a built-in one keeps its label wherever its file lies."""
    package, _, name = module.rpartition(".")
    return f"{LABEL}.{name}" if package in HOMES else module


def canonical_ipcq(resolved: Resolved, algorithm_name: str) -> dict[str, object]:
    """What a digest covers of an algorithm's IPCQ settings: all, but headers of chunks only where there are some."""
    knobs: dict[str, object] = msgspec.to_builtins(effective_ipcq(resolved, algorithm_name))
    if not knobs["vc_chunk_header_bytes"]:
        del knobs["vc_chunk_header_bytes"]
    return knobs


def canonical_algorithm(resolved: Resolved, algorithm_name: str) -> list[object]:
    """What a digest covers of an algorithm: name, module, queue settings, then table, kind and number of ranks.

    The last three are left out for the wiring of ADR-0032: no table, every cube a rank. Added opposites follow.
    """
    entry, per = resolved.ccl.algorithms[algorithm_name], effective_rank_per(resolved, algorithm_name)
    size = effective_world_size(resolved, algorithm_name)
    view: list[object] = [algorithm_name, label_of(entry.module), canonical_ipcq(resolved, algorithm_name)]
    self_wired = TABLES.get(entry.topology).self_wired
    if not (self_wired and per == "cube" and size == rank_places(resolved, algorithm_name)):
        view += ["none" if self_wired else entry.topology, per, size]
    opposites = effective_opposites(resolved, algorithm_name)
    return view if opposites == OPPOSITE else [*view, opposites]


def canonical_groups(resolved: Resolved) -> list[object]:
    """What a digest covers of groups' collectives: their settings, then each entry's name, module and queue settings.

    All entries are covered: a call may name any, ``auto`` compares all, and which of them are schedules is known only
    when their modules have run.
    """
    defaults = resolved.ccl.defaults
    every = (
        (name, label_of(entry.module), canonical_ipcq(resolved, name))
        for name, entry in resolved.ccl.algorithms.items()
    )
    return [defaults.workers, defaults.worker_bytes, defaults.group_KiB, *sorted(every, key=lambda each: each[0])]


def knob_path(resolved: Resolved, key: str) -> Path:
    """The key path of the running algorithm's value of a queue setting: in its entry or in ``defaults``."""
    name = resolved.ccl.defaults.algorithm
    own = getattr(resolved.ccl.algorithms[name], key) is not None
    return ("algorithms", name, key) if own else ("defaults", key)
