"""Settings of a machine with doorbells, beside any other settings. Not a test."""

from collections.abc import Mapping
from typing import Any

from sipsim.config.check import flow

_CARRIED = ("bidirectional_ring", "direct", "double_tree", "multidim_ring", "one_shot", "recursive_doubling")
ALONE = {name: {"credit_return_mode": None} for name in (*_CARRIED, "ring", "tree")}
"""Entries of ``algorithms`` by which no schedule's credits travel with messages."""
DOORBELLS = {"defaults.head_update": "doorbell", "defaults.credit_return_mode": "fabric", "algorithms": ALONE}


def heads(settings: Mapping[str, Any], mode: str) -> list[str]:
    """Values of ``--set`` besides ``settings`` for credits of ``mode``; with doorbells none travels with a message."""
    if settings["defaults.head_update"] == "piggyback":
        return [f"defaults.credit_return_mode={mode}"]
    credit = "fabric" if mode == "piggyback" else mode
    return [f"defaults.credit_return_mode={credit}", f"algorithms={flow(ALONE)}"]
