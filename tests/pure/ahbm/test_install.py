"""Installing queue pairs: which ring pairs with which, their addresses, and tables that cannot be installed.

A *ring* is the place of (rank, direction) where that rank receives. The tables below are small enough to be paired
by hand.
"""

import contextlib
from collections import Counter
from collections.abc import Callable

import pytest
from hardware import SHAPED, TOPOLOGIES_OF_AHBM, WiredPlan, config, system_of
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import sipsim.chips.ahbm.collectives.queue_pairs
import sipsim.chips.ahbm.plan
from sipsim.chips.ahbm.address import MIB, PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, NeighbourTable, intercube_multisip
from sipsim.chips.ahbm.collectives.queue_pairs import (
    InstallPlan,
    Ring,
    check_endpoints,
    check_rings_disjoint,
    install,
    pair_rings,
)
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.ipcq.messages import IpcqEndpoint, IpcqInitEntry
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.schema import IpcqKnobs
from sipsim.core.errors import ConfigError
from sipsim.fabric.graph import Node

EASTWARD = {rank: {"E": (rank + 1) % 3} for rank in range(3)}
BOTH_WAYS = {rank: {"E": (rank + 1) % 3, "W": (rank - 1) % 3} for rank in range(3)}

WITH_UP = {**OPPOSITE, "Up": "Down", "Down": "Up"}


# --- which ring faces which -----------------------------------------------------------------------------------


TORUS = {r: {"E": r ^ 1, "W": r ^ 1, "N": r ^ 2, "S": r ^ 2} for r in range(4)}
PAIRED = {
    "E faces W of the same peer (ADR-0025)": ("0E1 0W1 1E0 1W0", "0E-1W 0W-1E 1E-0W 1W-0E"),
    "in any order of the keys": ("0W1 0E1 1E0 1W0", "0E-1W 0W-1E 1E-0W 1W-0E"),
    "a declared opposite": ("0U1 0D1 1U0 1D0", "0U-1D 0D-1U 1U-0D 1D-0U"),
    "a receive-only ring in the declared opposite": ("0U1 1", "0U-1D"),
    "in the same direction, without an opposite": ("0x1 1", "0x-1x"),
    "names without opposites, and E that leads to a peer's S": ("0l1 0E2 1p0 2S0", "0l-1p 1p-0l 0E-2S 2S-0E"),
    "an opposite that leads elsewhere": ("0E1 1W2 1N0 2E1", "0E-1N 1W-2E 1N-0E 2E-1W"),
    "the opposite before another that leads back": ("0E1 1N0 1W0", "0E-1W 1N-0S 1W-0E"),
    "one way, received in the opposite": ("0E1 1E2 2E0", "0E-1W 1E-2W 2E-0W"),
    "a torus of four": (
        " ".join(f"{r}{d}{TORUS[r][d]}" for r in TORUS for d in "EWNS"),
        " ".join(f"{r}{d}-{TORUS[r][d]}{OPPOSITE[d]}" for r in TORUS for d in "EWNS"),
    ),
}
"""A table, ``0E1`` for rank 0's E that leads to rank 1, and where each sends: ``0E-1W``."""


@pytest.mark.parametrize("prefix", ["", "global_"])
@pytest.mark.parametrize("case", PAIRED)
def test_which_ring_faces_which(case: str, prefix: str) -> None:
    words, expected = PAIRED[case]
    table: NeighbourTable = {int(word[0]): {} for word in words.split()}
    for rank, way, peer in (word for word in words.split() if len(word) == 3):
        table[int(rank)][prefix + way] = int(peer)
    opposite = {prefix + way: prefix + back for way, back in {"U": "D", "D": "U"}.items()} | OPPOSITE
    found = pair_rings(table, opposite=opposite)
    ends = [f"{one.rank}{one.direction}-{other.rank}{other.direction}" for one, other in found.items()]
    assert sorted(end.replace(prefix, "") for end in ends) == sorted(expected.split())


@pytest.mark.ideal
def test_the_plan_pairs_by_the_opposites_of_the_entry() -> None:
    settings = {"system.sips.count": 1, "algorithms.intercube_allreduce.opposites": {"Down": "Up"}}
    table = {0: {"Up": 1, "Down": 1}, 1: {"Up": 0, "Down": 0}}
    places = [PePlace(0, 0, 0), PePlace(0, 1, 0)]
    entries = WiredPlan(config(settings), places, table).entries
    bases = {(place, entry.direction): entry.my_rx_base_pa for place in places for entry in entries[place]}
    for place, peer in (places, places[::-1]):
        for entry in entries[place]:
            assert entry.peer.rx_base_pa == bases[peer, WITH_UP[entry.direction]]


