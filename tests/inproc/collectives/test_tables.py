"""Whole runs on the built-in neighbour tables: rings, grids and trees of SIPs, cubes and PEs, and kernels of a script.

The kernels take the form of ADR-0023 D11: no topology of SIPs in their arguments, ``tl.rank`` in its place. Each sends
slot by slot, so that the number of elements decides how often a ring is filled. The built-in job checks every element.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Run, ccl_file, run, script_file
from sweeps import crossed

from sipsim.core.errors import ConfigError

HEAD = """
def kernel_args(world_size, n_elem, system):
    return world_size, n_elem, system.n_cubes


def kernel(t_ptr, size, n_elem, n_cubes, tl):
    '''One slot after the other: the sum of this rank's rows, then what the ranks make of it, back to these rows.'''
    ways = [way for way in "E W N S parent child_left child_right".split() if tl.has_direction(way)]
    most = tl.ipcq_slots(ways[0])[1] // t_ptr.dtype.itemsize if ways else n_elem
    cube, pe = tl.program_id(1), tl.program_id(0)
    rows = range(n_cubes) if PER == "sip" else [cube]
    for at in range(0, n_elem, most):
        length = min(most, n_elem - at)
        places = [t_ptr + (row * n_elem + at) * t_ptr.dtype.itemsize for row in rows]
        total = tl.load(places[0], length)
        for place in places[1:]:
            total = total + tl.load(place, length)
        total = exchange(total, tl.rank(), tl.world_size(), tl)
        assert tl.world_size() == size
        for place in places:
            tl.store(place, total)
