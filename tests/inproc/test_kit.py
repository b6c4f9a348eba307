"""The kit of ``ahbm_sim.testing``: kernels on any place, what comes out, prices, processes and transcripts."""

import sys
from pathlib import Path
from typing import Any

import pytest

import ahbm_sim
from ahbm_sim.testing import Place, expect_ps, launched, session, simulate
from launcher.api import run

WEST, EAST, FAR = (0, 0, 0), (0, 1, 1), (1, 1, 0)
"""Another PE number, and another SIP."""


def send(tl: Any) -> None:
    tl.send("E", tl.full(16, 7, "i32"))


def receive(tl: Any) -> list[int]:
    values: list[int] = tl.recv("W", 16, "i32").array.tolist()
    return values


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    names["test_doubled_values_arrive_at_their_price"]()


@pytest.mark.parametrize("place", [EAST, FAR])
def test_a_message_arrives_with_its_bytes_and_at_its_price(place: Place) -> None:
    """Between any PEs; the message is made first, of a constant."""
    done = simulate({WEST: send, place: receive}, sips=2, pes=2)
    assert (done.exit_code, done.kind, done.values[place]) == (0, None, [7] * 16)
    made, sent, received = done.op("make", WEST), done.op("ipcq.send", WEST), done.op("ipcq.recv", place)
    assert received.end_ps - made.end_ps == expect_ps(WEST, place, 64, sips=2, pes=2)
    assert sent.fields["dst"] == ".".join(map(str, place))
    assert sent.fields["nbytes"] == 64


def test_mail_does_not_matter() -> None:
    runs = [simulate({WEST: send, FAR: receive}, sips=2, mail=seed) for seed in (None, 1, 2)]
    assert len({done.digest for done in runs}) == 1
    assert [done.document["mail"] for done in runs] == [None, "shuffled:1", "shuffled:2"]


def test_each_place_has_a_row_of_its_own() -> None:
    def double(row: Any, tl: Any) -> None:
        tl.store(row, tl.load(row, 3) * 2)

    done = simulate({EAST: double, FAR: double}, sips=2, pes=2, data={EAST: [1, 2, 3], FAR: [4, 5, 6]}, dtype="i32")
    assert done.data[EAST].tolist() == [2, 4, 6]
    assert done.data[FAR].tolist() == [8, 10, 12]


def test_any_wiring() -> None:
    """Three places in a ring of one direction."""
    wires = {(WEST, "E"): EAST, (EAST, "E"): FAR, (FAR, "E"): WEST}

    def around(tl: Any) -> int:
        tl.send("E", tl.full(1, tl.program_id(1), "i32"))
        return int(tl.recv(shape=1, dtype="i32").array[0])

    done = simulate({WEST: around, EAST: around, FAR: around}, wires=wires, sips=2, pes=2)
    assert done.values == {WEST: 1, EAST: 0, FAR: 1}


@pytest.mark.parametrize(
    "where",
    [
        {"kernels": {(1, 0, 0): send}},
        {"kernels": {WEST: send}, "data": {(1, 0, 0): [1]}},
        {"kernels": {WEST: send}, "wires": {(WEST, "E"): (0, 0, 1)}},
        {"kernels": {WEST: send}, "wires": {((0, 2, 0), "E"): WEST}},
    ],
)
def test_a_place_that_is_not_there_is_refused(where: Any) -> None:
    """Not ignored, nor taken for another place whose number it has."""
    with pytest.raises(ValueError, match="the system has SIPs 0 to 0, cubes 0 to 1, PEs 0 to 0"):
        simulate(**where)


def test_only_a_parameter_without_a_default_takes_the_pointer() -> None:
    def kernel(tl: Any, value: int = 3) -> int:
        return value * int(tl.program_id(1))

    assert simulate({EAST: kernel}, pes=2, data={EAST: [1]}).values == {EAST: 3}


@pytest.mark.parametrize(
    ("kernel", "settings", "code", "kind"),
    [
        (send, {"cube.pez": 1}, 2, "config"),
        (lambda tl: tl.recv("N", 1, "i32"), {}, 3, "IpcqInvalidDirection"),
        (lambda tl: tl.recv("E", 1, "i32"), {}, 3, "IpcqDeadlock"),
        (lambda _tl: 1 / 0, {}, 5, "exception"),
    ],
)
def test_errors_are_results(kernel: Any, settings: dict[str, object], code: int, kind: str) -> None:
    done = simulate({WEST: kernel, EAST: receive}, pes=2, set=settings)
    assert (done.exit_code, done.kind) == (code, kind)
    assert EAST not in done.values


def test_the_kit_is_one_module_in_and_behind_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its script finds the kernels in it, also where a run before was the first to import it."""
    name = "ahbm_sim.testing"
    monkeypatch.setattr(ahbm_sim, "testing", sys.modules[name])
    monkeypatch.delitem(sys.modules, name)
    script = tmp_path / "script.py"
    script.write_text(f"import {name}\n\ndef worker(rank, world_size, torch): pass\n")
    assert run(script, engine="inproc").status == "ok"
    assert name in sys.modules


def test_parts_of_a_price() -> None:
    """The credit, and a link that is priced by its setting."""
    whole, link = expect_ps(WEST, FAR, 64, sips=2), {"links.ucie.params.retimer_ns": 9}
    assert 0 < expect_ps(WEST, FAR, 64, parts=["credit"], sips=2) < whole
    assert expect_ps(WEST, FAR, 64, sips=2, set=link) > whole
    with pytest.raises(AssertionError, match=r"no term is of wire; this pair has .*, wires"):
        expect_ps(WEST, FAR, 64, parts=["wire", "drain"], sips=2)
    with pytest.raises(AssertionError, match="there is no such PE"):
        expect_ps(WEST, FAR, 64, sips=1)


@pytest.mark.processes
def test_a_command_as_a_process(tmp_path: Path) -> None:
    done = launched("--sips", 2, "--bytes", "1K", cwd=tmp_path, AHBM_VARIANT="ideal")
    assert (done.exit_code, done.document["status"]) == (0, "ok")
    assert done.document["config"]["components"]["pe_cpu"]["issue_ns"] == 0
    assert launched("--from", "0.0.0", command="ahbm-probe").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_transcript_is_written_anew(tmp_path: Path) -> None:
    played = session(
        "A comment.\n@ small.yaml\n    cube: {pez: 2}\n\n$ ahbm-launch --config small.yaml\n! old\n= 7\n", tmp_path
    )
    lines = played.splitlines()
    assert lines[:5] == ["A comment.", "@ small.yaml", "    cube: {pez: 2}", "", "$ ahbm-launch --config small.yaml"]
    assert lines[5].startswith("! ahbm-launch: small.yaml: ")
    assert lines[6:] == ["= 2"]
    assert session(played, tmp_path) == played
