"""``scripts/fault_schedules.py``: what it draws, what it takes for explained, and one schedule that it runs."""

import subprocess
import sys

import pytest
from launch import CHECKOUT

SCRIPT = CHECKOUT / "scripts" / "fault_schedules.py"

from fault_schedules import PROGRAMS, Schedule, Undisturbed, draw, failure_in, unexplained  # noqa: E402

from sipsim.node.faults import is_outage, parse_fault, parse_outage  # noqa: E402

END_S = 900
KNOWN = Undisturbed("d", 4, 10**7, 1.5)
AGAIN = "; started again (1 of --max-restarts 9)"
HUNG = "rank 2 (pid 7) has made no progress for 2.8 s at 1.000 us: it sleeps; granted to 2.000 us; its process {}"
LINES = {
    "kill:2@1us": "rank 2 (pid 7 on a) was killed by SIGKILL",
    "exit:2@1us:0": "rank 2 (pid 7) ended with exit code 0 before the run was over",
    "hang:2@1us": HUNG.format("computes, and has waited 3.1 s for a processor"),
    "stop:2@1us": HUNG.format("is stopped"),
    "mute:2@join": "rank 2 (pid 7) has not joined within 30 s, --join-timeout",
    "broker@1us": "the broker (pid 7) was killed by SIGKILL",
    "agent:b@1s": "the agent on b (pid 7) has ended",
}


def drawn() -> list[Schedule]:
    return [draw(seed, PROGRAMS[seed % len(PROGRAMS)], KNOWN) for seed in range(500)]


def test_every_schedule_that_is_drawn_can_be_given_to_a_run() -> None:
    kinds = set()
    for schedule in drawn():
        for fault in schedule.faults:
            kinds.add(fault.partition(":")[0].partition("@")[0])
            _ = parse_outage(fault) if is_outage(fault) else parse_fault(fault)
    assert kinds == {"agent", "broker", "exit", "hang", "kill", "launcher", "link", "mute", "random", "slow", "stop"}
    assert drawn() == drawn()


@pytest.mark.parametrize("fault", LINES)
@pytest.mark.parametrize("form", ["ahbm-launch: {}" + AGAIN, "ahbm-launch: {kind}: {}"])
def test_a_failure_is_explained_by_its_fault_alone(fault: str, form: str) -> None:
    line = form.format(LINES[fault], kind="hung")
    assert failure_in(line) is not None
    assert unexplained(line, (fault,)) == []
    assert unexplained(f"ahbm-launch: faults drawn: slow:0@1us:x2, {fault}\n{line}", ("random:1:2",)) == []
    elsewhere = fault.replace(":2@", ":3@").replace(":b@", ":a@").replace("broker", "launcher")
    others = tuple(other for other in LINES if other != fault and not other.startswith(("stop", "hang", "mute")))
    assert unexplained(line, (elsewhere, *others)) == [line]


def test_a_rank_that_computes_is_hung_by_no_other_fault() -> None:
    line = "ahbm-launch: " + HUNG.format("computes") + AGAIN
    assert unexplained(line, ("stop:2@1us", "slow:2@1us:x5", "hang:1@1us", "kill:2@1us")) == [line]


@pytest.mark.processes
def test_a_schedule_is_run_and_counted() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--seeds", "25"], capture_output=True, text=True, timeout=END_S, cwd=CHECKOUT
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "broken: none"), done.stdout + done.stderr
    assert "1 schedules:" in done.stdout