"""

RING = """
def exchange(total, rank, size, tl):
    '''Half of the ring in each direction at once; with an even number the opposite rank is received from the W only.'''
    eastward = westward = total
    for step in range(1, size // 2 + 1):
        both = 2 * step < size
        tl.send("E", eastward)
        if both:
            tl.send("W", westward)
        eastward = tl.recv("W", total.shape, total.dtype)
        total = total + eastward
        if both:
            westward = tl.recv("E", total.shape, total.dtype)
            total = total + westward
    return total
"""

RING_UNIDIR = """
def exchange(total, rank, size, tl):
    moving = total
    for _ in range(size - 1):
        tl.send("E", moving)
        moving = tl.recv("W", total.shape, total.dtype)
        total = total + moving
    assert not tl.has_direction("W")
    return total
"""

GRID = """
def exchange(total, rank, size, tl):
    '''Rows to the E, then columns to the S.'''
    side = int(size**0.5)
    for towards, back in (("E", "W"), ("S", "N")):
        moving = total
        for _ in range(side - 1):
            tl.send(towards, moving)
            moving = tl.recv(back, total.shape, total.dtype)
            total = total + moving
    return total
"""

NO_WRAP = """
def exchange(total, rank, size, tl):
    '''Rows to the E and back, then columns to the S and back.'''
    for towards, back in (("E", "W"), ("S", "N")):
        if tl.has_direction(back):
            total = total + tl.recv(back, total.shape, total.dtype)
        if tl.has_direction(towards):
            tl.send(towards, total)
            total = tl.recv(towards, total.shape, total.dtype)
        if tl.has_direction(back):
            tl.send(back, total)
    return total
"""

TREE = """
def exchange(total, rank, size, tl):
    '''Reduce up, broadcast down.'''
    children = [way for way in ("child_left", "child_right") if tl.has_direction(way)]
    for child in children:
        total = total + tl.recv(child, total.shape, total.dtype)
    if tl.has_direction("parent"):
        tl.send("parent", total)
        total = tl.recv("parent", total.shape, total.dtype)
    for child in children:
        tl.send(child, total)
    return total
"""

KERNELS = {
    "ring_1d": RING,
    "ring_1d_unidir": RING_UNIDIR,
    "mesh_2d": GRID,
    "torus_2d": GRID,
    "mesh_2d_no_wrap": NO_WRAP,
    "tree_binary": TREE,
}


def flags(folder, table: str, per: str, sips: int, mesh: str = "2x1", **entry: object) -> list[object]:
    """A system of ``sips`` SIPs of ``mesh`` cubes each, and an algorithm on a table."""
    source = f"PER = {per!r}\n{HEAD}{KERNELS[table]}"
    width, height = mesh.split("x")
    cubes = ["--set", f"sip.cube_mesh={{w: {width}, h: {height}}}", "--set", "cube.pes=2"]
    return ["--sips", sips, *cubes, *ccl_file(folder, source, topology=table, rank_per=per, **entry)]


def assert_right(done: Run) -> None:
    """Every element is the sum, and no message or credit is left."""
    assert done.outcome.error is None, done.outcome.error.message
    for result in done.document["runs"]:
        assert (result["wrong"], result["checked"]) == (0, True)
    for queue in queues_of(done):
        assert (queue.my_head, queue.my_tail) == (queue.peer_tail_cache, queue.peer_head_cache)


def queues_of(done: Run) -> list:
    return [q for member in done.members for pe in member.chip.sip.pes_in_use() for q in pe.ipcq.queues.values()]


SYSTEMS = {
    "SIPs both ways": ("ring_1d", "sip", (2, 4, 7), ("2x1",)),
    "cubes both ways": ("ring_1d", "cube", (1, 3), ("2x1", "3x1")),
    "one way": ("ring_1d_unidir", "sip", (2, 5), ("2x1",)),
    "cubes one way": ("ring_1d_unidir", "cube", (1,), ("2x1",)),
    "a grid of SIPs": ("mesh_2d", "sip", (1, 4, 9), ("1x1",)),
    "a grid of cubes": ("mesh_2d", "cube", (1,), ("4x4", "1x1")),
    "a grid of cubes of SIPs": ("torus_2d", "cube", (4,), ("2x2",)),
    "a grid of half of the cubes": ("mesh_2d", "cube", (2,), ("4x2",)),
    "SIPs without wrap": ("mesh_2d_no_wrap", "sip", (1, 4), ("2x1",)),
    "cubes without wrap": ("mesh_2d_no_wrap", "cube", (2,), ("4x2",)),
    "a tree of SIPs": ("tree_binary", "sip", (1, 7), ("2x1",)),
    "a tree of cubes": ("tree_binary", "cube", (2,), ("2x2",)),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[object], dict[str, object]]:
    """What :func:`flags` takes for a table, and further flags."""
    table, per, sips, meshes = SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)), "system")]
    count, mesh = draw(st.sampled_from(sips), "SIPs"), draw(st.sampled_from(meshes), "mesh")
    slots, size = draw(st.sampled_from([1, 2, 8, 64]), "slots"), draw(st.sampled_from([4, 16, 256]), "bytes of a slot")
    more: list[object] = ["--dtype", draw(st.sampled_from(["f32", "i32"]), "type")]
    more += ["--n-elem", f"1,{draw(st.sampled_from([slots + 6, slots * size // 4 + 9]), 'elements')}"]
    if count == 4:
        # The wiring does not follow the links: messages between SIPs without a link are routed.
        more += ["--topology", draw(st.sampled_from(["ring_1d", "torus_2d", "mesh_2d_no_wrap"]), "topology")]
    kind = draw(st.sampled_from(["tcm", "hbm", "sram"]), "memory of the rings")
    return more, {"table": table, "per": per, "sips": count, "mesh": mesh, "n_slots": slots, "slot_size": size} | {
        "buffer_kind": kind
    }


@settings(max_examples=4)
@given(call=calls(), mail_seed=st.integers(0, 1000))
def test_every_element_is_right(tmp_path, call, mail_seed: int) -> None:
    """On any table, with any rings; the process group stays SIPs, which the bus bandwidth counts."""
    more, system = call
    words = (*flags(tmp_path, **system), *more)
    done = run(*words)
    assert_right(done)
    sips = system["sips"]
    for row in done.document["runs"]:
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"] * 2 * (sips - 1) / sips)
    assert run(*words, mail_seed=mail_seed).results() == done.results()


def test_a_hook_may_reverse_a_table(tmp_path) -> None:
    """E and W exchanged for every rank."""
    turned = "def neighbors(rank, size, built_in):\n    return {'E': built_in['W'], 'W': built_in['E']}\n"
    source = f"PER = 'sip'\n{HEAD}{RING}{turned}"
    words = ccl_file(tmp_path, source, topology="ring_1d", rank_per="sip")
    done = run("--sips", 4, "--set", "sip.cube_mesh={w: 1, h: 1}", *words, "--n-elem", 9)
    assert_right(done)
    assert {q.direction: q.peer.sip for q in done.members[0].chip.sip.pe(0, 0).ipcq.queues.values()} == {"E": 3, "W": 1}


# --- kernels of a script --------------------------------------------------------------------------------------

IDLE = """
def kernel_args(world_size, n_elem): return ()
def kernel(t_ptr, tl): pass
"""


def launched(folder, worker: str, table: str, *system: object, **entry: object) -> Run:
    """Run a script's worker on an algorithm whose own kernel does nothing."""
    body = "\n    ".join(worker.strip().splitlines())
    script = script_file(folder, f"import numpy as np\ndef worker(rank, world_size, torch):\n    {body}\n")
    return run(*system, *ccl_file(folder, IDLE, topology=table, **entry), script)


def small(sips: int, mesh: str = "{w: 2, h: 1}", pes: int = 2) -> tuple[object, ...]:
    return "--sips", sips, "--set", f"sip.cube_mesh={mesh}", "--set", f"cube.pes={pes}"


SHIFT = """
def shift(x, times, tl):
    at = x + (tl.program_id(1) * 2 + tl.program_id(0)) * 16
    mine = tl.load(at, 4)
    for _ in range(times):
        tl.send("E", mine)
        mine = tl.recv("W", 4, x.dtype)
    tl.store(at, mine)
x = torch.zeros((4, 4), dtype="i32")
x.copy_(torch.from_numpy(np.arange(4).repeat(4).reshape(4, 4) + 4 * rank))
"""


@pytest.mark.parametrize(("table", "slots"), crossed(["ring_1d", "ring_1d_unidir"], [1, 8]))
def test_a_kernel_of_the_script_on_every_pe(tmp_path, table: str, slots: int) -> None:
    """Each of 8 PEs forwards its row three times."""
    body = SHIFT + "assert torch.launch(shift, x, 3) is None\nresult = torch.from_numpy(x.numpy())\nx.copy_(result)"
    done = launched(tmp_path, body, table, *small(2), n_slots=slots, slot_size=16)
    assert done.outcome.error is None, done.outcome.error.message
    rows = np.concatenate([done.tensor(rank) for rank in range(2)])
    np.testing.assert_array_equal(rows, ((np.arange(8) - 3) % 8).repeat(4).reshape(8, 4))


AHEAD = """
def ahead(x, times, slots, tl):
    at = x + tl.program_id(1) * 16
    mine, received = tl.load(at, 1), []
    for i in range(times + slots):
        if i >= slots:
            received.append([int(tl.recv(way, 1, x.dtype).array[0]) for way in ("W", "E")])
        if i < times:
            tl.send("E", mine)
            mine = mine + tl.load(at, 1)
            tl.send("W", mine)
    before, after = (10 ** ((tl.rank() + k) % tl.world_size()) for k in (-1, 1))
    assert received == [[before * (i + 1), after * (i + 2)] for i in range(times)], received
x = torch.zeros((2, 4), dtype="i32")
x.copy_(torch.from_numpy((10 ** (np.arange(2) + 2 * rank)).repeat(4).reshape(2, 4)))
torch.launch(ahead, x, 80, SLOTS)
"""


@pytest.mark.parametrize(("sips", "slots"), crossed([1, 2], [1, 2, 8, 64]))
def test_a_full_bidirectional_ring(tmp_path, sips: int, slots: int) -> None:
    """Two and four ranks, each as far ahead as its neighbours' rings are long; every message in order and from where
    it should be: what goes E is one less than what goes W.
    """
    body = AHEAD.replace("SLOTS", str(slots))
    done = launched(tmp_path, body, "ring_1d", *small(sips), rank_per="cube", n_slots=slots, slot_size=4)
    assert done.outcome.error is None, done.outcome.error.message
    assert {queue.my_head for queue in queues_of(done)} == {80}


def test_launches_started_and_waited_for_later(tmp_path) -> None:
    """One after the other, and time passes only in them."""
    body = SHIFT + (
        "works = [torch.launch(shift, x, n, async_op=True) for n in (1, 2)]\n"
        "assert [work.is_completed() for work in works] == [False, False]\n"
        "assert works[0].wait() is True\n"
        "assert [work.is_completed() for work in works] == [True, False]\n"
        "assert works[1].wait() is True\n"
        "torch.launch(shift, x, 0)\n"
    )
    done = launched(tmp_path, body, "ring_1d", *small(2))
    assert done.outcome.error is None, done.outcome.error.message
    rows = np.concatenate([done.tensor(rank)[:, 0] for rank in range(2)])
    np.testing.assert_array_equal(rows, (np.arange(8) - 3) % 8)


def test_a_launch_beside_a_collective(tmp_path) -> None:
    """Both in one queue, in order. A launch needs no process group, a collective does, and it alone is a run."""
    body = """
def fill(x, value, tl):
    cube = tl.program_id(1)
    handle = tl.load(x + cube * 8, 4)
    for _ in range(value):
        handle = handle + handle
    tl.store(x + cube * 8, handle)
x = torch.ones((2, 4), dtype="f16")
torch.launch(fill, x, 2)
torch.distributed.init_process_group()
work = torch.distributed.all_reduce(x, async_op=True)
torch.launch(fill, x, 1)
assert work.is_completed() and (x.numpy() == 8).all()
assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (rank, 3) == (rank, world_size)
"""
    done = launched(tmp_path, body, "ring_1d", *small(3), rank_per="cube")
    assert done.outcome.error is None, done.outcome.error.message
    assert len(done.document["runs"]) == 1


WHERE = """
seen = []
torch.launch(lambda tl: seen.append((tl.rank(), tl.world_size(), tl.program_id(1), tl.program_id(0))))
assert seen == {expected}[rank], (rank, seen)
"""


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"rank_per": "sip"}, [[(0, 3, 0, 0)], [(1, 3, 0, 0)], [(2, 3, 0, 0)]]),
        ({"rank_per": "sip", "world_size": 2}, [[(0, 2, 0, 0)], [(1, 2, 0, 0)], []]),
        ({"rank_per": "cube", "world_size": 3}, [[(0, 3, 0, 0), (1, 3, 1, 0)], [(2, 3, 0, 0)], []]),
        ({"world_size": 5}, [[(0, 5, 0, 0), (1, 5, 0, 1), (2, 5, 1, 0), (3, 5, 1, 1)], [(4, 5, 0, 0)], []]),
        ({"world_size": 1}, [[(0, 1, 0, 0)], [], []]),
    ],
)
def test_where_kernels_run(tmp_path, entry: dict[str, object], expected: list) -> None:
    """On the places of this SIP, in their order; a SIP without any continues at once."""
    done = launched(tmp_path, WHERE.format(expected=expected), "ring_1d", *small(3), **entry)
    assert done.outcome.error is None, done.outcome.error.detail


