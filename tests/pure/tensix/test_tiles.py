"""Floor plans, routes of the two NoCs, memories of tiles, and the stages of an Ethernet message, by hand."""

from functools import partial

import pytest
from msgspec.structs import replace
from packets import packet_ends_ps
from water_filling import Offered

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import load
from sipsim.chips.tensix.chip import TensixKind
from sipsim.chips.tensix.ethernet import EthWrite, Transmitter
from sipsim.chips.tensix.memory import PAGE_BYTES, TileMemory
from sipsim.chips.tensix.noc import Core, FloorPlan, NocGraph
from sipsim.chips.tensix.params import ChipParams, EthernetParams
from sipsim.chips.tensix.results import TileLog
from sipsim.chips.tensix.tiles import Tiles
from sipsim.chips.tensix.transmit_queue import TransmitQueue
from sipsim.config.load import parse_set
from sipsim.core.engine import Engine
from sipsim.core.errors import ConfigError, KernelMisuse, MemoryAccessError, SourceReused
from sipsim.fabric.channels import ONE_QUEUE
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.links.kind import AnyLinkKind, link_of_preset
from sipsim.records.oplog import OpLog


def resolved_chip(name: str, *settings: str) -> tuple[TensixKind, ChipParams]:
    overrides = [parse_set(each) for each in (f"system.chip={name}", *settings)]
    kind = CHIPS.get(name)
    return kind, kind.params(load(overrides=overrides))


def planned(*settings: str) -> object:
    return CHIPS.get("wormhole").plan(load(overrides=[parse_set(each) for each in settings]))


def test_a_link_that_is_faster_than_the_copies_of_an_ethernet_core() -> None:
    line = r"ethernet\.copy_GBps = 14\.5: less than the 50 GB/s of a link; give at least the link's rate, or null"
    with pytest.raises(ConfigError, match=line):
        planned("system.chip=wormhole", "system.sips.link=tenstorrent_400g")


@pytest.mark.parametrize(("name", "workers", "ethernet", "dram"), [("wormhole", 80, 16, 6), ("blackhole", 140, 14, 8)])
def test_the_tiles_of_a_chip(name: str, workers: int, ethernet: int, dram: int) -> None:
    plan = FloorPlan(resolved_chip(name)[1])
    assert (len(plan.workers), len(plan.ethernet), len(plan.dram)) == (workers, ethernet, dram)
    assert plan.problem() == ""
    assert len(plan.kinds) == workers + ethernet + dram


