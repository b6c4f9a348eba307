"""Copies between host and device over M_CPU.DMA, and maps of page-table entries (ADR-0035), beside launches.

A copy moves whole blocks: IO_CPU sends a message per cube, and each M_CPU hands one block after the other to its DMA
engines. To the device, an engine asks the host for the bytes, which pass M_CPU.DMA on their path to the memory. From
the device, it reads the memory and posts the bytes to the host. A map sends its entries to all PEs of the SIP.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import simpy

from sipsim.chips.ahbm.address import Block, PhysAddr
from sipsim.chips.ahbm.control.fan_out import Broadcast, ControlPath, FanOut, HostRequest, Sizes
from sipsim.chips.ahbm.control.path import (
    ASK_HOST,
    END_OF_COPY,
    END_OF_MAP,
    FROM_DEVICE,
    TAKE_COPY,
    TAKE_MAP,
    TO_DEVICE,
    Place,
    m_cpu,
    m_cpu_name,
    part_of,
)
from sipsim.chips.ahbm.memory.mmu import MmuMapMsg, MmuUnmapMsg
from sipsim.chips.ahbm.memory.ports import MemoryPort
from sipsim.chips.ahbm.mesh import HOST_NODE
from sipsim.chips.ahbm.parts import SipParts
from sipsim.core.processes import Steps, Transfer
from sipsim.fabric.graph import Route

Ps = int
Arrived = Callable[[bytes], None]
"""Function that is called when the bytes of a block that was read are at the host."""


class BlockCopy(NamedTuple):
    """Block of a copy: ``nbytes`` at physical address ``pa``; ``data`` to write, or None to read."""

    pa: int
    nbytes: int
    data: memoryview | None = None

    @property
    def piece(self) -> Block:
        """The block of the memory."""
        return Block.piece(self.pa, self.nbytes)

    @property
    def cube(self) -> int:
        """The cube whose M_CPU.DMA moves the block."""
        return PhysAddr.decode(self.pa).cube


def trigger(event: simpy.Event) -> None:
    """Make an event succeed now."""
    event.succeed()


class MCpuDma:
    """M_CPU.DMA of one cube: a SimPy resource of ``dma_engines`` engines, each of which moves one block at a time.

    Blocks wait for an engine in the order of their dispatches. All engines share M_CPU's port: their bytes follow each
    other in either direction. Limit: an engine stores no bytes, so a copy is as fast as the slowest edge of its path.
    """

    def __init__(self, sip: SipParts, control: ControlPath, cube: int) -> None:
        self._sip = sip
        self._control = control
        self._engine = control.engine
        self._cube = cube
        self._node = m_cpu(cube)
        self._engines = simpy.Resource(control.env, control.path.m_cpu.dma_engines)
        self._command_bytes = sip.plan.resolved.components.pe_dma.command_bytes
        self._last = 0

    def move(self, block: BlockCopy, cause: int, arrived: Arrived, done: Callable[[int], None]) -> Steps:
        """Move a block once an engine is free; call ``done(span)`` when the engine has ended.

        ``arrived(data)`` is called when the bytes of a read are at the host.
        """
        with self._engines.request() as request:
            is_free = request.triggered
            yield request
            cause = cause if is_free else self._last
            steps = self._write(block, cause) if block.data is not None else self._read(block, cause, arrived)
            self._last = yield from steps
        done(self._last)

    def _write(self, block: BlockCopy, cause: int) -> Steps:
        """Ask the host for the bytes, and write them to the memory as they arrive."""
        sip, start_ps, port, piece = self._sip, self._engine.now_ps, self._port(block), block.piece
        yield self._moved("requests", sip.graph.route(self._node, HOST_NODE), self._command_bytes)
        asked, asked_ps = self._span(ASK_HOST, start_ps, cause, self._command_bytes), self._engine.now_ps
        route = port.writing(piece, sip.graph.route_through(HOST_NODE, self._node, port.node))
        yield self._moved("to device", route, sip.wire_format.data_bytes(block.nbytes))
        yield self._served(port, piece, is_read=False)
        yield self._control.env.timeout(port.written_ps(piece))
        assert block.data is not None
        sip.memory.write_from_host(block.pa, block.data)
        return self._span(TO_DEVICE, asked_ps, asked, block.pa, block.nbytes)

    def _read(self, block: BlockCopy, cause: int, arrived: Arrived) -> Steps:
        """Read the memory, and post the bytes to the host; end when the last byte has passed M_CPU, if buffers behind
        M_CPU do not delay it.
        """
        sip, start_ps, port, piece = self._sip, self._engine.now_ps, self._port(block), block.piece
        yield self._moved("commands", sip.graph.route(self._node, port.node), self._command_bytes)
        yield self._served(port, piece, is_read=True)
        reading = port.reading(piece, sip.graph.route_through(port.node, self._node, HOST_NODE))
        yield self._control.env.timeout(reading.first_ps)
        data = sip.memory.read(block.pa, block.nbytes)
        passed = self._control.env.event()
        onward_ps = sip.graph.route(self._node, HOST_NODE).head_ps()

        def left(_head_ps: Ps, tail_ps: Ps) -> None:
            self._engine.at(tail_ps - onward_ps, lambda: trigger(passed))

        train = sip.fabric.train((self._node, "DMA", "from device"), is_reply=True)
        wire_bytes = sip.wire_format.data_bytes(block.nbytes)
        sip.fabric.start(
            train, reading.route, wire_bytes, lambda _h, _t: arrived(data), left, reading.span_ps, reading.span_ps
        )
        yield passed
        return self._span(FROM_DEVICE, start_ps, cause, block.pa, block.nbytes)

    def _served(self, port: MemoryPort, piece: Block, is_read: bool) -> simpy.Event:
        """Return the event at which an access begins that reaches the memory now."""
        served = self._control.env.event()
        port.when_served(piece, is_read, lambda: trigger(served))
        return served

    def _port(self, block: BlockCopy) -> MemoryPort:
        place = PhysAddr.decode(block.pa)
        return self._sip.memory_ports.at(place.space, self._sip.graph.node_of(place))

    def _moved(self, part: str, route: Route, nbytes: int) -> simpy.Event:
        """Start a transfer of this DMA now; return the event of its last byte's arrival."""
        arrived = Transfer(self._control.env)
        train = self._sip.fabric.train((self._node, "DMA", part))
        self._sip.fabric.start(train, route, nbytes, arrived.end)
        return arrived

    def _span(self, name: str, start_ps: Ps, cause: int, *facts: int) -> int:
        where = part_of(f"{m_cpu_name(self._cube)}.dma", TAKE_COPY)
        return self._control.recorder.span(where, name, start_ps, self._engine.now_ps, cause, self._cube, *facts)


