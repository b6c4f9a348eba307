"""``scripts/bench noc``: throughput at saturation rises with the depth of buffers, and is what theory gives."""

from typing import Any

import pytest
from bench import kit, noc


@pytest.mark.parametrize(("ports", "theory"), noc.KAROL.items())
def test_a_saturated_switch_of_fifos_has_the_throughput_of_theory(ports: int, theory: float) -> None:
    """Within 2 %: an output takes its inputs in turn, where the theory draws one."""
    assert noc.switch_throughput(ports, 2000, 1) == pytest.approx(theory, rel=0.02)


def test_throughput_rises_with_depth_towards_the_ideal(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = kit.document_of("noc", "--packets", "150", "--seeds", "1")["rows"]
    assert "2 - sqrt 2" in capsys.readouterr().out
    *got, flows = [row["of_ideal"] for row in rows if row["what"] == "throughput" and row["channels"] == 1]
    assert got == sorted(set(got)), "1, 2, 4, 8, 64 packets"
    assert got[0] < 0.5 < 0.586 < got[2] < got[-1] < 1
    assert got[0] < flows < got[1], "a node's bytes wait at the node"
    *others, behind = [row["other_ns"] for row in rows if row["what"] == "blocked"]
    assert others == sorted(others, reverse=True)
    assert others[0] > 7 * others[-1]
    assert behind > others[0], "it follows what its own source has sent before"
