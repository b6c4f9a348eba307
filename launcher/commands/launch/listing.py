"""``--list``: available names, from registries and the config; and what the fields of result files are."""

from collections.abc import Callable

from sipsim.chips.ahbm.collectives.catalog.catalog import Catalog
from sipsim.chips.ahbm.collectives.neighbours.base import TABLES
from sipsim.chips.api.chip import CHIPS
from sipsim.collectives.call.base import COLLECTIVES, default_collective
from sipsim.config.load.load import variants
from sipsim.config.schema.model import Resolved
from sipsim.core.errors import ConfigError
from sipsim.topology.links.base import TOPOLOGIES


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
    catalog = Catalog(resolved)
    head = f"{'name':<26} {'ranks identical':<16} collectives; source"
    return [head, *(_algorithm(catalog, name) for name in sorted(resolved.ccl.algorithms))]


def _algorithm(catalog: Catalog, name: str) -> str:
    """A line of an algorithm; of one that cannot be loaded, why."""
    try:
        found = catalog.get(name)
    except ConfigError as error:
        return f"{name:<26} {error}"
    identical = {True: "yes", False: "no", None: "see reference"}[found.rank_identical]
    collectives = ", ".join(found.collectives) or default_collective()
    return f"{name:<26} {identical:<16} {collectives}; {found.about or found.entry.module}"


def _variants(_: Resolved) -> list[str]:
    return [f"{name:<20} {path.read_text().splitlines()[0].lstrip('# ')}" for name, path in variants().items()]


def _engines(_: Resolved) -> list[str]:
    from launcher.engines import ENGINES

    return [f"{name:<20} {(ENGINES.get(name).__doc__ or '').splitlines()[0]}" for name in ENGINES.names()]


def _fields(_: Resolved) -> list[str]:
    from launcher.result.page import page

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
