"""The difference between a run's config and the defaults, as one line: ``key=value`` as ``--set`` takes it, between
``;``.

It does not matter what changed a key: a flag, a file or a variant. So rows of several runs are of one system where
their lines are equal.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from launcher.options import ALGORITHM
from sipsim.chips.config import load
from sipsim.config.schema import Resolved
from sipsim.config.yaml import parse_text

SEPARATOR = ";"
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)


def settings_of(resolved: Resolved) -> str:
    """The line of a config, in the order of its files' keys; empty for the defaults. The algorithm is not in it: a
    row names its own.
    """
    files, defaults = _plain(resolved), _defaults()
    changed = (each for name, values in files.items() for each in _changed(values, defaults[name], ""))
    return SEPARATOR.join(f"{key}={value}" for key, value in changed if key != ALGORITHM)


@cache
def _defaults() -> dict[str, Any]:
    return dict(_plain(load(variant="")))


def _plain(value: Any) -> Any:
    """A section as a mapping of all its keys; numbers alike however they were written."""
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _changed(value: Any, default: Any, key: str) -> Iterator[tuple[str, str]]:
    """The keys below ``key`` that have another value than by default, each with its text. Parameters that only the
    default kind of a part has are gone with it, and no keys of their own.
    """
    if value == default:
        return
    if isinstance(value, dict) and isinstance(default, dict) and not any("." in each for each in value):
        for name, inner in value.items():
            yield from _changed(inner, default.get(name), f"{key}.{name}" if key else name)
    else:
        yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_text(value) == value:
        return value
    return json.dumps(value, separators=(",", ":")).replace(SEPARATOR, f"\\u{ord(SEPARATOR):04x}")
