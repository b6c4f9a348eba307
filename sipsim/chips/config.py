"""Config of a run, checked by the rules of every domain and of the chosen chip."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as File

from sipsim.chips.api.chip import CHIPS, kind_of
from sipsim.config import load as files
from sipsim.config.check import Path, Problem, Rule, apply_rules, check_registered, convert_part, refused, shown
from sipsim.config.load import Override
from sipsim.config.schema import Resolved
from sipsim.core.registry import UnknownName
from sipsim.fabric.links import rules as link_rules
from sipsim.topology import links as topology_rules
from sipsim.topology.links import SIPS, build_links, implied_values, natural_order

CHIP: Path = ("system", "chip")
PARAMS: Path = ("system", "chip_params")


def known_chip(resolved: Resolved) -> None:
    """Check that ``system.chip`` is a registered chip kind."""
    check_registered(CHIP, resolved.topology.system.chip, CHIPS)


def chip_params_fit_kind(resolved: Resolved) -> None:
    """Check ``system.chip_params`` against the schema of the chip kind."""
    kind = kind_of(resolved)
    try:
        convert_part(kind.params_of(resolved.topology.system.chip_params), kind.Params, PARAMS)
    except Problem as problem:
        raise (problem.caused_by(CHIP) if problem.lacks else problem) from None


def edges_join_ports_of_chip(resolved: Resolved) -> None:
    """Check that the chip has each port in the edge list. A list without any such port is for another chip."""
    ports = kind_of(resolved).ports(resolved)
    named: list[tuple[Path, str]] = []
    for number, edge in enumerate(resolved.topology.system.sips.custom_links):
        path: Path = (*SIPS, "custom_links", number)
        named += [((*path, "a_port"), edge.a_port), ((*path, "b_port"), edge.b_port)]
    wrong = [each for each in named if ports is not None and each[1] not in ports]
    if ports is not None and 0 < len(wrong) < len(named):
        path, port = wrong[0]
        raise refused(path, shown(port), f"must be one of: {_listed(ports)}")


def links_leave_by_ports_of_chip(resolved: Resolved) -> None:
    """Check that the topology's links use only ports of this chip's SIPs."""
    system, ports = resolved.topology.system, kind_of(resolved).ports(resolved)
    if ports is None:
        return
    for link in build_links(system.sips):
        if link.src_port not in ports:
            what = f"the topology uses port {link.src_port}, but a SIP of chip {system.chip} has ports {_listed(ports)}"
            path = (*SIPS, "topology")
            raise refused(path, system.sips.topology, f"{what}; use another chip or topology", CHIP)


def check_skews(skews_ns: Mapping[str, float], path: Path, count: int) -> None:
    """Check that the keys of ``skews_ns``, at key ``path`` of the config, are ranks below ``count``.

    Raises:
        Problem: for the first key that is not a rank.
    """
    for rank, skew_ns in skews_ns.items():
        if not (rank.isascii() and rank.isdigit() and str(int(rank)) == rank and int(rank) < count):
            what = f"{rank!r} is no rank; allowed: 0 to {count - 1}"
            raise refused((*path, rank), skew_ns, what, (*SIPS, "count"))


def _listed(ports: Collection[str]) -> str:
    return ", ".join(sorted(ports, key=natural_order))


def chip_rules_hold(resolved: Resolved) -> None:
    """Check the rules of the chosen chip kind."""
    apply_rules(kind_of(resolved).rules, resolved)


RULES: tuple[Rule, ...] = (
    topology_rules.known_topology,
    known_chip,
    chip_params_fit_kind,
    edges_join_ports_of_chip,
    *link_rules.RULES,
    *topology_rules.RULES,
    link_rules.links_fit,
    links_leave_by_ports_of_chip,
    chip_rules_hold,
)
"""Rules in order: the first problem is reported, and a rule may rely on earlier rules. An unknown port is reported
before other problems of links."""


def load(
    config: File | None = None,
    ccl: File | None = None,
    overrides: Sequence[Override] = (),
    variant: str | None = None,
) -> Resolved:
    """Load the default files, merge the variant, ``config`` and ``ccl`` over them, then apply ``overrides`` in order.

    Raises:
        ConfigError: one line that names the file or flag, the key, its value and what is allowed.
    """
    resolved = files.load(RULES, config, ccl, overrides, variant, _unused, (implied_values, _implied_link))
    kind_of(resolved).check_overrides(resolved, overrides)
    return resolved


def _implied_link(resolved: Resolved) -> Iterator[tuple[Path, str]]:
    """Yield the default link preset of the chip if the config names no preset."""
    try:
        link = kind_of(resolved).link
    except UnknownName:
        return
    if link is not None:
        yield ("system", "sips", "link"), link


def _unused(resolved: Resolved) -> Iterable[Problem]:
    return kind_of(resolved).unused(resolved)
