"""Flags of a machine with doorbells, beside any other flags."""

_CARRIED = ("bidirectional_ring", "direct", "double_tree", "multidim_ring", "one_shot", "recursive_doubling")
ALONE = f"algorithms={{{', '.join(f'{name}: {{credit_return_mode: null}}' for name in (*_CARRIED, 'ring', 'tree'))}}}"
"""The setting by which no schedule's credits travel with messages."""


def heads(settings: dict[str, object], mode: str) -> list[str]:
    """The settings besides ``settings`` for credits of ``mode``; with doorbells, no credit travels with a message."""
    if settings["defaults.head_update"] == "piggyback":
        return [f"defaults.credit_return_mode={mode}"]
    return [f"defaults.credit_return_mode={'fabric' if mode == 'piggyback' else mode}", ALONE]
