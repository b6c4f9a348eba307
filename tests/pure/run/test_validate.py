"""Flags that must suit each other, the engine and the system; each mistake is one line that says what is allowed."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.options import Options, parse
from launcher.run.prepare import (
    check_flags,
    check_system,
    check_verification,
    faults_of,
    prepare,
    resolve,
    span_ps,
    unverified,
)
from launcher.supervise.run import Run
from sipsim.chips.api.chip import CHIPS
from sipsim.core.errors import ConfigError
from sipsim.node.faults import FaultPlan, parse_fault
from sipsim.records.job import Job

JOB = Job(n_elems=(2048,))


def options(words: str, engine: str = "") -> Options:
    chosen = parse(words.split())
    return chosen.changed(engine=engine) if engine else chosen


def plan(n_sips: int = 4) -> Any:
    return SimpleNamespace(system=SimpleNamespace(n_sips=n_sips), n_rows=16)


def run(chosen: Options) -> Run:
    return Run(chosen, plan(), JOB)


def refused(action: Any, *args: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        action(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def verification(words: str) -> str:
    """Why flags of verification are refused; empty where they are not."""
    chosen = options(words)
    try:
        check_verification(chosen, words.split(), resolve(chosen))
    except ConfigError as error:
        return str(error)
    return ""


class TestEngines:
    def test_shuffled_mail_is_within_one_process(self) -> None:
        assert "--engine inproc" in refused(check_flags, options("--mail shuffled:7"))
        check_flags(options("--mail shuffled:7 --engine inproc"))

    @pytest.mark.parametrize("words", ["--hosts a:2", "--bind 127.0.0.1", "--fault cut:a@1s", "--fault agent:a@1s"])
    def test_local_has_one_host(self, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AHBM_CUT", "cut")
        line = refused(check_flags, options(words))
        assert line.startswith(words.split()[0])
        assert line.endswith(": --engine local (the default) uses this host only; choose another, such as --engine ssh")
        check_flags(options(words, "ssh"))

    @pytest.mark.parametrize(
        "words", ["", "--max-restarts 1 --run-dir d --tee 0 --fault kill:0@1us --fault broker@1us"]
    )
    def test_all_else_goes(self, words: str) -> None:
        check_flags(options(words))

    @pytest.mark.parametrize(
        ("words", "instead"),
        [
            ("--explain", "leave --explain out"),
            ("--trace-ccl t.csv", "leave --trace-ccl out"),
        ],
    )
    def test_what_ranks_record_stays_where_they_are_started_by_hand(self, words: str, instead: str) -> None:
        assert refused(check_flags, options(f"--engine manual {words}")) == (
            f"{words.split()[0]}: records of ranks that are started by hand (ahbm-broker, --engine manual) "
            f"stay on their hosts; {instead}"
        )
        check_flags(options(words, "ssh"))

    def test_what_a_second_pass_takes_stays_there_too(self) -> None:
        assert "give --no-verify-data with a script" in verification("--engine manual s.py")
        for words in ("--engine manual --no-verify-data s.py", "--engine manual --chip wormhole s.py", "s.py"):
            assert verification(words) == ""

    @pytest.mark.parametrize("flag", ["--verify-data", "--check-invariants"])
    def test_a_chip_that_verifies_nothing_refuses_to(self, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
        monkeypatch.setattr(CHIPS.get("wormhole"), "verifies", False)
        assert verification(f"--chip wormhole {flag} s.py").startswith(f"{flag}: chip wormhole has no ")
        assert verification(f"{flag} s.py") == ""

    @pytest.mark.parametrize(
        ("words", "count"), [("--chip wormhole --no-verify-data", 1), ("--no-verify-data", 0), ("--chip wormhole", 0)]
    )
    def test_a_chip_that_verifies_nothing_says_that_nothing_is_left_out(
        self, monkeypatch: pytest.MonkeyPatch, words: str, count: int
    ) -> None:
        monkeypatch.setattr(CHIPS.get("wormhole"), "verifies", False)
        chosen = options(f"{words} s.py")
        assert len(unverified(chosen, resolve(chosen))) == count

    @pytest.mark.parametrize("words", ["", "--no-verify-data s.py", "--csv-links l.csv --json r.json"])
    def test_by_hand_all_else_goes(self, words: str) -> None:
        check_flags(options(f"--engine manual {words}"))

    def test_a_cut_needs_a_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AHBM_CUT", raising=False)
        assert refused(check_flags, options("--hosts a,b --fault cut:a@1s", "ssh")) == (
            "--fault cut:a@1s: set AHBM_CUT to a program that disconnects the host named by its argument"
        )

    def test_an_address_of_another_machine(self) -> None:
        check_flags(options("--bind 127.0.0.1", "ssh"))
        line = refused(check_flags, options("--bind 192.0.2.1", "ssh"))
        assert line.startswith("--bind 192.0.2.1: cannot listen on this address: ")
        assert line.endswith("; give an address of this machine")

    @pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
    def test_one_of_the_newer_kind(self) -> None:
        assert "2001:db8::1: cannot listen on" in refused(check_flags, options("--bind 2001:db8::1", "ssh"))


class TestStandardOutput:
    @pytest.mark.parametrize("words", ["", "--json -", "--csv -", "--trace-ccl - --json a.json"])
    def test_one_file_may_be_it(self, words: str) -> None:
        check_flags(options(words))


class TestLimitOfSimulatedTime:
    @pytest.mark.parametrize("spec", ["kill:0@29us", "kill:0@join", "launcher@1s", "random:1:2"])
    def test_other_faults(self, spec: str) -> None:
        check_flags(options(f"--max-sim-time 30us --fault {spec}"))

    def test_random_faults_come_before_it(self) -> None:
        drawn = faults_of(run(options("--max-sim-time 1us --fault random:7:50")))
        times_ps = [parse_fault(text).at_ps for text in drawn]
        assert times_ps
        assert max(times_ps) < 1_000_000


class TestSystems:
    def test_ranks_to_show(self) -> None:
        check_system(options("--tee 0,3"), 4)
        check_system(options("--tee none"), 4)
        assert refused(check_system, options("--tee 1,9"), 4) == "--tee 9: there is no SIP 9; ranks are 0 to 3"
        assert refused(check_system, options("--tee 4"), 4) == "--tee 4: there is no SIP 4; ranks are 0 to 3"

    def test_a_place_for_each(self) -> None:
        for hosts in ("a:2,b:2", "a:9", "a,b", "a:1,b"):
            check_system(options(f"--hosts {hosts}", "ssh"), 4)
        assert refused(check_system, options("--hosts a:1,b:2", "ssh"), 4) == (
            "--hosts a:1,b:2: slots for 3 of 4 SIPs; give more slots, or leave a number out"
        )


class TestFaults:
    def test_given_faults_are_kept(self) -> None:
        chosen = options("--fault slow:3@2us:x2 --fault kill:1@1us#1")
        assert faults_of(run(chosen)) == ("kill:1@1us#1", "slow:3@2us:x2")

    def test_a_host_that_does_not_exist(self) -> None:
        line = refused(faults_of, run(options("--hosts a,b --fault cut:c@1s", "ssh")))
        assert line == "--fault 'cut:c@1s': there is no host 'c'; allowed: a, b"

    def test_random_ones_are_drawn_over_the_run(self) -> None:
        chosen = options("--fault random:7:50 --max-restarts 9")
        drawn = faults_of(run(chosen))
        assert drawn == faults_of(run(chosen)) != faults_of(run(options("--fault random:8:50")))
        assert len(drawn) == 50
        FaultPlan.of(drawn).check(4)

    def test_a_longer_run_spreads_them_further(self) -> None:
        once = span_ps(plan(), JOB)
        assert 2 * 10**6 < once < 6 * 10**6
        assert span_ps(plan(), Job(n_elems=(2048,), iters=2, warmup=1)) == 3 * once
        assert span_ps(plan(), Job(n_elems=(2048, 2048))) == 2 * once
        assert span_ps(plan(16), JOB) > once
        assert span_ps(plan(), Job(script="a.py")) > 0


class TestSizes:
    MESH = "--set sip.cube_mesh.w=5 --set sip.cube_mesh.h=3"

    def test_a_size_that_divides(self) -> None:
        assert prepare(options(f"{self.MESH} -b 30 -e 60")).job.n_elems == (1, 2)
