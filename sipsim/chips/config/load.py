"""The config of a run, checked by the rules of every domain and of the chosen chip."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path as File

from sipsim.chips.api.chip import kind_of
from sipsim.chips.config import rules as chip_rules
from sipsim.config.document import Path, Problem, Rule
from sipsim.config.load import load as files
from sipsim.config.load.override import Override
from sipsim.config.schema.model import Resolved
from sipsim.core.registry.registry import UnknownName
from sipsim.fabric.links import rules as link_rules
from sipsim.topology.links import rules as topology_rules
from sipsim.topology.links.build import implied_values

RULES: tuple[Rule, ...] = (
    topology_rules.known_topology,
    *chip_rules.KIND_RULES,
    *link_rules.RULES,
    *topology_rules.RULES,
    link_rules.own_presets_fit_links,
    link_rules.outages_fit_links,
    *chip_rules.CHIP_RULES,
)
"""In this order: the first problem is the one that is reported, and a rule relies on those before it."""


def load(
    config: File | None = None,
    ccl: File | None = None,
    overrides: Sequence[Override] = (),
    variant: str | None = None,
) -> Resolved:
    """The default files, then the variant, ``config`` and ``ccl`` merged over them, then ``overrides`` in order.

    Raises:
        ConfigError: one line that names the file or flag, the key, its value and what is allowed.
    """
    resolved = files.load(RULES, config, ccl, overrides, variant, _unused, (implied_values, _implied_link))
    kind_of(resolved).check_overrides(resolved, overrides)
    return resolved


def _implied_link(resolved: Resolved) -> Iterator[tuple[Path, str]]:
    """The links that a chip has, for a config that names none."""
    try:
        link = kind_of(resolved).link
    except UnknownName:
        return
    if link is not None:
        yield ("system", "sips", "link"), link


def _unused(resolved: Resolved) -> Iterable[Problem]:
    return kind_of(resolved).unused(resolved)
