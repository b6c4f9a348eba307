"""Effective settings of an algorithm: the values of its ``ccl.yaml`` entry, otherwise the values of ``defaults``."""

from collections.abc import Iterable
from pathlib import PurePath

import msgspec

from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, TABLES
from sipsim.config.check import Path
from sipsim.config.schema import IpcqKnobs, RankPer, Resolved, merged
from sipsim.core.moved import HOMES, LABEL
from sipsim.core.registry import unknown_name


def unknown_algorithm(name: str, entries: Iterable[str]) -> str:
    """Return the error message for an unknown algorithm; for a ``.py`` file it shows an entry that defines the file."""
    hint = ""
    if name.endswith(".py"):
        stem = PurePath(name).stem
        entry = f"algorithms: {{{stem}: {{module: {name}, topology: none}}}}"
        hint = f"to run a file, write '{entry}' in a file for --ccl, and name {stem}; "
    return unknown_name("algorithm", name, entries, hint)


PER_QUEUE_PAIR = frozenset({"buffer_kind", "n_slots", "slot_size", "credit_return_mode"})
"""The queue settings that a schedule's entry may set; the others apply to all queue pairs of a PE."""


def effective_ipcq(resolved: Resolved, algorithm_name: str) -> IpcqKnobs:
    """Return the IPCQ settings of an algorithm: each key of its entry, otherwise of ``defaults``."""
    entry, defaults = resolved.ccl.algorithms[algorithm_name], resolved.ccl.defaults
    values = msgspec.structs.asdict(entry)
    return merged(IpcqKnobs, {key: defaults if values[key] is None else entry for key in IpcqKnobs.__struct_fields__})


def pair_ipcq(resolved: Resolved) -> IpcqKnobs:
    """Return the settings of point-to-point messages: keys per queue pair from ``defaults``, other keys from the PE."""
    defaults = resolved.ccl.defaults
    every = dict.fromkeys(IpcqKnobs.__struct_fields__, effective_ipcq(resolved, defaults.algorithm))
    return merged(IpcqKnobs, {**every, **dict.fromkeys(PER_QUEUE_PAIR, defaults)})


def credit_modes(resolved: Resolved) -> set[str]:
    """Return every ``credit_return_mode`` that a queue pair can have: in ``defaults`` or for any algorithm."""
    return {
        resolved.ccl.defaults.credit_return_mode,
        *(effective_ipcq(resolved, name).credit_return_mode for name in resolved.ccl.algorithms),
    }


def least_credit_bytes(resolved: Resolved) -> int:
    """Return the least ``ipcq_credit_size_bytes`` that a queue pair can have: in ``defaults`` or for any algorithm."""
    every = (effective_ipcq(resolved, name).ipcq_credit_size_bytes for name in resolved.ccl.algorithms)
    return min(resolved.ccl.defaults.ipcq_credit_size_bytes, *every)


def effective_rank_per(resolved: Resolved, algorithm_name: str) -> RankPer:
    """Return what a rank of the wiring is: a cube for a self-wired table (ADR-0032 D3), else a PE (ADR-0023 D11)."""
    entry = resolved.ccl.algorithms[algorithm_name]
    return entry.rank_per or ("cube" if TABLES.get(entry.topology).self_wired else "pe")


def rank_places(resolved: Resolved, algorithm_name: str) -> int:
    """Return the number of places for ranks in the system."""
    sips, mesh = resolved.topology.system.sips.count, resolved.topology.sip.cube_mesh
    cubes = sips * mesh.w * mesh.h
    return {"sip": sips, "cube": cubes, "pe": cubes * resolved.topology.cube.pes}[
        effective_rank_per(resolved, algorithm_name)
    ]


def effective_world_size(resolved: Resolved, algorithm_name: str) -> int:
    """Return the number of ranks: the algorithm's entry, else ``defaults``, else all places (ADR-0023 D11)."""
    configured = resolved.ccl.algorithms[algorithm_name].world_size
    return configured or resolved.ccl.defaults.world_size or rank_places(resolved, algorithm_name)


def effective_opposites(resolved: Resolved, algorithm_name: str) -> dict[str, str]:
    """Return the opposites of directions: the built-in pairs, and the pairs in the algorithm's entry."""
    added = resolved.ccl.algorithms[algorithm_name].opposites
    return {**OPPOSITE, **added, **{b: a for a, b in added.items()}}


def label_of(module: str) -> str:
    """Return an algorithm module's name in digests; the label of a built-in module does not depend on its path."""
    package, _, name = module.rpartition(".")
    return f"{LABEL}.{name}" if package in HOMES else module


_OFF = {"vc_chunk_header_bytes": 0, "head_update": "piggyback"}
"""Settings that digests contain only with another value than this one."""


def canonical_ipcq(resolved: Resolved, algorithm_name: str) -> dict[str, object]:
    """Return the IPCQ settings that enter digests: all of them, but settings of :data:`_OFF` only if they are on."""
    knobs: dict[str, object] = msgspec.to_builtins(effective_ipcq(resolved, algorithm_name))
    return {key: value for key, value in knobs.items() if key not in _OFF or value != _OFF[key]}


def canonical_algorithm(resolved: Resolved, algorithm_name: str) -> list[object]:
    """Return an algorithm's values that enter digests: name, module, queue settings, table, kind and number of ranks.

    The last three are omitted for the wiring of ADR-0032: no table, every cube a rank. Added opposites are appended.
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
    """Return the values of collectives over groups that enter digests: their settings, then all algorithm entries.

    All entries are included: a call may name any algorithm, ``auto`` compares all of them, and only a loaded module
    shows whether it is a schedule.
    """
    defaults = resolved.ccl.defaults
    every = (
        (name, label_of(entry.module), canonical_ipcq(resolved, name))
        for name, entry in resolved.ccl.algorithms.items()
    )
    return [defaults.workers, defaults.worker_bytes, defaults.group_KiB, *sorted(every, key=lambda each: each[0])]


def knob_path(resolved: Resolved, key: str) -> Path:
    """Return the key path of the default algorithm's value of a queue setting: in its entry or in ``defaults``."""
    name = resolved.ccl.defaults.algorithm
    is_in_entry = getattr(resolved.ccl.algorithms[name], key) is not None
    return ("algorithms", name, key) if is_in_entry else ("defaults", key)
