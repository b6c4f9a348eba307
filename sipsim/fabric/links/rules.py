"""Rules for ``links``, the link presets, and for the presets in use."""

from collections.abc import Callable

from broker.ids import MAX_PS
from sipsim.config.check import convert_part
from sipsim.config.document import Path, Problem, Rule, dotted, refused, unregistered
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError, error_text, pass_on_halt
from sipsim.core.registry import unknown_name
from sipsim.fabric.links.kind import LINK_KINDS, AnyLinkKind, link_of_preset, links_in_use
from sipsim.fabric.links.outages import link_outages
from sipsim.topology.links import build_links, link_presets

SIPS: Path = ("system", "sips")
PAYLOADS = (1, 16, 64, 240, 241, 256, 1500, 1501, 4096, 65536)
"""Bytes for which the framing of a kind is tried."""


def known_links(resolved: Resolved) -> Problem | None:
    """Every preset that ``system.sips`` names is a preset of ``links``."""
    sips, presets = resolved.topology.system.sips, resolved.links.links
    named: list[tuple[Path, str | None]] = [((*SIPS, "link"), sips.link)]
    named += [((*SIPS, "custom_links", number, "link"), edge.link) for number, edge in enumerate(sips.custom_links)]
    named += [((*SIPS, "links", port), preset) for port, preset in sips.links.items()]
    for path, name in named:
        if name is not None and name not in presets:
            return Problem((path,), f"{dotted(path)}: {unknown_name('link', name, presets)}")
    return None


def known_link_kinds(resolved: Resolved) -> Problem | None:
    """Every preset is of a registered link kind, which is one."""
    for name, preset in resolved.links.links.items():
        path: Path = ("links", name, "kind")
        problem = unregistered(path, preset.kind, LINK_KINDS)
        if problem:
            return problem
        kind: object = LINK_KINDS.get(preset.kind)
        if not (isinstance(kind, type) and issubclass(kind, AnyLinkKind)):
            return refused(path, preset.kind, f"{kind!r} is registered; must be a subclass of LinkKind")
    return None


def links_have_delay(resolved: Resolved) -> Problem | None:
    """Without latency a link has hardly any lookahead, and SIPs cannot run in parallel: zero is refused."""
    for name, preset in resolved.links.links.items():
        latency = preset.params.get("latency_ns")
        if latency == 0 and not isinstance(latency, bool):
            what = "a link between SIPs without delay cannot be simulated in parallel; must be more than 0"
            return refused(("links", name, "params", "latency_ns"), latency, what)
    return None


def link_params_fit_kind(resolved: Resolved) -> Problem | None:
    """Every preset's ``params`` are exactly its kind's, used or not, and they can be keys of tables."""
    for name, preset in resolved.links.links.items():
        fitted = convert_part(preset.params, LINK_KINDS.get(preset.kind), ("links", name, "params"))
        if isinstance(fitted, Problem):
            return fitted.caused_by(("links", name, "kind"))
        try:
            _ = {link_of_preset(resolved, name)}
        except TypeError as error:
            what = f"{error}; must be a frozen class with parameters that are, such as a tuple in place of a list"
            return refused(("links", name, "kind"), preset.kind, what)
    return None


def link_kinds_frame_payloads(resolved: Resolved) -> Problem | None:
    """``wire_bytes`` of every preset is a whole number, no less than the payload, and never less for more of it; of
    ``first_bytes`` the first packet is no less than a payload of a byte and no more than all; ``stored_ps`` is a time.
    """
    for name, preset in resolved.links.links.items():
        link, least = link_of_preset(resolved, name), 0
        try:
            for nbytes in PAYLOADS:
                least = _tried(link.wire_bytes, nbytes, max(nbytes, least))
                _tried(link.first_bytes, nbytes, link.wire_bytes(1), least)
                _tried(link.stored_ps, nbytes, 0, MAX_PS)
        except _CannotBe as error:
            return refused(("links", name, "kind"), preset.kind, str(error))
    return None


class _CannotBe(Exception):
    """What a method of a link kind returned or raised, and what it must return."""


def _tried(method: Callable[[int], int], nbytes: int, least: int, most: int | None = None) -> int:
    """The value of a link kind's method for a payload: a whole number from ``least`` to ``most``, if there is a most.

    Raises:
        _CannotBe: for anything else.
    """
    call = f"{method.__name__}({nbytes})"
    try:
        found = method(nbytes)
    except BaseException as error:
        pass_on_halt(error)
        raise _CannotBe(f"{call} raised {error_text(error)}") from None
    if type(found) is not int or found < least or (most is not None and found > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _CannotBe(f"{call} is {found!r}; must be a whole number {bounds}")
    return found


def own_presets_fit_links(resolved: Resolved) -> Problem | None:
    """Each entry of ``system.sips.links`` names a port with a link, and a link's two ends agree."""
    sips = resolved.topology.system.sips
    try:
        link_presets(sips, build_links(sips))
    except ConfigError as error:
        return Problem(((*SIPS, "links"), (*SIPS, "custom_links")), str(error))
    return None


def outages_fit_links(resolved: Resolved) -> Problem | None:
    """Each entry of ``system.sips.outages`` is of a link that may go down; those of one link do not overlap."""
    sips = resolved.topology.system.sips
    links, path = build_links(sips), (*SIPS, "outages")
    try:
        outages = link_outages(sips, links)
    except ConfigError as error:
        return Problem((path,), str(error))
    for link, kind, of_link in zip(links, links_in_use(resolved, links), outages, strict=True):
        if of_link and not kind.may_go_down:
            down = next(entry.port for entry in sips.outages if entry.port in (link.near_end, link.far_end))
            what = f"of kind {type(kind).__name__}, which has no outages; a link of kind Ethernet may go down"
            return Problem((path,), f"system.sips.outages: the link at {down} is {what}")
    return None


RULES: tuple[Rule, ...] = (
    known_links,
    known_link_kinds,
    links_have_delay,
    link_params_fit_kind,
    link_kinds_frame_payloads,
)
"""``own_presets_fit_links`` and ``outages_fit_links`` need links that can be built, so they come after the rules of the
topology.
"""
