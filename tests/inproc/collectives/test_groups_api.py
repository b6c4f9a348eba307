"""The names of ``torch.distributed``: lists of tensors, views, messages between two ranks, ranks of groups."""

from itertools import pairwise, permutations

import pytest
from group_runs import rows, run_groups
from sweeps import crossed, some

SETUP = """
    n, size = {n}, world_size
    layout = dict(dp=DPPolicy("row_wise", "row_wise", {cubes}, {pes}))
    rng = [np.random.default_rng(each) for each in range(size)]
    every = [each.integers(-99, 99, (size, n)).astype(np.int32) for each in rng]
    def room(*shape):
        return torch.zeros(shape, dtype="i32", **layout)
    def on(array):
        return room(*array.shape).copy_(torch.from_numpy(array))
    def same(tensor, array):
        np.testing.assert_array_equal(tensor.numpy().reshape(-1), np.asarray(array).reshape(-1))
    mine, before = on(every[rank][0]), (rank - 1) % size
"""
LISTS = """
    lists = [room(n) for _ in range(size)]
    dist.all_gather(lists, mine)
    one = room(size * n)
    dist.all_gather_into_tensor(one, mine)
    for other in range(size):
        same(lists[other], every[other][0])
        np.testing.assert_array_equal(one.numpy()[other * n : (other + 1) * n], every[other][0])
    parts = [on(every[rank][other]) for other in range(size)]
    out = room(n)
    dist.reduce_scatter(out, parts, op=dist.ReduceOp.SUM)
    same(out, sum(each[rank] for each in every))
    dist.reduce_scatter_tensor(out, on(every[rank].reshape(-1)), dist.ReduceOp.MAX)
    same(out, np.maximum.reduce([each[rank] for each in every]))
    dist.gather(mine, lists if rank == 1 else None, dst=1)
    dist.scatter(out, parts if rank == 2 else None, src=2)
    same(out, every[2][rank])
    dist.all_to_all(lists, parts)
    single = room(size * n)
    dist.all_to_all_single(single, on(every[rank].reshape(-1)), [n] * size, [n] * size)
    for other in range(size):
        same(lists[other], every[other][rank])
        np.testing.assert_array_equal(single.numpy()[other * n : (other + 1) * n], every[other][rank])
"""
NAMES = [("all_gather", 2), ("reduce_scatter", 2), ("gather", 1), ("scatter", 1), ("all_to_all", 2)]


@pytest.mark.parametrize(("n", "cubes", "pes"), [(7, 1, 1), (2000, 2, 2), (12, 2, 1)])
def test_lists_of_tensors(tmp_path, n, cubes, pes):
    done = run_groups(tmp_path, SETUP.format(n=n, cubes=cubes, pes=pes) + LISTS, sips=3)
    expected = [name for name, times in NAMES for _ in range(times)]
    assert [(name, wrong, checked) for name, _, wrong, checked in rows(done)] == [(name, 0, True) for name in expected]
    assert {row["count"] for row in done.document["runs"]} == {3 * n}


IN_PLACE = """
    whole = on(every[rank].reshape(-1))
    part = whole.chunk(size)[rank]
    dist.all_gather_into_tensor(whole, part)
    same(whole, [every[other][other] for other in range(size)])
    whole.copy_(torch.from_numpy(every[rank].reshape(-1)))
    dist.reduce_scatter_tensor(part, whole)
    same(part, sum(each[rank] for each in every))
    same(whole.chunk(size)[before], every[rank][before])
    whole.copy_(torch.from_numpy(every[rank].reshape(-1)))
    dist.all_reduce(whole.narrow(0, n, n))
    same(whole, [sum(each[1] for each in every) if row == 1 else every[rank][row] for row in range(size)])
"""


@pytest.mark.parametrize(("n", "cubes"), [(7, 1), (300, 1), (300, 2)])
def test_in_place(tmp_path, n, cubes):
    """Source or result is a part of the other tensor; with two cubes a part is several blocks, or lies in one."""
    done = run_groups(tmp_path, SETUP.format(n=n, cubes=cubes, pes=1) + IN_PLACE, sips=4)
    assert [(wrong, checked) for _, _, wrong, checked in rows(done)] == [(0, True)] * 3