class _ToDmas(FanOut):
    """Fan-out of ``blocks`` to the M_CPU.DMAs of their cubes. ``arrived(index, data)``: as of :meth:`MCpuDma.move`."""

    def __init__(
        self,
        control: ControlPath,
        blocks: Sequence[BlockCopy],
        arrived: Callable[[int, bytes], None],
        dma: Callable[[int], MCpuDma],
        gathered: Callable[[int], None],
        cause: int,
    ) -> None:
        self._blocks = blocks
        self._dma = dma
        self._arrived = arrived
        launch = control.path.launch
        targets = [(block.cube, index) for index, block in enumerate(blocks)]
        super().__init__(control, TAKE_COPY, targets, Sizes(launch.cube_bytes, 0, launch.done_bytes), gathered, cause)

    def _hand_over(self, target: Place, cause: int) -> None:
        cube, index = target
        arrived, done = partial(self._arrived, index), partial(self.answer, target)
        self._control.env.process(self._dma(cube).move(self._blocks[index], cause, arrived, done))


class Copy(HostRequest):
    """Copy of ``blocks`` between host and device.

    ``done(data, span)`` is called with the bytes read, by block, when the host sees the end of the request and has all
    bytes: buffers of the fabric may hold posted bytes longer than the answer takes.
    """

    span_names = TAKE_COPY, END_OF_COPY

    def __init__(
        self,
        control: ControlPath,
        dma: Callable[[int], MCpuDma],
        blocks: Sequence[BlockCopy],
        done: Callable[[list[bytes], int], None],
        cause: int,
    ) -> None:
        super().__init__(control, self._end, cause)
        self._blocks = blocks
        self._dma = dma
        self._copied = done
        self._data = [b""] * len(blocks)
        self._missing = sum(block.data is None for block in blocks)
        self._end_span: int | None = None

    def _fan_out(self, cause: int) -> FanOut:
        return _ToDmas(self._control, self._blocks, self._arrived, self._dma, self._gathered, cause)

    def _arrived(self, index: int, data: bytes) -> None:
        self._data[index] = data
        self._missing -= 1
        self._end_if_complete()

    def _end(self, span: int) -> None:
        self._end_span = span
        self._end_if_complete()

    def _end_if_complete(self) -> None:
        if self._end_span is not None and not self._missing:
            self._copied(self._data, self._end_span)


class Map(HostRequest):
    """Map or unmap of page-table entries on all PEs of a SIP: a message of ``entry_bytes`` per entry to each PE.

    Limit: a PE answers at once; the accesses by which it would write its page table are not simulated.
    """

    span_names = TAKE_MAP, END_OF_MAP

    def __init__(
        self, control: ControlPath, places: Sequence[Place], sizes: Sizes, done: Callable[[int], None], cause: int
    ) -> None:
        super().__init__(control, done, cause)
        self._places = places
        self._sizes = sizes

    def _fan_out(self, cause: int) -> FanOut:
        return Broadcast(self._control, TAKE_MAP, self._places, self._sizes, self._at_pe, self._gathered, cause)

    def _at_pe(self, place: Place, span: int) -> None:
        assert self._under_way is not None
        self._under_way.answer(place, span)


class HostCopies:
    """Copies and maps of one SIP's host, with the M_CPU.DMA of each cube, built at its first use."""

    def __init__(self, sip: SipParts, control: ControlPath) -> None:
        self._sip = sip
        self._control = control
        self._dmas: dict[int, MCpuDma] = {}
        system = sip.plan.system
        self._places = [(cube, pe) for cube in range(system.n_cubes) for pe in range(system.n_pes)]

    def copy(self, blocks: Sequence[BlockCopy], done: Callable[[list[bytes], int], None], cause: int) -> None:
        """Start a copy now, because of span ``cause``; ``done(data, span)`` is called when the host sees its end."""
        Copy(self._control, self._dma, blocks, done, cause)

    def map(self, messages: Sequence[MmuMapMsg | MmuUnmapMsg], done: Callable[[int], None], cause: int) -> None:
        """Start a map now, because of span ``cause``: each M_CPU gets all entries, each PE those that it uses."""
        launch = self._control.path.launch
        of_all = sum(message.n_entries for message in messages)
        of_pe = sum(message.n_entries for message in messages if message.target_cube is None)
        cube_bytes = launch.cube_bytes + of_all * launch.entry_bytes
        pe_bytes = launch.pe_bytes + of_pe * launch.entry_bytes
        Map(self._control, self._places, Sizes(cube_bytes, pe_bytes, launch.done_bytes), done, cause)

    def _dma(self, cube: int) -> MCpuDma:
        if cube not in self._dmas:
            self._dmas[cube] = MCpuDma(self._sip, self._control, cube)
        return self._dmas[cube]
