"""The guide's ping around a ring of chips, on its own systems: some of a T3000's chips, and two chips with one link."""

from pathlib import Path

import pytest
from runs import run

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/tensix/ring_ping.py"


@pytest.mark.parametrize(
    ("topology", "chips", "hops"),
    [
        ("n300", (), 2),
        ("t3000", ("0,1,2,3",), 4),
        ("t3000", ("0,4,5,1,2,6,7,3",), 8),
        ("t3000", ("6,7",), 2),
        ("t3000", ("7,3",), 2),
    ],
)
def test_a_ping_goes_around(
    topology: str, chips: tuple[str, ...], hops: int, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run("--topology", topology, EXAMPLE, *(("16", "2", *chips) if chips else ("16", "2")))
    assert done.document["error"] is None
    lines = [line for line in capsys.readouterr().out.splitlines() if " hops with 16 B: " in line]
    assert len(lines) == 2, "one line a ping, from one chip"
    assert all(f"{hops} hops with 16 B: " in line for line in lines)
