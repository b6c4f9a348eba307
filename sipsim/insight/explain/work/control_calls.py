"""What the spans of the control path did, as calls of :class:`~sipsim.chips.ahbm.costs.prices.terms.Machine`.

Facts of spans, in order. Messages: cube, for one from or to a PE its number, and bytes; ``dispatch``: how many PEs were
served with this one; ``start margin``: cube and PE of each place; ``gather``: the spans of the answers; ``start``: the
spans of the message and of the margin; ``end of a launch``: the index of its collective.
"""

from collections.abc import Iterator
from typing import Any

from sipsim.chips.ahbm.control import launch_path
from sipsim.chips.ahbm.control.fan_out import DISPATCH, GATHER, M_CPU, OF_CUBE, OF_PE, TO_CUBE, TO_PE
from sipsim.chips.ahbm.control.launch import END, HOST, IO_CPU, MARGIN, SKEW, START, TAKE, TO_IO_CPU
from sipsim.chips.ahbm.control.launch_path import m_cpu
from sipsim.fabric.graph.graph import Node
from sipsim.records.recorder import Span

_MESSAGES = (TO_CUBE, TO_PE, OF_PE, OF_CUBE)
PHASE = "(launch)"
"""Of all that is no kernel's."""


def is_control(span: Span) -> bool:
    """Whether it is a span of the host, IO_CPU or an M_CPU."""
    return not span.component.startswith("cube") and span.component.startswith((HOST, IO_CPU, M_CPU))


def is_end(span: Span) -> bool:
    """Whether the host knows by it that a launch has ended."""
    return span.component == HOST and span.name == END


def also_needed(span: Span) -> Iterator[int]:
    """The spans that one of the control path waits for besides its cause."""
    if span.name in (GATHER, START):
        yield from span.facts


def control_call(rank: int, span: Span) -> tuple[str, tuple[Any, ...]] | None:
    """The method of ``Machine`` that prices a span, and its arguments; None where it takes no time of its own."""
    name, is_io_cpu = span.name, span.component == IO_CPU
    if name in _MESSAGES:
        return "control_message", (*_nodes(span), span.facts[-1])
    if name in (TO_IO_CPU, END):
        return "host_latency", ()
    if name == SKEW:
        return "start_skew", (rank,)
    if name == TAKE and is_io_cpu:
        return "io_cpu_launch", ()
    if name == MARGIN:
        return "start_margin", (tuple(zip(span.facts[::2], span.facts[1::2], strict=True)),)
    if name == DISPATCH:
        return "m_cpu_dispatch", tuple(span.facts)
    if name == GATHER:
        return "io_cpu_gather" if is_io_cpu else "m_cpu_gather", ()
    return None


def _nodes(span: Span) -> tuple[Node, Node]:
    """Where a message came from and went to."""
    cube, at = span.facts[0], m_cpu(span.facts[0])
    far = Node("pe", cube, span.facts[1]) if span.name in (TO_PE, OF_PE) else launch_path.IO_CPU_NODE
    return (at, far) if span.name in (TO_PE, OF_CUBE) else (far, at)
