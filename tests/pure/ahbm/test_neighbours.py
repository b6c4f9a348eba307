"""The built-in neighbour tables: by hand, by property, their pairing, and the PEs of their ranks."""

from collections import Counter

import pytest
from hardware import ONE_SIP, Bench, WiredPlan, config, system_of
from msgspec import json

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.neighbours import OPPOSITE, TABLES, NeighbourTable
from sipsim.chips.ahbm.collectives.queue_pairs import Ring, check_endpoints, install, pair_rings
from sipsim.chips.ahbm.collectives.settings import canonical_algorithm, effective_ipcq
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import KernelError

WIRED = [name for name in TABLES.names() if not TABLES.get(name).self_wired]
ANY_SIZES = (1, 2, 3, 4, 7, 8, 9, 16, 25, 64)
ALLREDUCE = "intercube_allreduce"


def table(name: str, size: int) -> NeighbourTable:
    return {rank: TABLES.get(name).build(rank, size) for rank in range(size)}


def sizes_of(name: str) -> list[int]:
    return [size for size in ANY_SIZES if TABLES.get(name).refuses(size, size) is None]


EVERY = [(name, size) for name in WIRED for size in sizes_of(name)]


# --- the tables -----------------------------------------------------------------------------------------------


def test_names_of_the_tables() -> None:
    assert TABLES.names() == [
        *("custom", "mesh_2d", "mesh_2d_no_wrap", "none", "ring_1d", "ring_1d_unidir", "torus_2d", "tree_binary")
    ]


BY_HAND = [
    ("ring_1d", 1, 0, {}),
    ("ring_1d", 2, 0, {"E": 1, "W": 1}),
    ("ring_1d", 2, 1, {"E": 0, "W": 0}),
    ("ring_1d", 7, 0, {"E": 1, "W": 6}),
    ("ring_1d", 7, 6, {"E": 0, "W": 5}),
    ("ring_1d_unidir", 1, 0, {}),
    ("ring_1d_unidir", 2, 1, {"E": 0}),
    ("ring_1d_unidir", 4, 3, {"E": 0}),
    ("mesh_2d", 1, 0, {}),
    ("mesh_2d", 4, 0, {"N": 2, "S": 2, "E": 1, "W": 1}),
    ("mesh_2d", 9, 0, {"N": 6, "S": 3, "E": 1, "W": 2}),
    ("mesh_2d", 9, 5, {"N": 2, "S": 8, "E": 3, "W": 4}),
    ("mesh_2d", 16, 13, {"N": 9, "S": 1, "E": 14, "W": 12}),
    ("mesh_2d_no_wrap", 1, 0, {}),
    ("mesh_2d_no_wrap", 4, 3, {"N": 1, "W": 2}),
    ("mesh_2d_no_wrap", 9, 4, {"N": 1, "S": 7, "E": 5, "W": 3}),
    ("mesh_2d_no_wrap", 9, 2, {"S": 5, "W": 1}),
    ("mesh_2d_no_wrap", 16, 4, {"N": 0, "S": 8, "E": 5}),
    ("tree_binary", 1, 0, {}),
    ("tree_binary", 2, 0, {"child_left": 1}),
    ("tree_binary", 7, 0, {"child_left": 1, "child_right": 2}),
    ("tree_binary", 7, 1, {"parent": 0, "child_left": 3, "child_right": 4}),
    ("tree_binary", 7, 6, {"parent": 2}),
    ("tree_binary", 4, 1, {"parent": 0, "child_left": 3}),
    ("none", 9, 3, {}),
    ("custom", 9, 3, {}),
]


@pytest.mark.parametrize(("name", "size", "rank", "expected"), BY_HAND)
def test_by_hand(name: str, size: int, rank: int, expected: dict[str, int]) -> None:
    assert TABLES.get(name).build(rank, size) == expected


@pytest.mark.parametrize("size", sizes_of("mesh_2d"))
def test_a_torus_is_the_mesh_of_the_adr(size: int) -> None:
    """Both names wrap."""
    assert table("torus_2d", size) == table("mesh_2d", size)


@pytest.mark.parametrize(("name", "size"), EVERY)
def test_neighbours_are_other_ranks_and_mutual(name: str, size: int) -> None:
    """Neighbours name each other, except in the one-way ring, where a neighbour is the next rank."""
    wiring = table(name, size)
    for rank, neighbours in wiring.items():
        for peer in neighbours.values():
            assert peer in wiring
            assert peer != rank
            if not TABLES.get(name).one_way:
                assert list(neighbours.values()).count(peer) == list(wiring[peer].values()).count(rank)


