"""Rules that check the link presets of a config (``links``) and the presets in use."""

from collections.abc import Callable

from broker.ids import MAX_PS
from sipsim.config.check import Path, Problem, Rule, check_registered, convert_part, dotted, refused
from sipsim.config.schema import Resolved
from sipsim.core.errors import error_text, pass_on_halt
from sipsim.core.registry import unknown_name
from sipsim.fabric.links.kind import LINK_KINDS, link_of_preset, links_in_use
from sipsim.fabric.links.outages import OUTAGES, link_outages
from sipsim.topology.links import SIPS, build_links

PAYLOADS = (1, 16, 64, 240, 241, 256, 1500, 1501, 4096, 65536)
"""Sizes of payloads, in bytes, with which the framing of a kind is checked."""


def known_links(resolved: Resolved) -> None:
    """Check that every preset that ``system.sips`` names is a preset of ``links``."""
    sips, presets = resolved.topology.system.sips, resolved.links.links
    references: list[tuple[Path, str | None]] = [((*SIPS, "link"), sips.link)]
    references += [((*SIPS, "custom_links", index, "link"), edge.link) for index, edge in enumerate(sips.custom_links)]
    references += [((*SIPS, "links", port), preset) for port, preset in sips.links.items()]
    for path, name in references:
        if name is not None and name not in presets:
            raise Problem((path,), f"{dotted(path)}: {unknown_name('link', name, presets)}")


def known_link_kinds(resolved: Resolved) -> None:
    """Check that every preset has a registered link kind."""
    for name, preset in resolved.links.links.items():
        check_registered(("links", name, "kind"), preset.kind, LINK_KINDS)


def links_have_delay(resolved: Resolved) -> None:
    """Check that no ``latency_ns`` is 0: without lookahead SIPs cannot be simulated in parallel."""
    for name, preset in resolved.links.links.items():
        latency = preset.params.get("latency_ns")
        if latency == 0 and not isinstance(latency, bool):
            what = "a link between SIPs without delay cannot be simulated in parallel; must be more than 0"
            raise refused(("links", name, "params", "latency_ns"), latency, what)


def link_params_fit_kind(resolved: Resolved) -> None:
    """Check that ``params`` of every preset, used or not, fit the preset's kind, and that the kind is hashable."""
    for name, preset in resolved.links.links.items():
        try:
            convert_part(preset.params, LINK_KINDS.get(preset.kind), ("links", name, "params"))
        except Problem as problem:
            raise problem.caused_by(("links", name, "kind")) from None
        try:
            _ = {link_of_preset(resolved, name)}
        except TypeError as error:
            what = f"{error}; must be a frozen class with hashable parameters, such as a tuple in place of a list"
            raise refused(("links", name, "kind"), preset.kind, what) from None


def link_kinds_frame_payloads(resolved: Resolved) -> None:
    """Check the framing of every preset. ``wire_bytes`` must be a whole number, at least the payload, and not decrease
    with the payload; ``first_bytes`` must be from ``wire_bytes(1)`` to ``wire_bytes``; ``stored_ps`` must be a time.
    """
    for name, preset in resolved.links.links.items():
        link, least = link_of_preset(resolved, name), 0
        try:
            for nbytes in PAYLOADS:
                least = _checked_value(link.wire_bytes, nbytes, max(nbytes, least))
                _checked_value(link.first_bytes, nbytes, link.wire_bytes(1), least)
                _checked_value(link.stored_ps, nbytes, 0, MAX_PS)
        except ValueError as error:
            raise refused(("links", name, "kind"), preset.kind, str(error)) from None


def _checked_value(method: Callable[[int], int], nbytes: int, least: int, maximum: int | None = None) -> int:
    """Return the value of a link kind's method for a payload of ``nbytes``.

    Raises:
        ValueError: if the value is not a whole number from ``least`` to ``maximum`` (None: without upper bound).
    """
    call = f"{method.__name__}({nbytes})"
    try:
        value = method(nbytes)
    except BaseException as error:
        pass_on_halt(error)
        raise ValueError(f"{call} raised {error_text(error)}") from None
    if type(value) is not int or value < least or (maximum is not None and value > maximum):
        bounds = f"of at least {least}" if maximum is None else f"from {least} to {maximum}"
        raise ValueError(f"{call} is {value!r}; must be a whole number {bounds}")
    return value


def links_fit(resolved: Resolved) -> None:
    """Check that links connect all SIPs, and have one preset at both ends; that ``system.sips.links`` and ``outages``
    name ports with a link; and that the kinds of links with outages may go down.
    """
    sips = resolved.topology.system.sips
    links = build_links(sips)
    kinds = links_in_use(resolved, links)
    for link, kind, outages in zip(links, kinds, link_outages(sips, links), strict=True):
        if outages and not kind.may_go_down:
            down = next(entry.port for entry in sips.outages if entry.port in (link.near_end, link.far_end))
            what = f"of kind {type(kind).__name__}, which has no outages; a link of kind Ethernet may go down"
            raise Problem((OUTAGES,), f"system.sips.outages: the link at {down} is {what}")


RULES: tuple[Rule, ...] = (
    known_links,
    known_link_kinds,
    links_have_delay,
    link_params_fit_kind,
    link_kinds_frame_payloads,
)
"""Rules for presets. ``links_fit`` is separate: it builds the links, so it runs after the rules for the topology."""