@pytest.mark.parametrize(
    ("noc", "src", "dst", "hops"),
    [
        (0, (1, 1), (4, 3), 3 + 2),
        (0, (4, 3), (1, 1), 7 + 10),  # around the torus: to the right and down only
        (1, (4, 3), (1, 1), 3 + 2),
        (1, (1, 1), (4, 3), 7 + 10),
        (0, (9, 6), (0, 6), 1),
        (0, (2, 2), (2, 2), 0),
    ],
)
@pytest.mark.parametrize("nbytes", [1, 32, 33, 8192, 8193])
def test_a_transfer_of_a_noc(noc: int, src: tuple[int, int], dst: tuple[int, int], hops: int, nbytes: int) -> None:
    """5 cycles into the first router, 9 a hop, 5 out of the last; a flit a cycle, with a header for each 256."""
    graph, engine, ends = NocGraph(resolved_chip("wormhole")[1]), Engine(), []
    route = graph.between(noc, Core(*src), Core(*dst))
    fabric = FlowFabric(engine, ONE_QUEUE)
    fabric.start(fabric.train(src), route, nbytes, lambda head, tail: ends.append((head, tail)))
    engine.run_before(None, 100)
    flits = -(-nbytes // 32) + -(-nbytes // 8192)
    if nbytes == 1:
        flits = 2
    head_ns = 5 + 9 * hops + 5
    assert ends == [(head_ns * 1000, (head_ns + flits) * 1000)]


def test_what_a_noc_shares() -> None:
    """Two workers write to one tile: they share the edges that both need, so both take twice as long."""
    graph, engine, ends = NocGraph(resolved_chip("wormhole")[1]), Engine(), []
    fabric = FlowFabric(engine, ONE_QUEUE)
    for src in ((1, 1), (2, 1)):
        route = graph.between(0, Core(*src), Core(4, 1))
        fabric.start(fabric.train(src), route, 8160, lambda _head, tail: ends.append(tail))
    engine.run_before(None, 100)
    assert sorted(end / 1000 for end in ends) == [10 + hops * 9 + 2 * 256 for hops in (2, 3)]


@pytest.mark.parametrize(
    ("near", "far", "late_ns"),
    [((0, 0), (0, 5), 63), ((5, 0), (5, 2), 90), ((5, 3), (5, 5), -18)],
)
def test_reads_from_two_channels_meet_where_they_leave(
    near: tuple[int, int], far: tuple[int, int], late_ns: int
) -> None:
    """Four reads of a worker, 45 ns apart. Their way there and back is around the torus, so the first byte of the first
    one is here in 420 ns, and packets keep the worker's edge busy from then on. As flows they share it from the time at
    which they leave their channel, and the last one takes its own way after that.
    """
    graph, engine, worker, ends = NocGraph(resolved_chip("wormhole")[1]), Engine(), Core(1, 1), []
    fabric, offered = FlowFabric(engine, ONE_QUEUE), []
    for number, channel in enumerate((near, near, far, far)):
        start_ps = 45_000 * number + graph.word_ps(0, worker, Core(*channel), 1)
        route = graph.data_route(0, Core(*channel), worker)
        start = partial(fabric.start, fabric.train(channel), route, 6144, lambda _head, tail: ends.append(tail))
        engine.at(start_ps, start)
        bank, *edges = (edge._replace(framing=None) for edge in route.edges)
        behind = route._replace(edges=(bank._replace(wire_ps=0), *edges))
        offered.append(Offered(channel, 0, start_ps + bank.wire_ps, 193 * 32, behind))
    engine.run_before(None, 100)
    assert max(packet_ends_ps(offered, (1,))) == (420 + 4 * 193) * 1000
    assert max(ends) == (420 + 4 * 193 + late_ns) * 1000


def test_dram_has_a_rate_and_a_latency() -> None:
    """Its bus is one for both directions."""
    params = resolved_chip("wormhole", "system.chip_params.dram.GBps=16")[1]
    graph = NocGraph(params)
    into, out = graph.data_route(0, Core(1, 1), Core(0, 0)), graph.data_route(0, Core(0, 0), Core(1, 1))
    assert into.latency_ps(1600) == (10 + 9 * (9 + 11) + 200 + 100) * 1000
    assert out.latency_ps(1600) == (10 + 9 * (1 + 1) + 200 + 100) * 1000
    assert graph.between(0, Core(1, 1), Core(0, 0)).latency_ps(32) == (10 + 9 * (9 + 11) + 2) * 1000, "a request"
    engine, ends = Engine(), []
    fabric = FlowFabric(engine, ONE_QUEUE)
    for route in (into, out):
        fabric.start(fabric.train(route.start), route, 160_000, lambda _head, tail: ends.append(tail))
    engine.run_before(None, 100)
    assert max(ends) >= 20_000_000, "320,000 B at 16 GB/s"


def transmitter_of(link: AnyLinkKind, ethernet: EthernetParams, sent: list[tuple[int, EthWrite]]) -> Transmitter:
    plan, engine = FloorPlan(resolved_chip("wormhole")[1]), Engine()
    fabric = FlowFabric(engine, ONE_QUEUE)
    tiles = Tiles(0, plan, NocGraph(plan.params), fabric, engine, TileLog(OpLog(), engine))
    tiles.memory(Core(9, 0)).write(0, bytes(range(250)) * 10, 0, "a test")
    queue = TransmitQueue(link, ethernet.accept_ahead)
    return Transmitter("0.E>1.W", queue, ethernet, Core(9, 0), tiles, lambda *told: sent.append(told))


def test_a_memory_has_its_bytes_and_no_others() -> None:
    memory, looks = TileMemory("tensix 1-1", 3 * PAGE_BYTES), []
    memory.on_write.append(lambda: looks.append(memory.word(PAGE_BYTES - 2)))
    memory.write(PAGE_BYTES - 2, b"abcd", 0, "a test")
    assert memory.read(PAGE_BYTES - 4, 8) == b"\0\0abcd\0\0"
    assert looks == [int.from_bytes(b"abcd", "little")]
    assert [page for page, _ in memory.pages()] == [0, 1]
    for address, nbytes in ((-1, 1), (3 * PAGE_BYTES - 1, 2), (0, -1)):
        with pytest.raises(MemoryAccessError, match=r"tensix 1-1 \(196608 B"):
            memory.read(address, nbytes)


@pytest.mark.parametrize(
    ("address", "nbytes", "now_ps", "is_refused"),
    [(99, 1, 50, False), (100, 1, 50, True), (149, 9, 50, True), (150, 1, 50, False), (100, 50, 80, False)],
)
def test_a_range_that_is_still_read(address: int, nbytes: int, now_ps: int, is_refused: bool) -> None:
    """Bytes 100 to 149 are read until 80 ps."""
    memory = TileMemory("ethernet 9-0", PAGE_BYTES)
    memory.pin(100, 50, "a transmission", 0).until_ps = 80
    if is_refused:
        with pytest.raises(SourceReused, match="which a transmission reads until 80ps; wait for the receiver's"):
            memory.write(address, bytes(nbytes), now_ps, "a kernel")
    else:
        memory.write(address, bytes(nbytes), now_ps, "a kernel")


@pytest.mark.parametrize("copy_ns_per_byte", [0, 0.05, 0.2])
def test_the_stages_of_a_message(copy_ns_per_byte: float) -> None:
    """Messages of 1488 B and 16 B at once: each stage takes them in order; the slowest bounds the rate."""
    link = link_of_preset(load(), "tenstorrent_100g")
    copy = {"copy_GBps": 1 / copy_ns_per_byte if copy_ns_per_byte else None}
    sent: list[tuple[int, EthWrite]] = []
    ethernet = resolved_chip("wormhole")[1].ethernet
    transmitter = transmitter_of(link, replace(ethernet, **copy), sent)
    expected, wire, read, written = [], 0.0, 0.0, 0.0
    for nbytes in (1488, 16, 16, 1488):
        transmitter.submit(0, 16, 32, nbytes)
        wire += (nbytes + 50) / 12.5
        read = max(read, wire + 422) + nbytes * copy_ns_per_byte
        written = max(written, read) + nbytes * copy_ns_per_byte
        expected.append(written)
    transmitter._engine.run_before(None, 100)
    assert [arrival_ps / 1000 for arrival_ps, _ in sent] == pytest.approx(expected, abs=0.01)
    source = (bytes(range(250)) * 10)[16:]
    expected_messages = [EthWrite(32, source[:nbytes], 0, 0, 0) for nbytes in (1488, 16, 16, 1488)]
    assert [message for _, message in sent] == expected_messages
    assert transmitter.bytes_sent == 2 * (1488 + 16)


def test_a_source_is_pinned_until_it_has_left() -> None:
    """Each takes the wire for 120 ns."""
    ethernet = resolved_chip("wormhole")[1].ethernet
    transmitter = transmitter_of(link_of_preset(load(), "tenstorrent_100g"), ethernet, [])
    for _ in range(2):
        transmitter.submit(0, 0, 0, 1450)
    memory, engine = transmitter._memory, transmitter._engine
    with pytest.raises(SourceReused):
        memory.write(1449, b"x", 0, "a kernel")
    engine.at(239_999, lambda: None)
    engine.run_before(240_000, 100)
    with pytest.raises(SourceReused, match="an Ethernet transmission reads until 240ns"):
        memory.write(1449, b"x", engine.now_ps, "a kernel")
    memory.write(1449, b"x", 240_000, "a kernel")


def test_a_queue_is_busy_when_its_places_are_taken() -> None:
    """Two places: the third command is taken once the second has gone on the wire."""
    ethernet = resolved_chip("wormhole", "system.chip_params.ethernet.accept_ahead=2")[1].ethernet
    transmitter = transmitter_of(link_of_preset(load(), "tenstorrent_100g"), ethernet, [])
    for _ in range(3):
        assert not transmitter.is_busy(0)
        transmitter.submit(0, 0, 0, 1450)
    assert transmitter.is_busy(0), "the first is on the wire, two wait"
    assert transmitter.free_at_ps() == 120_000
    with pytest.raises(KernelMisuse, match="core 9-0: transmit queue 0 is busy; call eth_txq_is_busy before a command"):
        transmitter.submit(0, 0, 0, 16)
    with pytest.raises(KernelMisuse, match="there is no transmit queue 1; kernels have queue 0"):
        transmitter.submit(1, 0, 0, 16)
