"""The pictures in docs/pictures are what the project draws of its runs, byte for byte.

``python tests/processes/docs/test_pictures.py --refresh`` makes all runs and writes the pictures.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/draw_exchange.py"
PICTURES = ROOT / "docs/pictures"
DRAWN = ("multidim_ring", "intercube_per_pe_rows")
"""The tests draw these: several directions between the same PEs, and messages inside a SIP."""
OTHERS = {"system"}
"""Drawn by hand: the README's picture of the machine, no algorithm's."""

pytestmark = pytest.mark.processes
TRACE = """rank,cube,pe,t_ps,op,dir,nbytes,run,start_ps,peer,phase
0,0,0,1000,send,E,64,0,1000,1.0.0,
0,0,1,1500,send,E,64,0,1000,1.0.1,
1,0,0,2000,send,W,32,0,1000,0.0.0,
1,0,0,4000,recv,W,64,0,1000,0.0.0,
0,0,0,5000,recv,E,32,0,1000,1.0.0,
1,0,1,6000,recv,W,64,0,1000,0.0.1,
0,0,0,7000,send,E,64,{run},1000,1.0.0,
1,0,0,9000,recv,W,64,{run},1000,0.0.0,
"""


def draw(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """The command, from this checkout."""
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_what_its_run_draws(name: str) -> None:
    code = f"import draw_exchange; print(draw_exchange.picture(draw_exchange.pictures()[{name!r}]), end='')"
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(SCRIPT.parent)!r}]\n"
    ran = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (PICTURES / f"{name}.svg").read_text(encoding="utf-8")


def test_every_algorithm_has_a_picture_and_the_page_shows_all() -> None:
    from sipsim.chips.config import load

    there = {path.stem for path in PICTURES.glob("*.svg")} - OTHERS
    assert set(load().ccl.algorithms) <= there
    page = (ROOT / "docs/collectives.md").read_text(encoding="utf-8")
    assert re.findall(r"\(pictures/(\w+)\.svg\)", page) == list(
        dict.fromkeys(re.findall(r"\(pictures/(\w+)\.svg\)", page))
    )
    assert set(re.findall(r"\(pictures/(\w+)\.svg\)", page)) == there


@pytest.mark.parametrize(
    ("run", "arrows"),
    [("0", ["E: 128 B in 2 messages", "W: 32 B", "E: 64 B"]), ("1", ["E: 128 B in 2 messages", "W: 32 B"])],
)
def test_messages_of_one_step_are_one_arrow(tmp_path: Path, run: str, arrows: list[str]) -> None:
    """Of two PEs; a message after a receive is another step, and another collective is not drawn."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE.format(run=run))
    ran = draw("--trace-ccl", trace)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.findall(r"<title>(.*?),", ran.stdout) == arrows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank,run\n", "the trace has no messages of this collective"),
        (
            TRACE.format(run=0)
            .replace("5000,recv,E", "5000,recv,N")
            .replace("2000,send,W,32,0,1000,0.0.0", "2000,send,W,32,0,1000,0.0.1"),
            "no message was sent there",
        ),
    ],
)
def test_what_cannot_be_drawn(tmp_path: Path, text: str, says: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    ran = draw("--trace-ccl", trace)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert says in ran.stderr


if __name__ == "__main__":
    if sys.argv[1:] != ["--refresh"]:
        sys.exit("usage: python tests/processes/docs/test_pictures.py --refresh")
    sys.exit(subprocess.run([sys.executable, SCRIPT, "--docs"]).returncode)