def test_a_pairing_by_dict_order_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant pairs E with E, so the ring that a kernel receives from is the wrong one."""

    def first_that_leads_back(table: NeighbourTable, rank: int, peer: int, *_: object) -> str | None:
        return next((d for d, target in table[peer].items() if target == rank), None)

    monkeypatch.setattr(sipsim.chips.ahbm.collectives.queue_pairs, "reverse_direction", first_that_leads_back)
    with pytest.raises(ConfigError, match="two senders for one receive ring"):
        pair_rings({0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}})


TWO = "two senders for one receive ring: "


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({0: {"E": 2}, 1: {"E": 2}, 2: {}}, f"{TWO}rank 0 E and rank 1 E both lead to rank 2 W; give each sender"),
        (
            {0: {"a": 1, "b": 1}, 1: {"c": 0}},
            f"{TWO}rank 0 a and rank 0 b both lead to rank 1 c; give each sender",
        ),
        (
            {0: {"E": 1}, 1: {}, 2: {"W": 0}},
            "I3: rank 0 sends to rank 1 in direction E, but receives in this direction",
        ),
        ({0: {"E": 2}, 1: {}}, "rank 0, direction E: there is no rank 2; ranks are 0 to 1"),
        ({0: {"E": -1}, 1: {}}, "rank 0, direction E: there is no rank -1; ranks are 0 to 1"),
    ],
)
def test_tables_that_cannot_be_paired(table: NeighbourTable, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pair_rings(table)
    assert str(caught.value).startswith(message)


tables = st.integers(1, 6).flatmap(
    lambda size: st.fixed_dictionaries(
        {r: st.dictionaries(st.sampled_from([*OPPOSITE, "up"]), st.integers(0, size - 1)) for r in range(size)}
    )
)


@settings(max_examples=300)
@given(tables)
def test_any_table_is_paired_one_to_one_or_refused(table: NeighbourTable) -> None:
    """Each ring has one sender, which names its rank."""
    with contextlib.suppress(ConfigError):
        pairs = pair_rings(table)
        assert sorted(pairs) == sorted(Ring(r, d) for r in table for d in table[r])
        assert len(set(pairs.values())) == len(pairs)
        assert all(ring.rank == table[sender.rank][sender.direction] for sender, ring in pairs.items())


# --- entries --------------------------------------------------------------------------------------------------


def installed(table: NeighbourTable, **knobs: object) -> InstallPlan:
    """On one SIP of a 4x4 mesh; rank r of the table is PE r % 8 of cube r // 8."""
    system = system_of(config({"system.sips.count": 1, "cube.hbm_MiB_per_pe": 2}))
    return install(system, queue_knobs(system, **knobs), [PePlace(0, r // 8, r % 8) for r in range(len(table))], table)


def queue_knobs(system: AhbmSystem, **changes: object) -> IpcqKnobs:
    return structs.replace(effective_ipcq(system.resolved, "intercube_allreduce"), **changes)


def intercube(settings_: dict[str, object]) -> tuple[AhbmSystem, InstallPlan]:
    """The wiring of ADR-0032 on any topology, whether its kernel runs there or not."""
    system = system_of(config(settings_))
    ranks = range(system.n_sips * system.n_cubes)
    places = [PePlace(*divmod(rank, system.n_cubes), 0) for rank in ranks]
    table = {rank: intercube_multisip(rank, len(ranks), {}, system) for rank in ranks}
    return system, install(system, queue_knobs(system), places, table)


def test_a_receive_only_opposite() -> None:
    """In the one-way ring W receives from the rank behind and cannot send."""
    entries = installed(EASTWARD)
    east, west = entries[PePlace(0, 0, 1)]
    assert (east.direction, east.can_send, east.peer.pe) == ("E", True, 2)
    assert (west.direction, west.can_send, west.peer.pe) == ("W", False, 0)
    assert east.peer.rx_base_pa == entries[PePlace(0, 0, 2)][1].my_rx_base_pa


def test_a_bidirectional_ring_needs_no_receive_only_ring() -> None:
    entries = installed(BOTH_WAYS)
    assert [(e.direction, e.can_send) for e in entries[PePlace(0, 0, 0)]] == [("E", True), ("W", True)]


GRIDS = [(1, None), (2, (2, 1)), (2, (1, 2)), (4, (2, 2)), (6, (3, 2)), (9, None)]


@pytest.mark.parametrize("topology", TOPOLOGIES_OF_AHBM)
@pytest.mark.parametrize(("count", "shape"), GRIDS)
def test_endpoints_agree(topology: str, count: int, shape: tuple[int, int] | None) -> None:
    """I3 on every built-in topology: a PE sends to an existing ring of the same size whose peer it is."""
    settings_: dict[str, object] = {"system.sips.count": count, "system.sips.topology": topology}
    if topology in SHAPED:
        settings_["system.sips.shape"] = list(shape) if shape else None
    if topology == "custom":
        cables = [{"a": i, "a_port": "E", "b": i + 1, "b_port": "W"} for i in range(count - 1)]
        settings_["system.sips.custom_links"] = cables
    assert_endpoints_agree(intercube({**settings_, "sip.cube_mesh": {"w": 2, "h": 2}})[1])


def assert_endpoints_agree(entries: InstallPlan) -> None:
    rings = {e.my_rx_base_pa: (place, e) for place, own in entries.items() for e in own}
    senders = Counter(e.peer.rx_base_pa for own in entries.values() for e in own if e.can_send)
    assert len(rings) == sum(map(len, entries.values())), "two rings at one address"
    assert all(senders[base] == 1 for base in rings), "each ring has exactly one sender"
    for place, own in entries.items():
        for entry in own:
            here = PhysAddr.decode(entry.my_rx_base_pa)
            assert (here.sip, here.cube, here.pe) == tuple(place)
            there, facing = rings[entry.peer.rx_base_pa]
            assert there == entry.peer[:3]
            assert facing.peer[:3] == tuple(place)
            assert (facing.n_slots, facing.slot_size) == (entry.peer.n_slots, entry.peer.slot_size)


def test_intercube_neighbours_by_hand() -> None:
    """The south-west cube (rank 12 of 16) of SIP 1 of a ring of three."""
    system, _ = intercube({"system.sips.count": 3})
    found = intercube_multisip(16 + 12, 48, {}, system)
    assert found == {"N": 16 + 8, "E": 16 + 13, "global_E": 32 + 12, "global_W": 12}


def test_credit_latency_is_the_whole_path() -> None:
    """From the receiver's PE to the sender's, over its own port, for 16 B."""
    system, plan = intercube({"system.sips.count": 4, "system.sips.topology": "mesh_2d_no_wrap"})
    for place, entries in plan.items():
        for entry in entries:
            src, dst = Node("pe", place.cube, 0), Node("pe", entry.peer.cube, 0)
            port = entry.direction.removeprefix("global_") if entry.peer.sip != place.sip else None
            route = system.end_to_end(place.sip, src, entry.peer.sip, dst, port)
            assert entry.credit_ps == route.head_ps() + route.drain_ps(16)


# --- where rings lie ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "pe"), [("tcm", 14 * MIB, 5), ("hbm", 2 * MIB - 2 * 8 * 4096, 5), ("sram", 5 * 4 * MIB, 0)]
)
def test_addresses_of_rings(kind: str, first: int, pe: int) -> None:
    """In the TCM's region of D20, at the top of the HBM, in the PE's eighth of the SRAM; contiguous."""
    table = {rank: {"E": (rank + 1) % 8, "W": (rank - 1) % 8} for rank in range(8)}
    entries = installed(table, buffer_kind=kind)[PePlace(0, 0, 5)]
    addresses = [PhysAddr.decode(e.my_rx_base_pa) for e in entries]
    assert addresses == [PhysAddr(0, 0, pe, kind, first), PhysAddr(0, 0, pe, kind, first + 8 * 4096)]
    assert {e.peer.buffer_kind for e in entries} == {kind}


@pytest.mark.parametrize(("kind", "room", "slots"), [("tcm", MIB, 32), ("sram", 4 * MIB, 128), ("hbm", 2 * MIB, 64)])
def test_rings_that_do_not_fit(kind: str, room: int, slots: int) -> None:
    """Two rings fill their memory to the last byte; a byte more in each slot does not fit."""
    installed(BOTH_WAYS, buffer_kind=kind, n_slots=slots, slot_size=16384)
    with pytest.raises(ConfigError) as caught:
        installed(BOTH_WAYS, buffer_kind=kind, n_slots=slots, slot_size=16385)
    key = {"tcm": "tcm_layout.ipcq_MiB", "sram": "cube.sram_MiB", "hbm": "cube.hbm_MiB_per_pe"}[kind]
    assert str(caught.value) == (
        f"defaults.n_slots = {slots}: 2 rings of {slots} slots of 16385 B take {2 * slots * 16385} B, more than the "
        f"{room} B per PE from {key}; lower defaults.n_slots or defaults.slot_size (rank 0 receives in E, W)"
    )


def test_the_fullest_pe_counts() -> None:
    """Rank 1 has three rings, the others one."""
    star = {0: {"to1": 1}, 1: {"a": 0, "b": 2, "c": 3}, 2: {"to1": 1}, 3: {"to1": 1}}
    installed(star, n_slots=85)
    with pytest.raises(ConfigError, match=r"3 rings of 86 slots of 4096 B take .* \(rank 1 receives in a, b, c\)$"):
        installed(star, n_slots=86)


@pytest.mark.parametrize("strict", [True, False])
def test_a_pe_has_registers_for_eight_directions(strict: bool) -> None:
    """ADR-0023 D17, receive-only ones included."""
    system = system_of(config({"system.sips.count": 1}))
    knobs = queue_knobs(system, hw_strict=strict)
    hub = {0: {f"d{i}": i for i in range(1, 9)}, **{i: {"up": 0} for i in range(1, 9)}, 9: {}}
    places = [PePlace(0, 0, 0), *(PePlace(0, cube, 0) for cube in range(1, 10))]
    install(system, knobs, places, hub)
    ninth = {**hub, 9: {"E": 0}}
    if not strict:
        assert len(install(system, knobs, places, ninth)[places[0]]) == 9
        return
    with pytest.raises(ConfigError) as caught:
        install(system, knobs, places, ninth)
    assert str(caught.value) == (
        "hw_strict: rank 0 has 9 directions (W, d1, d2, d3, d4, d5, d6, d7, d8), and a PE has registers for 8 "
        "(ADR-0023 D17); use fewer directions, or set hw_strict to false"
    )


# --- I3 and I4 ------------------------------------------------------------------------------------------------

Change = Callable[[IpcqInitEntry, InstallPlan], IpcqInitEntry]


def peer_changed(entry: IpcqInitEntry, **changes: object) -> IpcqInitEntry:
    return entry._replace(peer=entry.peer._replace(**changes))  # type: ignore[arg-type]


def to_ring(entry: IpcqInitEntry, base: int) -> IpcqInitEntry:
    return peer_changed(entry, rx_base_pa=base)


def moved(entry: IpcqInitEntry, kind: str) -> IpcqInitEntry:
    return entry._replace(my_rx_base_pa=PhysAddr.decode(entry.my_rx_base_pa)._replace(space=kind).encode())


NO_RING = "I3: .* sends to .*, which has no ring for this sender"
VIOLATIONS: dict[str, tuple[NeighbourTable, Change, str]] = {
    "another PE's ring": (BOTH_WAYS, lambda e, plan: to_ring(e, plan[PePlace(0, 0, 2)][1].my_rx_base_pa), NO_RING),
    "the wrong ring of the PE": (
        BOTH_WAYS,
        lambda e, plan: to_ring(e, plan[PePlace(0, 0, 1)][0].my_rx_base_pa),
        NO_RING,
    ),
    "within a ring": (BOTH_WAYS, lambda e, plan: to_ring(e, e.peer.rx_base_pa + 4096), NO_RING),
    "another peer": (BOTH_WAYS, lambda e, plan: peer_changed(e, pe=2), NO_RING),
    "more slots": (
        BOTH_WAYS,
        lambda e, plan: peer_changed(e, n_slots=16),
        "I3: .* assumes a wrong size of ring W of .*",
    ),
    "two senders": (
        {0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}},
        lambda e, plan: to_ring(e, plan[PePlace(0, 0, 0)][1].peer.rx_base_pa),
        "I3: .* and W of .* write to the same ring",
    ),
    "no sender": (
        EASTWARD,
        lambda e, plan: e._replace(can_send=False),
        "I3: no rank sends to the receive-only ring E of",
    ),
    "a peer's ring elsewhere": (
        BOTH_WAYS,
        lambda e, plan: peer_changed(e, buffer_kind="hbm"),
        "I4: .* ring in hbm, but",
    ),
    "a ring elsewhere": (EASTWARD, lambda e, plan: moved(e, "sram"), "I4: .* ring in sram, but .* must be in tcm"),
}


@pytest.mark.parametrize("what", VIOLATIONS)
def test_ends_that_do_not_agree(what: str) -> None:
    """I3 and I4, violated in the first entry of a valid plan."""
    table, change, message = VIOLATIONS[what]
    plan = installed(table)
    check_endpoints(plan, "tcm")
    entries = plan[PePlace(0, 0, 0)]
    entries[0] = change(entries[0], plan)
    with pytest.raises(ConfigError, match=f"^{message}") as refused:
        check_endpoints(plan, "tcm")
    assert "E of PE (0, 0, 0)" in str(refused.value)


def test_a_group_in_another_memory() -> None:
    """I4 compares with the configured memory, not only the rings with each other."""
    with pytest.raises(ConfigError, match=r"I4: E of .* has a ring in tcm, but the rings of its group must be in sram"):
        check_endpoints(installed(EASTWARD), "sram")


def test_the_plan_checks_what_it_installs(monkeypatch: pytest.MonkeyPatch) -> None:

    def mixed(*args: object) -> InstallPlan:
        plan = install(*args)  # type: ignore[arg-type]
        first = min(plan)
        plan[first][0] = moved(plan[first][0], "hbm")
        return plan

    monkeypatch.setattr(sipsim.chips.ahbm.plan, "install", mixed)
    with pytest.raises(ConfigError, match=r"^I4: E of PE \(0, 0, 0\) has a ring in hbm, but .* must be in tcm$"):
        Plan(config({}))


# --- I3.1 -----------------------------------------------------------------------------------------------------


def ring_at(base: int, n_slots: int = 2, slot_size: int = 64, direction: str = "E") -> IpcqInitEntry:
    peer = IpcqEndpoint(0, 0, 0, "tcm", 0, 0, n_slots, slot_size)
    return IpcqInitEntry(direction, peer, base, n_slots, slot_size, True, 0)


@pytest.mark.parametrize(
    ("bases", "overlap"),
    [((0, 128), False), ((0, 127), True), ((0, 0), True), ((300, 0, 128), False), ((0, 427, 300), True)],
)
def test_rings_that_overlap(bases: tuple[int, ...], overlap: bool) -> None:
    """By one byte, and equal ones, in any order."""
    plan = {PePlace(0, 0, pe): [ring_at(base)] for pe, base in enumerate(bases)}
    if not overlap:
        check_rings_disjoint(plan)
        return
    with pytest.raises(ConfigError, match=r"^I3.1: .* E of PE \(0, 0, \d\) overlaps ring E of PE \(0, 0, \d\)$"):
        check_rings_disjoint(plan)


def test_a_short_ring_within_a_long_one() -> None:
    """The overlap is not between neighbours in the order of ring ends."""
    plan = {PePlace(0, 0, 0): [ring_at(0, n_slots=100), ring_at(640, direction="W")]}
    with pytest.raises(ConfigError, match=r"receive ring E of PE \(0, 0, 0\) overlaps ring W of PE \(0, 0, 0\)"):
        check_rings_disjoint(plan)


def test_the_check_of_overlaps_is_not_quadratic() -> None:
    """2,048 rings take about 20 comparisons each, nearly all in the sort."""
    compared = 0

    def counting(name: str) -> Callable[[int, int], bool]:
        def compare(self: int, other: int) -> bool:
            nonlocal compared
            compared += 1
            return bool(getattr(int, name)(self, other))

        return compare

    names = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__")
    counted = type("Counted", (int,), {name: counting(name) for name in names})
    counted.__add__ = lambda self, other: counted(int(self) + other)  # type: ignore[attr-defined]
    plan = {PePlace(0, r, 0): [ring_at(counted((r * 769 % 2048) * 128))] for r in range(2048)}
    compared = 0
    check_rings_disjoint(plan)
    assert 0 < compared < 40 * 2048
