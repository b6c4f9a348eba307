"""Calls of :class:`~sipsim.chips.ahbm.costs.prices.Prices` that price each span; equal calls have equal prices.

``Span.facts`` by the name of the span, in order. *Fetched*: (address, bytes) of the reads before it. Spans of PEs::

    dma_read, dma_write, their blocks      fetched, address, bytes
    operations of PE_MATH                  fetched, arguments of its ``MathWork``
    views                                  fetched
    delays                                 fetched, ps
    products of PE_GEMM                    fetched, path to its end, addresses of A and C of a composite command
    TLB miss                               number of page walks
    send                                   direction, number, bytes, address of the source, span of the command
    message, credit                        direction, number
    recv                                   direction, number, span of the command
    copy, latch                            from, to, bytes
    slot fetch                             the reads so far, as fetched
    ipcq.release                           None, direction
    poll                                   start of polling, span of the command
    a wait                                 the span before it
    a kernel                               its last span, the index of its collective

Spans of the control path::

    messages                               cube; the PE, for a message from or to a PE; bytes
    dispatch                               number of PEs dispatched so far
    start margin                           cube and number of each PE that starts
    gather                                 the spans of the answers
    start                                  the spans of the message and of the margin
    request to host                        cube, bytes
    write to device, read from device      cube, address, bytes
    end of a launch                        the index of its collective
"""

import re
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.control.path import (
    ASK_HOST,
    DISPATCH,
    END,
    END_OF_COPY,
    END_OF_MAP,
    FROM_DEVICE,
    GATHER,
    HOST,
    IO_CPU,
    M_CPU,
    MARGIN,
    OF_CUBE,
    OF_PE,
    SKEW,
    TAKE,
    TAKE_COPY,
    TAKE_MAP,
    TO_CUBE,
    TO_DEVICE,
    TO_IO_CPU,
    TO_PE,
    m_cpu,
)
from sipsim.chips.ahbm.costs.prices import Place, Price, Prices, memory_of, on_any_sip
from sipsim.chips.ahbm.gemm.engine import DOT, GEMM
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.ipcq.credits import FAST_PATH, PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages import FETCH, IN_PLACE, PASS, Installed, IpcqInitEntry
from sipsim.chips.ahbm.ipcq.pe_ipcq import POLL, WAKEUP
from sipsim.chips.ahbm.ipcq.queue_pair import full_name
from sipsim.chips.ahbm.ipcq.records import RELEASE
from sipsim.chips.ahbm.memory.mmu import TLB_MISS
from sipsim.chips.ahbm.mesh import HOST_NODE, IO_CPU_NODE
from sipsim.chips.ahbm.pe.commands import MathWork, TcmPiece
from sipsim.chips.ahbm.pe.cpu import ISSUE
from sipsim.chips.ahbm.pe.dma import READ, READ_BLOCK, WRITE, WRITE_BLOCK
from sipsim.chips.ahbm.pe.math import CAST, DELAY, MAKE, MATH, REARRANGE, REDUCE, VIEWS
from sipsim.chips.ahbm.plan import Plan
from sipsim.fabric.graph import Node
from sipsim.records.recorder import Span

_PHASES = {TAKE_COPY: "host copy", TAKE_MAP: "map"}


def phase_of_control(span: Span) -> str:
    """Return the phase of a span of the control path: the request to which its component belongs."""
    return _PHASES.get(span.component.rpartition(".")[2], "launch")


def is_control(span: Span) -> bool:
    """Whether the component of a span is the host, IO_CPU, an M_CPU or its DMA."""
    return not span.component.startswith("cube") and span.component.startswith((HOST, IO_CPU, M_CPU))


def is_end(span: Span) -> bool:
    """Whether a span notifies the host of the end of a launch."""
    return span.component == HOST and span.name == END


_COMPONENT = re.compile(r"cube(\d+)\.pe(\d+)")
QUEUES = ".ipcq"
"""Suffix of the component name in spans of a PE's queues."""
KERNEL = ".kernel"
"""Suffix of the component name in spans of a PE's kernels."""
READS, WRITES = (READ, READ_BLOCK), (WRITE, WRITE_BLOCK)
_MATH_NAMES = (MATH, REDUCE, CAST, REARRANGE, MAKE)
_GEMM_NAMES = (GEMM, DOT)
_PE_NAMES = {*READS, *_GEMM_NAMES, *WRITES, *_MATH_NAMES, *VIEWS, DELAY, TLB_MISS, ISSUE, RELEASE}
MESSAGE, CREDIT, SEND, RECV, COPY, LATCH = "message", "credit", "send", "recv", "copy", "latch"


