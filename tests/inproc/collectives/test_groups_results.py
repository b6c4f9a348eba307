"""Rows and checks of collectives in groups: by the ranks of the group, bit for bit, in the algorithm's order."""

from unittest.mock import patch

import pytest
from group_runs import rows, run_groups
from sweeps import crossed

from launcher.report import checks as recorded_io
from sipsim.chips.ahbm.collectives import kernel

DISJOINT = """
    groups = [dist.new_group([0, 1]), dist.new_group([3, 2])]
    tensor = device(torch, np.arange(100, dtype=np.float32) + rank)
    dist.all_reduce(tensor, group=groups[rank // 2])
    if rank >= 2:
        result = torch.zeros((200,), dtype="f32")
        dist.all_gather(result, tensor, group=groups[1])
        assert (result.numpy()[:100] == tensor.numpy()).all()
    dist.all_reduce(tensor)
"""


def test_rows_of_disjoint_groups(tmp_path):
    done = run_groups(tmp_path, DISJOINT)
    *pairs, gathered, last = rows(done)
    assert sorted(pairs) == [("all_reduce", [0, 1], 0, True), ("all_reduce", [3, 2], 0, True)]
    assert [gathered, last] == [
        ("all_gather", [3, 2], 0, True),
        ("all_reduce", [0, 1, 2, 3], 0, True),
    ]
    *both, gather, _ = done.document["runs"]
    near, far = sorted((0, 1), key=lambda at: both[at]["group"])
    first, second = both[near], both[far]
    assert first["time_ns"] == second["time_ns"]
    assert (gather["count"], gather["bytes"]) == (200, 800)
    assert first["links"] != []
    assert {link["name"][0] for link in first["links"]} == {"0", "1"}
    told = {(launch["rank"], launch["run"]) for launch in done.document["launches"]}
    assert told == {(0, near), (1, near), (2, far), (3, far), (2, 2), (3, 2), *((rank, 3) for rank in range(4))}


SPECIAL = """
    bits = np.random.default_rng(rank).integers(0, 2**32, 300, dtype=np.uint32)
    values = bits.view(np.float32).copy()
    values[:8] = [(-0.0, 0.0, np.inf, -np.inf, np.nan, 1e38, -0.0, 65504)[(i + rank) % 8] for i in range(8)]
    with np.errstate(all="ignore"):
        tensor = torch.zeros((300,), dtype="{dtype}").copy_(torch.from_numpy(values))
    dist.all_reduce(tensor, op="{op}", group=dist.new_group([2, 0, 1]))
"""


@pytest.mark.parametrize(
    ("dtype", "op"),
    [*crossed(("bf16", "f16", "f32"), ("sum", "max", "prod", "avg")), ("f32", "min"), ("i32", "sum"), ("i8", "prod")],
)
def test_any_bits_are_compared_exactly(tmp_path, dtype, op):
    """Random bits: NaN, infinities, zeros of both signs, numbers whose sums depend on the order."""
    done = run_groups(tmp_path, SPECIAL.format(dtype=dtype, op=op), sips=3)
    assert rows(done) == [("all_reduce", [2, 0, 1], 0, True)]


def test_an_addition_in_another_order_is_found(tmp_path, monkeypatch):
    """The check is no comparison with a tolerance."""
    combined = kernel.combined
    monkeypatch.setattr(kernel, "combined", lambda op, one, other, tl: combined(op, one + one, other - one, tl))
    done = run_groups(tmp_path, SPECIAL.format(dtype="f32", op="sum"), sips=3)
    assert done.outcome.error.kind == "wrong_numbers"
    assert 0 < done.document["runs"][0]["wrong"] < 900


EVERY = """
    group, how = dist.new_group([3, 1, 2]), dict(algorithm="direct")
    how["group"] = group
    if rank:
        one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
        def values(n):
            return device(torch, np.random.default_rng((rank, n)).normal(size=n).astype(np.float32), **one)
        def room(n):
            return torch.zeros((n,), dtype="f32", **one)
        root = rank == 2
        dist.all_reduce(values(7), **how)
        dist.all_gather(room(21), values(7), **how)
        dist.reduce_scatter(room(5), values(15), op="max", **how)
        dist.broadcast(values(4), src=2, **how)
        dist.reduce(values(9), dst=2, **how)
        dist.gather(values(6), room(18) if root else None, dst=2, **how)
        dist.scatter(room(6), values(18) if root else None, src=2, **how)
        dist.all_to_all(room(12), values(12), **how)
"""
NAMES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all")


def test_every_collective_is_checked(tmp_path):
    """With roots that are not the group's first rank; other ranks of a gather or scatter give one tensor only."""
    done = run_groups(tmp_path, EVERY)
    assert rows(done) == [(name, [3, 1, 2], 0, True) for name in NAMES]
    # The size is that of the whole, also where the group's first rank has a part only.
    assert [row["count"] for row in done.document["runs"]] == [7, 21, 15, 4, 9, 18, 18, 12]


@pytest.mark.parametrize("name", ["reduce", "gather", "all_to_all"])
def test_a_wrong_element_is_found(tmp_path, name):
    """One element is changed in the record of a result: of a root, where only that has one."""

    def spoil(folder, number, rank, when):
        found = load(folder, number, rank, when)
        if when == "out" and rank == 2 and number == NAMES.index(name):
            found.reshape(-1)[-1] += 1
        return found

    load = recorded_io.load
    with patch.object(recorded_io, "load", spoil):
        done = run_groups(tmp_path, EVERY)
    assert [row["wrong"] for row in done.document["runs"]] == [int(each == name) for each in NAMES]
