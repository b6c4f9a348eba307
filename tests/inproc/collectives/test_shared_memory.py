"""Tensors of a call that share memory: refused by name, unless the collective works in place."""

import pytest
from group_runs import rows, run_groups

SETUP = """
    one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
    alone = [dist.new_group([each]) for each in range(4)][rank]
    whole = torch.zeros((4, 3000), dtype="f32", **one).fill_(rank + 1)
    other = torch.zeros((4, 3000), dtype="f32", **one)
    row = torch.zeros((1, 3000), dtype="f32", **one).fill_(rank + 1)
    parts, others = whole.chunk(4), other.chunk(4)
    mine, beside = parts[rank], parts[rank ^ 1]
    pair = whole.chunk(2)
"""
REFUSED = {
    "all_to_all of a tensor": "dist.all_to_all_single(whole, whole)",
    "all_to_all of its views": "dist.all_to_all(parts, whole)",
    "all_to_all of two lists of the same": "dist.all_to_all(list(parts), list(parts))",
    "all_to_all of one that is shared": "dist.all_to_all([*others[:3], parts[0]], parts)",
    "all_gather, another part": "dist.all_gather(parts, beside)",
    "all_gather, its part in a list of others": "dist.all_gather([parts[0]] + others[1:], parts[0 if rank else 2])"
    " if rank else dist.all_gather([others[0], parts[0], *others[2:]], parts[0])",
    "all_gather, its part twice": "dist.all_gather([mine] * 4, mine)",
    "reduce_scatter, another part": "dist.reduce_scatter(beside, parts)",
    "gather, another part": "dist.gather(parts[1], parts, dst=0) if rank == 0 else dist.gather(row, dst=0)",
    "scatter, another part": "dist.scatter(parts[0], parts, src=2) if rank == 2 else dist.scatter(row, src=2)",
}
ALLOWED = {
    "all_reduce": "dist.all_reduce(whole, algorithm='ring')\nresult, want = whole, [10] * 4",
    "all_reduce of a view": "dist.all_reduce(mine, algorithm='ring')\nresult, want = mine, [10]",
    "broadcast": "dist.broadcast(whole, src=2)\nresult, want = whole, [3] * 4",
    "reduce": "dist.reduce(whole, dst=1)\nresult, want = whole, [10 if rank == 1 else rank + 1] * 4",
    "all_gather": "dist.all_gather(parts, mine)\nresult, want = whole, [1, 2, 3, 4]",
    "all_gather in a list": "dist.all_gather([*others[:rank], mine, *others[rank + 1:]], mine)\n"
    "result, want = mine, [rank + 1]",
    "reduce_scatter": "dist.reduce_scatter(mine, parts)\nresult, want = mine, [10]",
    "gather": "dist.gather(mine, parts if rank == 2 else None, dst=2)\n"
    "result, want = whole, [1, 2, 3, 4] if rank == 2 else [rank + 1] * 4",
    "scatter": "dist.scatter(mine, parts if rank == 2 else None, src=2)\nresult, want = mine, [3]",
    "parts of one tensor": "dist.broadcast(parts[0], src=1)\nresult, want = whole, [2] + [rank + 1] * 3",
    "two halves": "dist.all_to_all_single(pair[0], pair[1], group=alone)\nresult, want = whole, [rank + 1] * 4",
    "alone": "dist.all_to_all_single(whole, whole, group=alone)\nresult, want = whole, [rank + 1] * 4",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    error = run_groups(tmp_path, f"{SETUP}    {REFUSED[case]}\n").outcome.error
    assert error.kind == "exception"
    name = case.split()[0].strip(",")
    assert f"{name}: source and result share memory; give two separate tensors" in error.message


@pytest.mark.parametrize("case", ALLOWED)
def test_allowed(tmp_path, case):
    body = "".join(f"    {line}\n" for line in ALLOWED[case].splitlines())
    check = "    assert result.numpy()[:, 0].tolist() == want and (result.numpy() == result.numpy()[:, :1]).all()\n"
    assert all((wrong, checked) == (0, True) for *_, wrong, checked in rows(run_groups(tmp_path, SETUP + body + check)))