@pytest.mark.parametrize("name", [n for n in TABLES.names() if TABLES.get(n).square])
@pytest.mark.parametrize(
    ("size", "most", "message"),
    [
        (2, 2, "needs a square number of ranks, and there are 2; set world_size to 1"),
        (7, 9, "needs a square number of ranks, and there are 7; set world_size to 4 or 9"),
        (7, 8, "needs a square number of ranks, and there are 7; set world_size to 4"),
        (32, 256, "needs a square number of ranks, and there are 32; set world_size to 25 or 36"),
        (9, 9, None),
        (256, 256, None),
        (1, 1, None),
    ],
)
def test_a_number_of_ranks_that_is_no_square(name: str, size: int, most: int, message: str | None) -> None:
    """The line names the nearest squares."""
    assert TABLES.get(name).refuses(size, most) == message


# --- how they pair --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), EVERY)
def test_each_ring_has_one_sender_and_faces_its_opposite(name: str, size: int) -> None:
    """E writes to W and N to S, on rings and grids of any size, two-wide ones included; a child to the parent ring."""
    pairs = pair_rings(table(name, size), TABLES.get(name).one_way)
    assert len(set(pairs.values())) == len(pairs)
    for sender, ring in pairs.items():
        if name == "tree_binary":
            assert (ring.direction == "parent") == sender.direction.startswith("child")
        else:
            assert ring.direction == OPPOSITE[sender.direction]
        if not TABLES.get(name).one_way:
            assert pairs[ring] == sender


@pytest.mark.ideal
@pytest.mark.parametrize(("name", "size"), EVERY)
@pytest.mark.parametrize("per_cube", [1, 4])
def test_installed_queue_pairs_have_two_ends(name: str, size: int, per_cube: int) -> None:
    """I3, I4 and I3.1 over the whole plan, ranks on PEs of several cubes, and each receive ring written by one PE."""
    settings = {"system.sips.count": 2, "cube.pes": per_cube, "sip.cube_mesh": {"w": 8, "h": 4}}
    entry = {"topology": name, "rank_per": "pe", "world_size": size}
    plan = WiredTable(config({**settings, f"algorithms.{ALLREDUCE}.topology": name, **under_entry(entry)}))
    assert plan.world_size == size
    writers = Counter(e.peer.rx_base_pa for own in plan.entries.values() for e in own if e.can_send)
    assert set(writers.values()) <= {1}
    received = [e for own in plan.entries.values() for e in own if not e.can_send]
    assert len(received) == (size if name == "ring_1d_unidir" and size > 1 else 0)
    assert all(writers[e.my_rx_base_pa] == 1 for e in received)
    assert plan.hbm_room_bytes == plan.system.capacities["hbm"]


def under_entry(entry: dict[str, object]) -> dict[str, object]:
    return {f"algorithms.{ALLREDUCE}.{key}": value for key, value in entry.items()}


class WiredTable(Plan):
    """A plan by the configured table; without the built-in algorithm's own wiring."""

    def _neighbour_table(self) -> NeighbourTable:
        return table(self.algorithm.entry.topology, self.world_size)


@pytest.mark.parametrize("name", ["ring_1d", "mesh_2d", "mesh_2d_no_wrap"])
@pytest.mark.parametrize("size", [2, 4, 9, 16])
def test_a_dropped_direction_leaves_the_others_as_they_were(name: str, size: int) -> None:
    """Pattern A of ADR-0023: any one direction of one rank left out, and the rest pair as before."""
    if size not in sizes_of(name):
        return
    whole = table(name, size)
    before = pair_rings(whole)
    for rank in whole:
        for gone in whole[rank]:
            wiring = {**whole, rank: {way: peer for way, peer in whole[rank].items() if way != gone}}
            after = pair_rings(wiring)
            assert after == {sender: ring for sender, ring in before.items() if sender != Ring(rank, gone)}


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_a_tree_that_only_broadcasts(size: int) -> None:
    """A hook leaves every parent out; a child still receives there."""
    whole = table("tree_binary", size)
    downwards = {r: {way: peer for way, peer in m.items() if way != "parent"} for r, m in whole.items()}
    pairs = pair_rings(downwards)
    assert pairs == {s: ring for s, ring in pair_rings(whole).items() if s.direction != "parent"}
    assert sorted(pairs.values()) == [Ring(rank, "parent") for rank in range(1, size)]