PAIRS = """
    got, n_ops = [room(n) for _ in range(size)], 2 * (size - 1)
    first, second = dist.isend(mine, (rank + 1) % size), dist.irecv(got[0], before)
    assert not second.is_completed()
    second.wait()
    first.wait()
    same(got[0], every[before][0])
    others = [each for each in range(size) if each != rank]
    def op(peer, sends):
        return dist.P2POp(dist.isend, mine, peer) if sends else dist.P2POp(dist.irecv, got[peer], peer)
    ops = [op(peer, sends) for sends in (True, False) for peer in others]
    np.random.default_rng(rank + n).shuffle(ops)
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for peer in others:
        same(got[peer], every[peer][0])
    if rank < 2:
        for number in range(5):
            data = on(every[0][0] + number)
            if rank == 0:
                dist.send(data, 1, tag=number)
            else:
                assert dist.recv(got[0], 0, tag=number) == 0
                same(got[0], every[0][0] + number)
"""


@pytest.mark.parametrize("n", [3, 12000])
def test_messages_between_two_ranks(tmp_path, n):
    """Batches in any order on every rank; those of 12,000 elements do not fit the rings by far."""
    done = run_groups(tmp_path, SETUP.format(n=n, cubes=1, pes=1) + PAIRS, "--check-invariants", sips=4)
    told = rows(done)
    assert len(told) == 4 + 12 + 5
    assert {(name, wrong, checked) for name, _, wrong, checked in told} == {("send_recv", 0, True)}
    assert [group for _, group, _, _ in told[-5:]] == [[0, 1]] * 5


RANKS = """
    group = dist.new_group([3, 1])
    assert dist.group.WORLD is not None and dist.get_world_size(dist.group.WORLD) == 4
    if rank in (1, 3):
        assert (dist.get_rank(group), dist.get_world_size(group)) == ([3, 1].index(rank), 2)
        assert dist.get_process_group_ranks(group) == [3, 1]
        assert (dist.get_group_rank(group, 1), dist.get_global_rank(group, 0)) == (1, 3)
    else:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        assert dist.all_reduce(room(4), group=group) is None
    own, groups = dist.new_subgroups(2)
    assert [dist.get_process_group_ranks(each) for each in groups] == [
        [0, 1] if rank < 2 else [], [2, 3] if rank >= 2 else []
    ]
    dist.all_reduce(mine, group=own)
    same(mine, every[rank][0] + every[rank ^ 1][0])
    own, groups = dist.new_subgroups(1, group=group)
    assert [dist.get_process_group_ranks(each) for each in groups] == [[each] * (rank == each) for each in (3, 1)]
    assert own is groups[(3, 1).index(rank)] if rank in (1, 3) else own == dist.GroupMember.NON_GROUP_MEMBER
    own, _ = dist.new_subgroups(2)
    works = [dist.barrier(own, async_op=True), dist.barrier()]
    works[0].wait()
"""


def test_ranks_of_groups(tmp_path):
    done = run_groups(tmp_path, SETUP.format(n=4, cubes=1, pes=1) + RANKS)
    assert [group for _, group, _, _ in rows(done)] == [[0, 1], [2, 3]]


LATE = """
    def burn(tl):
        for _ in range(200):
            tl.zeros(4096, "f32") + 1
    if rank == 2:
        torch.launch(burn, pes=[0])
    dist.barrier()
    dist.all_reduce(mine)
"""


def test_a_barrier_waits_for_the_last_rank(tmp_path):
    done = run_groups(tmp_path, SETUP.format(n=4, cubes=1, pes=1) + LATE)
    burnt = [launch for launch in done.document["launches"] if launch["name"] == "burn"]
    reduced = [launch for launch in done.document["launches"] if launch["name"] == "all_reduce" and launch["run"] == 0]
    assert len(reduced) == 4
    assert min(launch["start_ns"] for launch in reduced) > burnt[0]["end_ns"] > 10_000


LAYOUTS = {
    "one PE": (700, 1, 1),
    "a PE of each cube": (700, 2, 1),
    "all PEs": (800, 1, 4),
    "two workers": (12000, 1, 4),
}
SEVERAL = """
    for n, cubes, pes in {layouts}:
        data = np.arange(n, dtype=np.int32) * 3 + n
        tensor = torch.zeros((n,), dtype="i32", dp=DPPolicy("row_wise", "row_wise", cubes, pes))
        for source in (0, 1):
            if rank == source:
                dist.send(tensor.copy_(torch.from_numpy(data + source)), 1 - source)
            else:
                dist.recv(tensor.fill_(0), source)
                np.testing.assert_array_equal(tensor.numpy(), data + source)
"""


