"""A memory's accesses take what its port's kind says: a kind of this file, banked, with times summed by hand."""

import json
from collections.abc import Callable

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config
from memory_bench import SETTINGS, at, memory_bench, writes

from launcher.cli.probe import probe
from launcher.run.probe.options import parse_probe
from sipsim.config.components import MemoryCost, TcmCost
from sipsim.config.section import Section
from sipsim.engine import Engine
from sipsim.memory.port import FIXED_LATENCY, MEMORY_KINDS, MemoryPort
from sipsim.memory.store import MemoryStore
from sipsim.units import ns_to_ps

BANK_BYTES = 64


class Banks(Section, frozen=True):
    """``busy_ns``: how long an access occupies its bank."""

    busy_ns: float


class Banked(MemoryPort):
    """Two banks, by address; an access takes its bank's time, and waits while an earlier one has the bank."""

    Params = Banks

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        self.least_read_ps = self.least_write_ps = ns_to_ps(self.params.busy_ns)
        self._free_ps = [0, 0]

    def time_read(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self._occupy(address // BANK_BYTES % 2, done)

    def time_write(self, address: int, nbytes: int, done: Callable[[], None]) -> None:
        self._occupy(address // BANK_BYTES % 2, done)

    def _occupy(self, bank: int, done: Callable[[], None]) -> None:
        self._free_ps[bank] = max(self.engine.now_ps, self._free_ps[bank]) + self.least_read_ps
        self.engine.at(self._free_ps[bank], done)


@pytest.fixture(autouse=True)
def _with_banked(monkeypatch: pytest.MonkeyPatch) -> None:
    MEMORY_KINDS.names()
    monkeypatch.setattr(MEMORY_KINDS, "_entries", dict(MEMORY_KINDS._entries))
    MEMORY_KINDS.register("banked")(Banked)


BANKED: dict[str, object] = {
    "defaults.buffer_kind": "sram",
    "defaults.slot_size": 64,
    "sram.kind": "banked",
    "sram.params": {"busy_ns": 20},
}


def bench(*settings: dict[str, object]) -> Bench:
    return memory_bench(BANKED, *settings)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "offset", "ends_ps"),
    [
        # Of one bank: PE 1's 64 B come at 3 + 2 * 5 + 17 + 1 = 31 ns, when PE 0 has it from 26 to 46.
        ({}, 128, (46_000 + 25_250, 66_000 + 30_250)),
        ({}, 64, (46_000 + 25_250, 51_000 + 30_250)),
        # Fixed latencies know no banks.
        ({"sram.kind": None, "sram.params": {}}, 128, (31_000 + 25_250, 36_000 + 30_250)),
    ],
    ids=["same bank", "other bank", "fixed latency"],
)
def test_writes_of_two_pes(settings: dict[str, object], offset: int, ends_ps: tuple[int, int]) -> None:
    """PE 0's 64 B come to the SRAM at 3 + 5 + 17 + 1 = 26 ns; acknowledgements take 17 + 5 + 3 + 0.25 ns back, and a
    router more to PE 1.
    """
    made = bench(settings)
    one, other = writes(made, at("sram"), 64), writes(made, at("sram", offset), 64, pe=1)
    made.run()
    assert (*one, *other) == ends_ps
    assert made.sip.memory.read(at("sram", offset), 64) == bytes([2]) * 64


@pytest.mark.ideal
def test_a_read_waits_for_a_write() -> None:
    """PE 1's command comes at 3 + 2 * 5 + 17 + 0.25 = 30.25 ns; it reads from 46 to 66, and finds what PE 0 wrote. Its
    64 B take 17 + 2 * 5 + 3 + 1 ns.
    """
    made = bench()
    writes(made, at("sram"), 64)
    found: list[tuple[int, bytes]] = []
    made.sip.pe(0, 1).dma.read(at("sram"), 64, lambda data: found.append((made.engine.now_ps, data)))
    made.run()
    assert found == [(66_000 + 31_000, bytes([1]) * 64)]


@pytest.mark.ideal
def test_another_cube_has_another_port() -> None:
    """The banks of one cube are not those of the other."""
    made = bench()
    one, other = writes(made, at("sram"), 64), writes(made, at("sram", cube=1), 64, cube=1)
    made.run()
    assert one == other == [46_000 + 25_250]


@pytest.mark.ideal
@pytest.mark.parametrize(("slot", "end_ps"), [(0, 67_000 + 35_250), (1, 56_000 + 35_250)], ids=["same", "other"])
def test_a_message_occupies_the_bank_of_its_slot(slot: int, end_ps: int) -> None:
    """A message of 64 B from PE 0 comes to its slot at 1 + 26 = 27 ns. PE 2 writes to that bank: its 64 B come at
    3 + 3 * 5 + 17 + 1 = 36 ns, wait until 47 and take 20; the acknowledgement takes 17 + 3 * 5 + 3 + 0.25 ns.
    """
    made = bench()
    made.kernel(0, 0, lambda tl: tl.send("E", src_addr=0, shape=16, dtype="f32"))
    made.kernel(0, 1, lambda tl: tl.recv("W", 16, "f32"))
    ring_pa = made.queue(0, 1, "W").my_rx_base_pa
    ends = writes(made, ring_pa + 64 * (slot + 4), 64, pe=2)
    made.run()
    assert ends == [end_ps]


@pytest.mark.ideal
def test_the_usual_kind_counts_for_the_digest_as_none() -> None:
    def canonical(**sram: object) -> str:
        return WiredPlan(config({**ONE_SIP, **{f"sram.{key}": value for key, value in sram.items()}}), [], {}).digest

    assert canonical(kind=FIXED_LATENCY) == canonical(kind=None) == canonical()
    assert canonical(kind="banked", params={"busy_ns": 20}) != canonical()


def test_the_probe_counts_the_least_time_of_a_write() -> None:
    settings = [word for key, value in (SETTINGS | BANKED).items() for word in ("--set", f"{key}={json.dumps(value)}")]
    arguments = ["--from", "0.0.0", "--to", "0.0.1", "--bytes", "64", *settings]
    document = probe(parse_probe(arguments))
    for sums in (document["raw_dma"], document["pair"]):
        term = {"part": "data", "kind": "memory", "what": "sram write latency, the least", "ps": 20_000}
        assert term in sums["terms"]
        assert sums["simulated_ps"] == sums["sum_ps"]
