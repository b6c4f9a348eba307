"""A chip kind of a user's module, ``lab.ring_chip``: times by hand, any order of the mail, deadlocks, bad packets."""

import json
from pathlib import Path

import pytest
from runs import Run, run, script_file

from launcher.run.prepare import describe
from sipsim.chips.api.chip import CHIPS
from sipsim.core.errors import ConfigError

PARAMS = {"cores": 4, "hop_ns": 2, "service_ns": 30}
CHIP = ["--set", "system.chip=lab.ring_chip", "--set", f"system.chip_params={json.dumps(PARAMS)}"]
LAPS = """
def worker(rank, world_size, chip):
    if rank == 0:
        chip.send(1 % world_size, 2, 0)
    for _ in range(5):
        number = chip.recv()
        if number < 5 * world_size - 1:
            chip.send((rank + 1) % world_size, number % 4, number + 1)
"""
"""A number goes around all SIPs five times."""
ONE = """
def worker(rank, world_size, chip):
    if rank == 0:
        chip.send(1, 2, 7)
    else:
        assert chip.recv() == 7
"""
NEVER = "def worker(rank, world_size, chip):\n    if rank == 1:\n        chip.recv()\n"
WRONG = "def worker(rank, world_size, chip):\n    chip.send(1 - rank, 9, 0)\n"


def run_script(folder: Path, source: str, *flags: object, **how: int) -> Run:
    return run(*CHIP, *flags, script_file(folder, source), **how)


@pytest.mark.ideal
def test_a_number_from_core_to_core(tmp_path: Path) -> None:
    """Over core 0's port E and the link of 10 ns to port W at core 1, on to core 2, and 30 ns of the server.

    64 B drain once: in a flit of 256 B on the link of 64 GB/s in 4 ns, at 10 GB/s on the ring in 6.4 ns.
    """
    done = run_script(tmp_path, ONE, "--sips", 2, "--topology", "mesh_2d_no_wrap", "--shape", "2x1")
    assert done.document["status"] == "ok", done.document["error"]
    wires_ns, drain_ns, service_ns = 2 + 10 + 2 + 2, 6.4, 30
    assert done.members[1].session.engine.now_ps == round((wires_ns + drain_ns + service_ns) * 1000)
    assert [rank["bytes_sent"] for rank in done.document["ranks"]] == [8, 0]


@pytest.mark.parametrize("topology", ["ring_1d", "torus_2d"])
def test_the_mail_does_not_matter(tmp_path: Path, topology: str) -> None:
    runs = [run_script(tmp_path, LAPS, "--sips", 4, "--topology", topology)]
    runs += [run_script(tmp_path, LAPS, "--sips", 4, "--topology", topology, mail_seed=seed) for seed in range(5)]
    assert {done.document["status"] for done in runs} == {"ok"}
    assert len({done.document["digest"] for done in runs}) == 1
    assert runs[0].table().startswith("# ahbm-launch 0.1.0: 4 SIPs, ")


def test_a_server_never_counts_as_waiting(tmp_path: Path) -> None:
    """It waits for work when the run ends, and that is no deadlock. A script that waits is one."""
    error = run_script(tmp_path, NEVER, "--sips", 2).outcome.error
    assert error is not None
    assert error.kind == "Deadlock"
    (wait,) = error.facts["deadlock"]["others"]
    where = {"file": str(tmp_path / "script.py"), "line": 3}
    assert wait == {"rank": 1, "task": "host script", "waits_for": "a number", **where}, "not in the chip"
    assert "server" not in f"{error.message} {error.detail}".replace(tmp_path.name, "")


def test_a_chip_that_leaves_out_the_host_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run would end well while its script waits."""
    monkeypatch.setattr("lab.ring_chip.RingChip.tasks", lambda self: [self.server])
    error = run_script(tmp_path, NEVER, "--sips", 2).document["error"]
    assert (error["kind"], error["rank"]) == ("InvariantViolation", 1)
    assert "RingChip.tasks" in error["message"]


def test_a_packet_for_a_core_that_does_not_exist(tmp_path: Path) -> None:
    error = run_script(tmp_path, WRONG, "--sips", 2).document["error"]
    assert error["kind"] == "InvariantViolation"
    assert "is for core 9, which does not exist" in error["message"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("cores=1", "system.chip_params.cores = 1: must be at least 2"),
        ("cores=null", "system.chip_params.cores = null: must be a whole number"),
        (
            "coers=4",
            "unknown key 'coers' in system.chip_params; did you mean 'cores'? "
            "allowed: cores, hop_ns, ports, service_ns",
        ),
    ],
)
def test_bad_parameters_are_named(setting: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*CHIP, "--set", f"system.chip_params.{setting}", "script.py")
    assert str(caught.value) == f"--set system.chip_params.{setting}: {line}"


def test_a_wrong_parameter_is_blamed_on_its_file_and_a_missing_one_on_the_choice_of_the_chip(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    for params, origin in (({**PARAMS, "coers": 4}, str(file)), ({"cores": 4}, "--chip lab.ring_chip")):
        file.write_text(json.dumps({"system": {"chip_params": params}}))
        with pytest.raises(ConfigError) as caught:
            run("--chip", "lab.ring_chip", "--config", file, "script.py")
        assert str(caught.value).startswith(f"{origin}: ")


def test_sections_of_another_chip_do_not_count(tmp_path: Path) -> None:
    """No algorithm runs on this chip, and it has no cubes: neither is checked, and neither is in the digest."""
    pair, other = ("--sips", 2), ("--set", "defaults.algorithm=nope", "--set", "defaults.n_slots=4")
    usual = run_script(tmp_path, ONE, *pair)
    assert usual.document["status"] == "ok"
    for flags in (other, ("--set", "cube.pes=4"), ("--set", "router.overhead_ns=9")):
        assert run_script(tmp_path, ONE, *pair, *flags).document["digest"] == usual.document["digest"]
    params = f"system.chip_params={json.dumps({**PARAMS, 'cores': 5})}"
    assert run_script(tmp_path, ONE, *pair, "--set", params).document["digest"] != usual.document["digest"]


@pytest.mark.parametrize("verifies", [False, True])
def test_a_run_that_nothing_performs_again_says_so(
    verifies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(CHIPS.get("lab.ring_chip")), "verifies", verifies)
    done = run_script(tmp_path, ONE, "--sips", 2)
    assert done.document["second_pass"] is None
    said = [line for line in done.table().splitlines() if "no second pass" in line]
    assert len(said) == (not verifies)


def test_its_built_in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three laps over two SIPs. A kind without such jobs needs a script."""
    done = run(*CHIP, "--sips", 2, "--topology", "mesh_2d_no_wrap", "--shape", "2x1", "--n-elem", 3)
    assert done.document["status"] == "ok", done.document["error"]
    assert [member.chip.log[-1].partition(" ")[2] for member in done.members] == [
        "Token(core=0, number=6)",
        "Token(core=0, number=5)",
    ]
    assert describe(done.prepared).startswith("would run laps on 2 SIPs, mesh_2d_no_wrap 2x1, ")
    with pytest.raises(ConfigError, match=r"^this chip runs collective laps; give one number of laps with --n-elem$"):
        run(*CHIP, "--sips", 2)
    monkeypatch.setattr(type(CHIPS.get("lab.ring_chip")), "jobs", None)
    with pytest.raises(
        ConfigError, match=r"^system.chip = lab.ring_chip: SIPs of this chip run host scripts only; give a script$"
    ):
        run(*CHIP, "--sips", 2)
