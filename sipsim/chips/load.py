"""The config of a run, checked by the rules of every domain and of the chosen chip."""

from collections.abc import Sequence
from pathlib import Path

from sipsim.chips import rules as chip_rules
from sipsim.chips.base import kind_of
from sipsim.config import load as files
from sipsim.config.document import Rule
from sipsim.config.model import Resolved
from sipsim.config.override import Override
from sipsim.links import rules as link_rules
from sipsim.topology import rules as topology_rules

RULES: tuple[Rule, ...] = (
    topology_rules.known_topology,
    *link_rules.RULES,
    *topology_rules.RULES,
    link_rules.own_presets_fit_links,
    link_rules.outages_fit_links,
    *chip_rules.RULES,
)
"""In this order: the first problem is the one that is reported, and a rule relies on those before it."""


def load(
    config: Path | None = None,
    ccl: Path | None = None,
    overrides: Sequence[Override] = (),
    variant: str | None = None,
) -> Resolved:
    """The default files, then the variant, ``config`` and ``ccl`` merged over them, then ``overrides`` in order.

    Raises:
        ConfigError: one line that names the file or flag, the key, its value and what is allowed.
    """
    resolved = files.load(RULES, config, ccl, overrides, variant, lambda resolved: kind_of(resolved).unused(resolved))
    kind_of(resolved).check_overrides(resolved, overrides)
    return resolved
