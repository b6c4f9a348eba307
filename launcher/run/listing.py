"""``--list``: available names, from registries and the config; and what the fields of result files are."""

from collections.abc import Callable

from sipsim.ccl.collectives.base import COLLECTIVES
from sipsim.ccl.tables.base import TABLES
from sipsim.chips.base import CHIPS
from sipsim.config.load import variants
from sipsim.config.model import Resolved
from sipsim.topology.base import TOPOLOGIES


def _topologies(_: Resolved) -> list[str]:
    return [f"{name:<20} {(TOPOLOGIES.get(name).build.__doc__ or '').splitlines()[0]}" for name in TOPOLOGIES.names()]


def _chips(_: Resolved) -> list[str]:
    return [f"{name:<20} {CHIPS.get(name).about}" for name in CHIPS.names()]


def _links(resolved: Resolved) -> list[str]:
    return [f"{name:<20} {preset.kind}: {preset.source}" for name, preset in sorted(resolved.links.links.items())]


def _collectives(_: Resolved) -> list[str]:
    return [f"{name:<20} {COLLECTIVES.get(name).about}" for name in COLLECTIVES.names()]


def _tables(_: Resolved) -> list[str]:
    return [f"{name:<20} {(TABLES.get(name).build.__doc__ or '').splitlines()[0]}" for name in TABLES.names()]


def _algorithms(resolved: Resolved) -> list[str]:
    return [f"{name:<20} {entry.module}" for name, entry in sorted(resolved.ccl.algorithms.items())]


def _variants(_: Resolved) -> list[str]:
    return [f"{name:<20} {path.read_text().splitlines()[0].lstrip('# ')}" for name, path in variants().items()]


def _engines(_: Resolved) -> list[str]:
    from launcher.engines import ENGINES

    return [f"{name:<20} {(ENGINES.get(name).__doc__ or '').splitlines()[0]}" for name in ENGINES.names()]


def _fields(_: Resolved) -> list[str]:
    from launcher.run.results.fields_page import page

    return [page()]


LISTS: dict[str, Callable[[Resolved], list[str]]] = {
    "chips": _chips,
    "topologies": _topologies,
    "links": _links,
    "collectives": _collectives,
    "algorithms": _algorithms,
    "tables": _tables,
    "variants": _variants,
    "engines": _engines,
    "fields": _fields,
}


def listing(what: str, resolved: Resolved) -> str:
    """The lines of one list."""
    return "\n".join(LISTS[what](resolved))
