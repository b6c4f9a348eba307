"""Calls of ranks that do not fit each other: an error that names both ranks' calls, in plain English; never a hang."""

import re

import pytest
from group_runs import run_groups

SETUP = """
    one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
    def zeros(n, dtype="f32", **layout):
        return torch.zeros((n,), dtype=dtype, **(layout or one))
    odd = rank == 2
"""
SAME = "; every rank must make the same calls in the same order"
WORLD = "ranks disagree on call 1 of the group of all ranks: "
GROUP = "ranks disagree on call 1 of group 1 of ranks 1 to 3: "
SUM = "all_reduce of 8 f32 (sum, ring)"
ODD = {
    "collective": (
        'dist.broadcast(zeros(8), algorithm="direct") if odd else dist.all_reduce(zeros(8), algorithm="ring")',
        "broadcast of 8 f32 (root 0, direct)",
    ),
    "size": ('dist.all_reduce(zeros(12 if odd else 8), algorithm="ring")', "all_reduce of 12 f32 (sum, ring)"),
    "size, with more messages": (
        'dist.all_reduce(zeros(40000 if odd else 8), algorithm="ring")',
        "all_reduce of 40000 f32 (sum, ring)",
    ),
    "type of the same size": (
        'dist.all_reduce(zeros(8, "i32" if odd else "f32"), algorithm="ring")',
        "all_reduce of 8 i32 (sum, ring)",
    ),
    "operator": (
        'dist.all_reduce(zeros(8), op="max" if odd else "sum", algorithm="ring")',
        "all_reduce of 8 f32 (max, ring)",
    ),
    "algorithm": (
        'dist.all_reduce(zeros(8), algorithm="bidirectional_ring" if odd else "ring")',
        "all_reduce of 8 f32 (sum, bidirectional_ring)",
    ),
    "algorithm, whose queue pairs others have not": (
        'dist.all_reduce(zeros(4096 if odd else 8), algorithm="one_shot" if odd else "ring")',
        "all_reduce of 4096 f32 (sum, one_shot)",
    ),
    "order of two calls": (
        "calls = [dist.all_reduce, dist.broadcast]\n"
        'for call in reversed(calls) if odd else calls:\n    call(zeros(8), algorithm="ring")',
        "broadcast of 8 f32 (root 0, ring)",
    ),
}
CASES = {what: (body, f"{WORLD}rank 0 calls {SUM}, rank 2 {call}{SAME}") for what, (body, call) in ODD.items()}
CASES |= {
    "root": (
        'dist.broadcast(zeros(8), src=1 if odd else 3, algorithm="tree")',
        f"{WORLD}rank 0 calls broadcast of 8 f32 (root 3, tree), rank 2 broadcast of 8 f32 (root 1, tree){SAME}",
    ),
    "layout": (
        'dist.all_reduce(zeros(8, dp=DPPolicy(num_cubes=2)) if odd else zeros(8), algorithm="ring")',
        f"{WORLD}rank 0 calls {SUM}, on cube 0, PE 0 with shards of 8 and 8 elements, "
        f"rank 2 {SUM}, on cubes 0-1, PE 0 with shards of 4 and 4 elements{SAME}",
    ),
    "in a group": (
        """
        group = dist.new_group([1, 2, 3])
        dist.all_reduce(zeros(9 if odd else 8), group=group, algorithm="ring")
        """,
        f"{GROUP}rank 1 calls {SUM}, rank 2 all_reduce of 9 f32 (sum, ring){SAME}",
    ),
    "other ranks of a new group": (
        "dist.all_reduce(zeros(8), group=dist.new_group([0, 2] if odd else [2, 0]))",
        f"ranks disagree on their groups: rank 0 calls new_group([2, 0]), rank 2 new_group([0, 2]){SAME}",
    ),
    "groups in another order": (
        """
        ranks = [[0, 1], [2, 3]]
        groups = [dist.new_group(each) for each in (reversed(ranks) if odd else ranks)]
        dist.all_reduce(zeros(8), group=groups[rank // 2 ^ odd])
        """,
        f"ranks disagree on their groups: rank 0 calls new_group([0, 1]), rank 2 new_group([2, 3]){SAME}",
    ),
    "a group that is destroyed too early": (
        """
        groups = [dist.new_group([0, 2]), dist.new_group([0, 2])]
        dist.destroy_process_group(groups[1] if odd else groups[0])
        """,
        "ranks disagree on their groups: rank 0 calls destroy_process_group(group 1), "
        f"rank 2 destroy_process_group(group 2){SAME}",
    ),
}
CASES |= {
    "a group that one rank does not make": (
        "if not odd:\n    dist.new_group([0, 1])",
        f"ranks disagree on their groups: rank 0 calls new_group([0, 1]), and rank 2 does not{SAME}",
    ),
    "a second group that only one rank makes": (
        "dist.destroy_process_group(dist.new_group([1, 3]))\nif odd:\n    dist.new_group(None)",
        f"ranks disagree on their groups: rank 2 calls new_group([0, 1, 2, 3]), and rank 0 does not{SAME}",
    ),
}
SENT = "send/recv of 8 f32 from rank 0 to rank 2"
PAIR = f"ranks disagree on message 1 of those from rank 0 to rank 2: rank 0 calls {SENT}"
CASES |= {
    f"{what} of a message": (
        f"if rank in (0, 2):\n    dist.recv({got}) if odd else dist.send(zeros(8), 2)",
        f"{PAIR}, rank 2 send/recv of {told}{SAME}",
    )
    for what, got, told in (
        ("size", "zeros(9), 0", "9 f32 from rank 0 to rank 2"),
        ("type", "zeros(8, 'i32'), 0", "8 i32 from rank 0 to rank 2"),
        ("tag", "zeros(8), 0, tag=3", "8 f32 from rank 0 to rank 2, tag 3"),
    )
}
ALONE = {
    "a broadcast from its root": (0, "dist.broadcast(zeros(8), src=0)", "broadcast of 8 f32 (root 0, direct)", 1),
    "a scatter from its root": (2, "dist.scatter(zeros(2), zeros(8), src=2)", "scatter of 2 f32 (root 2, direct)", 0),
    "a reduce from another": (1, "dist.reduce(zeros(8), dst=0)", "reduce of 8 f32 (sum, root 0, direct)", 0),
}
CASES |= {
    f"{what} that no other rank calls": (
        f"if rank == {rank}:\n    {call}",
        f"{WORLD}rank {rank} calls {told}, and rank {other} does not{SAME}",
    )
    for what, (rank, call, told, other) in ALONE.items()
}
CASES |= {
    "a last call in a group": (
        """
        group = dist.new_group([3, 1, 2])
        if rank != 0:
            dist.all_reduce(zeros(8), group=group, algorithm="ring")
        if rank == 3:
            dist.broadcast(zeros(8), src=3, group=group)
        """,
        "ranks disagree on call 2 of group 1 of ranks 3, 1, 2: rank 3 calls broadcast of 8 f32 "
        f"(root 3, bidirectional_ring), and rank 1 does not{SAME}",
    ),
    "a second message that nobody receives": (
        """
        if rank == 0:
            dist.send(zeros(8), 2)
            dist.send(zeros(8), 2, tag=5)
        if rank == 2:
            dist.recv(zeros(8), 0)
        """,
        f"ranks disagree on message 2 of those from rank 0 to rank 2: rank 0 calls {SENT}, tag 5, and rank 2 does not: "
        f"nobody has received its 32 B{SAME}",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_that_differ(tmp_path, case):
    body, message = CASES[case]
    done = run_groups(tmp_path, SETUP + _indented(body))
    error = done.outcome.error
    assert (done.outcome.exit_code, error.kind, error.message) == (3, "CollectiveMismatch", message)
    assert "InvariantViolation" not in [each.kind for each in done.outcome.also]


def _indented(body: str) -> str:
    lines = body.strip("\n").splitlines()
    least = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "".join(f"    {line[least:]}\n" for line in lines)


ABSENT = {
    "a message that is not sent": (
        "if odd:\n    dist.recv(zeros(8), 0)",
        "rank 0 has not called send/recv of 8 f32 from rank 0 to rank 2, message 1 of those from rank 0 to rank 2 "
        "(its script has ended); rank 2 waits in it",
    ),
    "a rank of all": (
        'if not odd:\n    dist.all_reduce(zeros(8), algorithm="ring")',
        f"rank 2 has not called {SUM}, call 1 of the group of all ranks (its script has ended); "
        "ranks 0 to 1, 3 wait in it",
    ),
    "a rank of a group": (
        """
        group = dist.new_group([3, 1, 2])
        if rank in (1, 3):
            dist.all_reduce(zeros(8), group=group, algorithm="ring")
        """,
        f"rank 2 has not called {SUM}, call 1 of group 1 of ranks 3, 1, 2 (its script has ended); "
        "ranks 1, 3 wait in it",
    ),
    "the second call": (
        'for _ in range(1 + (rank < 2)):\n    dist.all_reduce(zeros(8), algorithm="ring")',
        f"ranks 2 to 3 have not called {SUM}, call 2 of the group of all ranks (their scripts have ended); "
        "ranks 0 to 1 wait in it",
    ),
    "two groups in opposite orders": (
        """
        groups = [dist.new_group([0, 1]), dist.new_group([1, 0])]
        for group in groups if rank else reversed(groups):
            if rank < 2:
                dist.all_reduce(zeros(8), group=group, algorithm="ring")
        """,
        f"rank 0 has not called {SUM}, call 1 of group 1 of ranks 0, 1; rank 1 waits in it; "
        f"rank 1 has not called {SUM}, call 1 of group 2 of ranks 1, 0; rank 0 waits in it",
    ),
}


FIRST, SECOND, THIRD = (f"{SUM}, call 1 of group {number} of ranks" for number in (1, 2, 3))
CROSSED = {
    "two groups": (
        """
        groups = [dist.new_group([0, 1]), dist.new_group([1, 0])]
        for group in groups if rank else reversed(groups):
            if rank < 2:
                dist.all_reduce(zeros(8), group=group, algorithm="ring", async_op=True)
        """,
        f"rank 0 has called {SECOND} 1, 0, before {FIRST} 0, 1; rank 1 has called {FIRST} 0, 1, before {SECOND} 1, 0",
    ),
    "three groups of two ranks": (
        """
        groups = [dist.new_group(each) for each in ([0, 1], [1, 2], [2, 0])]
        for group in ([0, 2], [1, 0], [2, 1], [])[rank]:
            dist.all_reduce(zeros(8), group=groups[group], algorithm="ring", async_op=True)
        """,
        f"rank 1 has called {SECOND} 1, 2, before {FIRST} 0, 1; rank 2 has called {THIRD} 2, 0, before {SECOND} 1, 2; "
        f"rank 0 has called {FIRST} 0, 1, before {THIRD} 2, 0",
    ),
    "a call that waits for them": (
        """
        groups = [dist.new_group([0, 1]), dist.new_group([1, 0])]
        for group in groups if rank else reversed(groups):
            if rank < 2:
                work = dist.all_reduce(zeros(8), group=group, algorithm="ring", async_op=True)
        if rank < 2:
            work.wait()
        dist.all_reduce(zeros(8), algorithm="ring")
        """,
        f"rank 0 has called {SECOND} 1, 0, before {FIRST} 0, 1; rank 1 has called {FIRST} 0, 1, before {SECOND} 1, 0",
    ),
}


@pytest.mark.parametrize("case", CROSSED)
def test_orders_that_cross(tmp_path, case):
    body, start = CROSSED[case]
    error = run_groups(tmp_path, SETUP + _indented(body)).outcome.error
    assert error.kind == "IpcqDeadlock"
    assert error.message.startswith(f"{start}{SAME}; ")


def test_calls_on_pes_of_their_own_may_cross(tmp_path):
    body = """
        groups = [dist.new_group([0, 1], pes=[0]), dist.new_group([1, 0], pes=[1])]
        for group in groups if rank else reversed(groups):
            if rank < 2:
                dist.all_reduce(zeros(8), group=group, algorithm="ring", async_op=True)
    """
    assert run_groups(tmp_path, SETUP + _indented(body)).outcome.error is None


@pytest.mark.parametrize(
    "body",
    [
        "if odd:\n    raise ValueError('no')\ndist.new_group([0])",
        "if rank == 0:\n    dist.send(zeros(8), 2)\nif odd:\n    raise ValueError('no')",
    ],
    ids=["before it makes a group", "before it receives"],
)
def test_a_rank_that_fails_before_is_told_with_its_failure(tmp_path, body):
    error = run_groups(tmp_path, SETUP + _indented(body)).outcome.error
    assert error.message.startswith("ValueError: no (rank 2, host script")


@pytest.mark.parametrize("case", ABSENT)
def test_a_rank_that_never_calls(tmp_path, case):
    body, start = ABSENT[case]
    done = run_groups(tmp_path, SETUP + _indented(body))
    error = done.outcome.error
    assert (done.outcome.exit_code, error.kind) == (3, "IpcqDeadlock")
    assert re.sub("; [0-9]+ PEs? waits? and nothing can happen any more, at .*", "", error.message) == f"{start}{SAME}"