def test_a_sip_without_ranks_forwards_for_the_others(tmp_path) -> None:
    """Ranks 0 to 3 are the cubes of the ends of a line of five SIPs; a collective ends at once on the others."""
    cables = ", ".join(f"{{a: {a}, a_port: E, b: {b}, b_port: W}}" for a, b in ((0, 2), (2, 3), (3, 4), (4, 1)))
    line = ("--set", f"system.sips={{topology: custom, custom_links: [{cables}]}}")
    source = f"PER = 'cube'\n{HEAD}{TREE}"
    words = ccl_file(tmp_path, source, topology="tree_binary", rank_per="cube", world_size=4, n_slots=1, slot_size=16)
    script = script_file(
        tmp_path,
        "def worker(rank, world_size, torch):\n    torch.distributed.init_process_group()\n"
        "    torch.distributed.all_reduce(torch.full((2, 20), rank + 1, dtype='i32'))\n",
    )
    plain = run(*small(5), *line, *words, script)
    assert plain.outcome.error is None, plain.outcome.error.message
    assert [plain.tensor(rank).tolist() for rank in range(5)] == [
        *[[[2 * (1 + 2)] * 20] * 2] * 2,
        *[[[rank + 1] * 20] * 2 for rank in (2, 3, 4)],
    ]
    assert {len(member.chip.sip.pes_in_use()) for member in plain.members[2:]} == {0}
    for seed in (1, 2, 3):
        assert run(*small(5), *line, *words, script, mail_seed=seed).results() == plain.results()


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.launch('k', 3)", "TypeError: torch.launch needs a function kernel(*args, tl), not 'k'"),
        ("torch.launch(None)", "TypeError: torch.launch needs a function kernel(*args, tl), not None"),
        ("torch.launch(print, torch.from_numpy([1]))", "TypeError: torch.launch: a host tensor "),
        ("torch.launch(lambda tl: torch.launch(print))", "RuntimeError: a kernel cannot launch kernels or wait"),
        (
            "torch.launch(lambda tl: torch.launch(print, async_op=True))",
            "RuntimeError: a kernel cannot launch kernels or wait",
        ),
        ("torch.launch(lambda x, tl: None)", "TypeError: torch.launch: <lambda>(x, tl) cannot take 1 "),
    ],
)
def test_what_cannot_be_launched(tmp_path, call: str, message: str) -> None:
    """One line, before or when it runs."""
    done = launched(tmp_path, call, "ring_1d", *small(2))
    assert done.outcome.error is not None
    assert (done.outcome.error.kind, done.document["status"]) == ("exception", "failed")
    assert message in done.outcome.error.message


def test_a_table_that_does_not_fit_is_named(tmp_path) -> None:
    """Through the command line, with the file that set it."""
    with pytest.raises(ConfigError, match=r"mine.yaml: algorithms.mine.topology = mesh_2d: needs a square number"):
        run(*ccl_file(tmp_path, IDLE, topology="mesh_2d", world_size=7), "--n-elem", 1)