@pytest.mark.parametrize("names", some(permutations(LAYOUTS, 2), *pairwise(LAYOUTS)), ids=" then ".join)
def test_messages_of_several_layouts_between_two_ranks(tmp_path, names):
    """The one worker of "all PEs" is PE 2, between two PEs that could receive."""
    body = SEVERAL.format(layouts=[LAYOUTS[name] for name in names])
    few = ("--set", "cube.pes=4", "--set", "defaults.workers=2", "--check-invariants")
    told = rows(run_groups(tmp_path, body, *few, sips=2))
    assert told == [("send_recv", ranks, 0, True) for _ in names for ranks in ([0, 1], [1, 0])]


BATCH = """
    every = [dist.new_group(range(size), pes=pes) for pes in {pes}]
    works, expected = [], []
    def op(peer, group, sends):
        value = 100 * (rank if sends else peer) + 10 * (peer if sends else rank) + group
        tensor = room(n).fill_(value if sends else -1)
        expected.append((tensor, value))
        return dist.P2POp(dist.isend if sends else dist.irecv, tensor, peer, every[group])
    groups, others = range(len(every)), [each for each in range(size) if each != rank]
    ops = [op(peer, group, sends) for peer in others for group in groups for sends in (True, False)]
    np.random.default_rng(rank).shuffle(ops)
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert all((tensor.numpy() == value).all() for tensor, value in expected)
"""


@pytest.mark.parametrize(("sips", "groups"), crossed([2, 4, 3], [(1, [[]]), (2, [[0]]), (2, [[], []])]))
def test_batches_of_messages_where_a_pe_sends_and_receives(tmp_path, sips, groups):
    """Messages that do not fit the rings by far; those of two groups share PEs, and ranks list them in any order."""
    n_pes, pes = groups
    body = SETUP.format(n=12000, cubes=1, pes=1) + BATCH.format(pes=pes)
    told = rows(run_groups(tmp_path, body, "--set", f"cube.pes={n_pes}", "--check-invariants", sips=sips))
    assert len(told) == sips * (sips - 1) * len(pes)
    assert all((wrong, checked) == (0, True) for _, _, wrong, checked in told)


@pytest.mark.parametrize("pes", [[], [0]])
def test_messages_of_both_directions_between_two_ranks_with_virtual_rings(tmp_path, pes):
    """A PE that sends and receives has the rings of both directions at a time, each mapped once and unmapped again."""
    body = """
        tensor = torch.zeros((9000,), dtype="i32", dp=DPPolicy(num_cubes=1)).fill_(rank)
        for _ in range(2):
            group = dist.new_group([0, 1], pes=PES)
            for turn in range(4):
                if rank == turn % 2:
                    dist.send(tensor.fill_(turn), 1 - rank, group=group)
                else:
                    dist.recv(tensor, 1 - rank, group=group)
                assert (tensor.numpy() == turn).all()
            dist.destroy_process_group(group)
    """.replace("PES", str(pes))
    mmu = "pe_mmu={page_KiB: 4, tlb_entries: 4, walk_ns: 1, virtual_rings: true}"
    told = rows(run_groups(tmp_path, body, "--set", mmu, "--check-invariants", sips=2))
    assert [wrong for _, _, wrong, _ in told] == [0] * 8


STRICT = """
    direct = "algorithm direct cannot run this all_reduce: a rank has 9 directions, and under hw_strict a PE has"
    try:
        dist.all_reduce(mine, algorithm="direct")
        raise AssertionError("nine directions")
    except ValueError as error:
        assert direct in str(error), error
    for group in (None, dist.new_group(list(range(9)))):
        value = on(every[rank][0])
        dist.all_reduce(value, group=group, algorithm="auto" if group is None else "direct")
        if group is None or rank < 9:
            same(value, sum(each[0] for each in every[: 10 if group is None else 9]))
"""


def test_groups_under_hw_strict(tmp_path):
    """Ten ranks, each of which has a direction to every other one in ``direct``, are too many for it; nine are not."""
    body = SETUP.format(n=2000, cubes=1, pes=1) + STRICT
    told = rows(run_groups(tmp_path, body, "--set", "defaults.hw_strict=true", "--check-invariants", sips=10))
    found = [(name, len(group), wrong) for name, group, wrong, _ in told]
    assert found == [("all_reduce", 10, 0), ("all_reduce", 9, 0)]
