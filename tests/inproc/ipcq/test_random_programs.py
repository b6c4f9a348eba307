"""Random kernels end, or deadlock, exactly as bounded queues do, in every mode, on one SIP and across several.

``random_programs`` has the generator and the model, ``program_runs`` the comparison. By hand, thousands:

    PYTHONPATH=tests/pure:tests/inproc:. python tests/inproc/ipcq/test_random_programs.py 10000
"""

import sys
import time
from collections import Counter
from itertools import product
from typing import Any

import pytest
from program_runs import Settings, check, run_program
from random_programs import Blocked, Impossible, Op, Program, circle, judge, random_program
from sweeps import crossed, some

MODES = list(product(("tcm", "hbm", "sram"), ("sleep", "poll"), ("fast_path", "fabric", "piggyback", "auto")))
FEW = MODES[::3]
"""Each value of each of the three, and each credit mode with both ways to wait."""
ONE_SIP, MORE_SIPS = 9, 5
"""Programs in each mode."""


def run_one(seed: int, sips: int, *mode: Any) -> None:
    program, settings = random_program(seed), Settings(sips, *mode)
    try:
        check(program, run_program(program, settings, seed, mail_seed=seed))
    except Exception as error:
        error.add_note(f"program {seed}, {settings}, a {program.shape}")
        raise


@pytest.mark.parametrize("mode", some(MODES, *FEW), ids="-".join)
def test_one_sip_does_what_bounded_queues_do(mode: tuple[str, str, str]) -> None:
    first = 1000 * MODES.index(mode)
    for seed in range(first, first + ONE_SIP):
        run_one(seed, 1, *mode)


@pytest.mark.parametrize("mode", some(MODES, *FEW), ids="-".join)
def test_several_sips_do_what_bounded_queues_do(mode: tuple[str, str, str]) -> None:
    first = 1000 * MODES.index(mode) + 500
    for seed in range(first, first + MORE_SIPS):
        run_one(seed, 2 + seed % 2, *mode)


@pytest.mark.parametrize(("mode", "latch"), crossed(MODES[::2], [None, "copy", "in_place"]))
def test_costs_of_a_pe_change_times_only(mode: tuple[str, str, str], latch: str | None) -> None:
    """With issue, wake-ups, polls that back off, short queues, and slots that are credited once they are read.

    In place, a program names each handle at once; one that leaves a future may leave a slot, too, and is not run.
    """
    first = 1000 * MODES.index(mode) + 700
    for seed in range(first, first + 5):
        ops = [op.kind for ops in random_program(seed).ops for op in ops]
        if latch != "in_place" or "post" not in ops:
            run_one(seed, 1 + seed % 2, *mode, latch, 1 + seed % 3)


@pytest.mark.parametrize("wait", ["sleep", "poll"])
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
def test_doorbells_change_times_only(kind: str, wait: str) -> None:
    """On one SIP and across several; each latch, with the costs of a PE and without."""
    for seed in range(40_000, 40_009):
        ops = [op.kind for ops in random_program(seed).ops for op in ops]
        latch = (None, "copy", "in_place" if "post" not in ops else "copy")[seed % 3]
        run_one(seed, 1 + seed % 3, kind, wait, "doorbell", latch, (None, 2)[seed % 2])


def test_rare_cases() -> None:
    run_one(7631, 1, "tcm", "poll", "piggyback")


@pytest.mark.parametrize(
    ("seed", "sips", "mode"),
    [
        pytest.param(1000723, 1, ("tcm", "sleep", "fabric"), id="to itself behind a fetch"),
        pytest.param(1001299, 1, ("tcm", "sleep", "fabric"), id="to itself at once"),
        pytest.param(1000002, 3, ("tcm", "sleep", "fast_path"), id="from a slow memory over Ethernet"),
        pytest.param(1000325, 2, ("hbm", "poll", "fast_path"), id="from a slow memory over UCIe"),
    ],
)
def test_rare_cases_of_the_default_costs(seed: int, sips: int, mode: tuple[str, str, str]) -> None:
    run_one(seed, sips, *mode)