_FIXED = {ISSUE: "issue", POLL: "poll", WAKEUP: "wakeup"}
"""Fixed prices of the spans of PE_CPU."""
_FIXED_IN_LAUNCH = {
    **dict.fromkeys((TO_IO_CPU, END, END_OF_COPY, END_OF_MAP), "host_latency"),
    DISPATCH: "m_cpu_dispatch",
    GATHER: "m_cpu_gather",
}
_FIXED_ON_IO_CPU = {**dict.fromkeys((TAKE, TAKE_COPY, TAKE_MAP), "io_cpu_launch"), GATHER: "io_cpu_gather"}
_OF_COPIES = {TO_DEVICE: "host_write", FROM_DEVICE: "host_read"}


class Call(NamedTuple):
    """A method of ``Prices`` and its arguments."""

    method: str
    args: tuple[Any, ...]

    def price(self, prices: Prices) -> Price:
        """Return the price on the machine of ``prices``."""
        found: Price = getattr(prices, self.method)(*self.args)
        return found


class Calls:
    """The ``Prices`` calls of all spans of a run. ``prices``: of the run's machine; ``histories``: by rank."""

    def __init__(self, plan: Plan, prices: Prices, histories: list[History]) -> None:
        self._plan = plan
        self._prices = prices
        self._histories = histories
        self._queues: dict[tuple[Place, str], tuple[int, IpcqInitEntry]] = {}
        self._by_ring: dict[tuple[int, int], IpcqInitEntry] = {}
        planned = (Installed(0, place[:3], entry) for place, entries in plan.entries.items() for entry in entries)
        for number, place, entry in chain(planned, *(history.later for history in histories)):
            self._queues[place, full_name(entry.direction, number)] = number, entry
            self._by_ring[number, entry.my_rx_base_pa] = entry
        self._handlers: dict[str, Callable[[Place, Span], list[Call]]] = {
            **dict.fromkeys(READS, partial(self._access, "read")),
            **dict.fromkeys(WRITES, partial(self._access, "write")),
            **dict.fromkeys(_MATH_NAMES, self._math),
            **dict.fromkeys(_GEMM_NAMES, self._product),
            **dict.fromkeys(VIEWS, lambda place, span: _fetched(place, span.facts[0])),
            DELAY: lambda _place, span: [Call("delay", (span.facts[1],))],
            TLB_MISS: lambda _place, span: [Call("fixed", ("page_walks", *span.facts))],
            MESSAGE: partial(self._sent, "message"),
            CREDIT: self._credit,
            RECV: self._receive,
            COPY: self._copy,
            LATCH: self._latch,
            RELEASE: self._release,
            FETCH: lambda place, span: _fetched(place, span.facts),
            PASS: partial(self._sent, "passing"),
            **{name: partial(_fixed, price) for name, price in _FIXED.items()},
        }

    def of(self, rank: int, span: Span) -> list[Call]:
        """Return the calls of a span; empty if the span is no work of a built-in component."""
        if is_control(span):
            return _control_calls(rank, span)
        place, handler = place_of(rank, span), self._handlers.get(name_of(span))
        if place is None or span.is_wait or handler is None:
            return []
        return handler(place, span)

    def queue(self, place: Place, direction: str) -> IpcqInitEntry:
        """Return the queue pair of a PE. ``direction``: the full name, with the generation."""
        return self._queues[place, direction][1]

    def send_of(self, message: Span) -> Span:
        """Return the send of a message, given the span of the message or of its passage through PE_DMA."""
        rank, number = message.cause
        return self._histories[rank].spans[number - 1]

    def message(self, span: Span) -> tuple[Place, IpcqInitEntry, int, int | None]:
        """Return the PE that sends a message, its queue pair, the message's bytes, and the address of its source."""
        send = self.send_of(span)
        src = place_of(span.cause[0], send)
        assert src is not None
        direction, _, nbytes, read_pa, _ = send.facts
        return src, self.queue(src, direction), nbytes, read_pa

    def _access(self, method: str, place: Place, span: Span) -> list[Call]:
        fetched, address, nbytes = span.facts
        return [*_fetched(place, fetched), Call(method, (on_any_sip(place), memory_of(address), nbytes))]

    def _math(self, place: Place, span: Span) -> list[Call]:
        fetched, (nbytes, is_special, operands, result) = span.facts
        work = MathWork(nbytes, is_special, tuple([TcmPiece(*each) for each in operands]), TcmPiece(*result))
        return [*_fetched(place, fetched), Call("math", (work,))]

    def _sent(self, method: str, _place: Place, span: Span) -> list[Call]:
        """Return the call that prices a message; ``method``: ``message`` or ``passing``."""
        src, queue, nbytes, read_pa = self.message(span)
        source = None if read_pa is None else memory_of(read_pa)
        ends = _ends(src, queue.direction, queue.peer.place)
        args = *ends, queue.peer.buffer_kind, nbytes, source
        if method == "message" and self._prices.has_doorbells and src[0] != queue.peer.sip:
            number, _ = self._queues[src, self.send_of(span).facts[0]]
            return [Call(method, (*args, self._by_ring[number, queue.peer.rx_base_pa].direction))]
        return [Call(method, args)]

    def _release(self, place: Place, span: Span) -> list[Call]:
        """Return the calls of a release that blocks: the emission of its credit, if emitted at once; else no calls."""
        return self._emission(place, span.facts[1]) if span.end_ps > span.start_ps else []

    def _credit(self, place: Place, span: Span) -> list[Call]:
        """Return the call for a credit that has arrived for this PE's sends in a direction."""
        number, queue = self._queues[place, span.facts[0]]
        peer = queue.peer
        peer_entry = self._by_ring[number, peer.rx_base_pa]
        return [Call("credit", _ends(peer.place, peer_entry.direction, place))]

    def _receive(self, place: Place, span: Span) -> list[Call]:
        """Return the calls during which a receive still blocks after freeing the slot."""
        return [] if self._plan.ipcq.latch == IN_PLACE else self._emission(place, span.facts[0])

    def _emission(self, place: Place, direction: str) -> list[Call]:
        """Return the calls for the emission of a ring's credit, during which the kernel blocks."""
        queue = self.queue(place, direction)
        if queue.credit_mode == PIGGYBACK:
            return []
        method = "credit" if queue.credit_mode == FAST_PATH else "injection"
        return [Call(method, _ends(place, queue.direction, queue.peer.place))]

    def _latch(self, place: Place, span: Span) -> list[Call]:
        src, _, nbytes = span.facts
        slot = PhysAddr.decode(src)._replace(sip=0).encode()
        return [Call("latch", (on_any_sip(place), slot, nbytes))]

    def _copy(self, place: Place, span: Span) -> list[Call]:
        src, dst, nbytes = span.facts
        pe = on_any_sip(place)
        return [
            Call("read", (pe, memory_of(src), nbytes, False)),
            Call("write", (pe, memory_of(dst), nbytes, False)),
        ]

    def _product(self, place: Place, span: Span) -> list[Call]:
        pe = on_any_sip(place)
        # A composite command has the addresses of A and C; the operands of a product of handles are in the TCM.
        own = PhysAddr(*pe, "tcm", 0).encode()
        _, path_ps, *addresses = span.facts
        operands, outputs = map(memory_of, addresses) if addresses else (own, own)
        stages = self._prices.gemm_stages(pe, operands, outputs)
        return [Call("product", (pe, operands, outputs, tuple(path_ps), stages))]