def test_a_hook_adds_the_direction_back_to_a_one_way_ring() -> None:
    """A hook may add W: then both directions are used, each with its own ring."""
    both = {rank: {"E": (rank + 1) % 3, "W": (rank - 1) % 3} for rank in range(3)}
    assert pair_rings(both, one_way=True) == pair_rings(both)


# --- which PEs the ranks are ----------------------------------------------------------------------------------

PER = [
    ("none", None, "cube", 2 * 4),
    ("custom", None, "cube", 2 * 4),
    ("ring_1d", None, "pe", 2 * 4 * 3),
    ("tree_binary", None, "pe", 2 * 4 * 3),
    ("ring_1d", "cube", "cube", 2 * 4),
    ("ring_1d", "sip", "sip", 2),
    ("none", "pe", "pe", 2 * 4 * 3),
    ("none", "sip", "sip", 2),
]


@pytest.mark.ideal
@pytest.mark.parametrize(("topology", "rank_per", "kind", "count"), PER)
@pytest.mark.parametrize("world_size", [None, 1, 2])
def test_places_of_a_plan(topology: str, rank_per: str | None, kind: str, count: int, world_size: int | None) -> None:
    """A cube by ADR-0032, a PE by ADR-0023 D11, in order of SIP, cube, PE; the first ``world_size``."""
    size = {"cube.pes": 3, "sip.cube_mesh": {"w": 2, "h": 2}}
    entry = under_entry({"topology": topology, "rank_per": rank_per, "world_size": world_size})
    plan = WiredTable(config({**size, **entry}))
    pes, cubes = (3 if kind == "pe" else 1), (1 if kind == "sip" else 4)
    every = [PePlace(sip, cube, pe) for sip in range(2) for cube in range(cubes) for pe in range(pes)]
    assert len(every) == count
    assert plan.pe_of_rank == every[: world_size or count]
    assert plan.world_size == len(plan.pe_of_rank)
    assert plan.rank_of == {place: rank for rank, place in enumerate(plan.pe_of_rank)}
    assert set(plan.entries) == set(plan.pe_of_rank)


def canonical(**entry: object) -> str:
    resolved = config(under_entry(entry))
    return json.encode(canonical_algorithm(resolved, ALLREDUCE), order="sorted").decode()


def test_the_same_wiring_has_the_same_digest_and_another_has_another() -> None:
    """Written out or left out; the usual wiring adds nothing, so that older digests stay valid."""
    usual = canonical()
    assert canonical(rank_per="cube", world_size=32) == usual == canonical(topology="custom")
    assert canonical(opposites={"W": "E"}) == usual
    assert canonical(opposites={"Up": "Down"}) == canonical(opposites={"Down": "Up", "E": "W"})
    assert len(json.decode(usual)) == 3
    assert "header" not in usual == canonical(vc_chunk_header_bytes=0)
    others = [
        canonical(vc_chunk_header_bytes=16),
        canonical(opposites={"Up": "Down"}),
        canonical(rank_per="pe"),
        canonical(rank_per="sip"),
        canonical(world_size=31),
        canonical(topology="ring_1d"),
        canonical(topology="ring_1d_unidir"),
        canonical(topology="ring_1d", rank_per="cube"),
        canonical(topology="ring_1d", world_size=2),
    ]
    assert len({usual, *others}) == 1 + len(others)
    assert canonical(topology="ring_1d", rank_per="pe", world_size=256) == canonical(topology="ring_1d")


@pytest.mark.parametrize("word", [TL.rank, TL.world_size])
def test_rank_of_a_pe_without_one_is_an_error(word: object) -> None:
    bench = Bench(WiredPlan(config(ONE_SIP), [PePlace(0, 0, 0)], {0: {}}))
    bench.kernel(1, 3, word)  # type: ignore[arg-type]
    message = r"^the PE \(0, 1, 3\) \(SIP, cube, PE\) has no rank; rank_per and world_size select the ranks$"
    with pytest.raises(KernelError, match=message):
        bench.run()


def test_every_pe_of_sixteen_sips() -> None:
    """2,048 ranks over PEs, cubes and SIPs are installed whole."""
    system = system_of(config({"system.sips.count": 16}))
    size = 16 * 16 * 8
    places = [PePlace(sip, cube, pe) for sip in range(16) for cube in range(16) for pe in range(8)]
    plan = install(system, effective_ipcq(system.resolved, ALLREDUCE), places, table("ring_1d", size))
    check_endpoints(plan, "tcm")
    assert sum(map(len, plan.values())) == 2 * size