@pytest.mark.parametrize("seed", range(8))
def test_the_result_does_not_depend_on_mail_timing(seed: int) -> None:
    """Receives from any direction and all: end times and op logs are the same."""
    program = next(p for p in map(random_program, range(100 * seed, 100 * seed + 100)) if p.has_any)
    runs = [run_program(program, Settings(3, *MODES[2 * seed]), seed, mail_seed) for mail_seed in range(3)]
    assert runs[0].results() == runs[1].results() == runs[2].results()
    assert runs[0].blocked == runs[1].blocked == runs[2].blocked


# --- the generator and the model --------------------------------------------------------------------------------


def shares(count: int) -> Counter[str]:
    """The model's result of the first programs, up to the first receive from any direction."""
    found: Counter[str] = Counter()
    for program in map(random_program, range(count)):
        found[program.shape] += 1
        if program.has_any:
            found["any"] += 1
            continue
        verdict = judge(program)
        found["decided"] += 1
        found["full"] += verdict.full
        found["deadlock"] += bool(verdict.blocked)
        if verdict.blocked:
            found["circle" if circle(program, verdict.blocked) else "missing"] += 1
            found["blocked send"] += any(where.op == "send" for where in verdict.blocked.values())
    return found


def test_full_rings_and_deadlocks_are_common() -> None:
    """Programs without a receive from any direction, whose end the model computes without a run."""
    found = shares(400)
    assert found["any"] > 400 * 0.3
    decided = found["decided"]
    assert found["full"] > decided * 0.4
    assert found["circle"] > decided * 0.1
    assert found["missing"] > decided * 0.08
    assert found["blocked send"] > decided * 0.08
    assert min(found[shape] for shape in ("ring", "one-way ring", "mesh", "tree", "graph")) > 400 * 0.1


def two(ops: list[list[Op]], n_slots: int) -> Program:
    return Program(
        "ring",
        {0: {"E": 1, "W": 1}, 1: {"E": 0, "W": 0}},
        {(1, "W"): (0, "E"), (0, "W"): (1, "E"), (1, "E"): (0, "W"), (0, "E"): (1, "W")},
        ops,
        n_slots,
    )


def sends(count: int, direction: str = "E") -> list[Op]:
    return [Op("send", direction, 1, tag, "handle") for tag in range(count)]


def test_the_model_by_hand() -> None:
    """Three sends into two slots; two PEs that send before they receive; a future that frees a slot."""
    recv, post = Op("recv", "W", 1), Op("post", "W", 1, 7)
    stuck = judge(two([sends(3), []], 2))
    assert stuck.blocked == {0: Blocked(2, "send", ("E",))}
    assert stuck.full
    assert judge(two([sends(3), [recv]], 2)).blocked == {}
    assert judge(two([sends(3), [post]], 2)).blocked == {}
    each = [*sends(2), recv, recv]
    assert judge(two([each, each], 2)).blocked == {}
    both = judge(two([each, each], 1))
    assert both.blocked == {0: Blocked(1, "send", ("E",)), 1: Blocked(1, "send", ("E",))}
    assert circle(two([each, each], 1), both.blocked)
    alone = two([[], [recv]], 1)
    assert judge(alone).blocked == {1: Blocked(0, "recv", ("W",))}
    assert not circle(alone, judge(alone).blocked)
    late = judge(two([sends(2), [post, recv, Op("wait", "W", 0, 7)]], 2))
    assert late.got[1] == [("W", 1, 1), ("W", 0, 1)], "the future was there first"


def test_the_model_rejects_impossible_programs() -> None:
    takes_any = Op("any", "", 1)
    program = two([sends(1), [takes_any]], 1)
    assert judge(program, {1: ["W"]}).blocked == {}
    with pytest.raises(Impossible, match="cannot have received from E"):
        judge(program, {1: ["E"]})
    with pytest.raises(Impossible, match=r"there is one from \['W'\]"):
        judge(program, {})


def by_hand(count: int) -> None:
    """Many programs, in all modes in turn, and the shares of what they were."""
    began_s, failed = time.perf_counter(), 0
    for seed in range(count):
        try:
            run_one(seed + 10**6, 1 + seed % 3, *MODES[seed // 3 % len(MODES)])
        except Exception as error:
            failed += 1
            print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()))
    print(f"{count} programs in {time.perf_counter() - began_s:.0f} s, {failed} failed; {dict(shares(count))}")


if __name__ == "__main__":
    by_hand(int(sys.argv[1]))