def name_of(span: Span) -> str:
    """Return the name of a span of a built-in component, else "": a user's command may have any name.

    Names of spans of PE_IPCQ and kinds of built-in commands are distinct sets.
    """
    return span.name if (span.name in _PE_NAMES) != span.component.endswith(QUEUES) else ""


def place_of(rank: int, span: Span) -> Place | None:
    """Return the PE of a span; None for a component that is on no PE."""
    found = _pe_of(span.component)
    return None if found is None else (rank, *found)


@cache
def _pe_of(component: str) -> tuple[int, int] | None:
    found = _COMPONENT.match(component)
    return None if found is None else (int(found[1]), int(found[2]))


def _ends(src: Place, direction: str, dst: Place) -> tuple[Place, str, Place]:
    """Return the ``Prices`` arguments for source and destination. If both are on one SIP, they name no SIP."""
    return (on_any_sip(src), "", on_any_sip(dst)) if src[0] == dst[0] else (src, direction, dst)


def _control_calls(rank: int, span: Span) -> list[Call]:
    """Return the calls of a span of the control path; empty if the operation itself takes no time."""
    name, facts = span.name, span.facts
    if name in (TO_CUBE, TO_PE, OF_PE, OF_CUBE):
        ends = [m_cpu(facts[0]), Node("pe", *facts[:2]) if name in (TO_PE, OF_PE) else IO_CPU_NODE]
        return [Call("control_message", (*(ends[::-1] if name in (TO_CUBE, OF_PE) else ends), facts[-1]))]
    if name == ASK_HOST:
        return [Call("control_message", (m_cpu(facts[0]), HOST_NODE, facts[1]))]
    if name in _OF_COPIES:
        cube, address, nbytes = facts
        return [Call(_OF_COPIES[name], (cube, memory_of(address), nbytes))]
    if name == SKEW:
        return [Call("start_skew", (rank,))]
    if name == MARGIN:
        return [Call("start_margin", (tuple(zip(facts[::2], facts[1::2], strict=True)),))]
    fixed = (_FIXED_ON_IO_CPU if span.component.startswith(IO_CPU) else _FIXED_IN_LAUNCH).get(name)
    return [] if fixed is None else [Call("fixed", (fixed, *(facts if name == DISPATCH else ())))]


def _fixed(name: str, _place: Place, _span: Span) -> list[Call]:
    return [Call("fixed", (name,))]


def _fetched(place: Place, fetched: Any) -> list[Call]:
    return [Call("read", (on_any_sip(place), memory_of(address), nbytes)) for address, nbytes in fetched or ()]
