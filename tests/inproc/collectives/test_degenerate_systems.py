"""Every algorithm on systems of one SIP, one cube, one PE, and rows and columns of one."""

from itertools import product

import pytest
from runs import run

from sipsim.chips.config import load

ALGORITHMS = sorted(load().ccl.algorithms)
CUBES = [("1x1", 1), ("2x1", 1), ("1x2", 3)]
SIPS = [["--sips", "1"], ["--sips", "1", "--topology", "torus_2d"], ["--sips", "2", "--topology", "mesh_2d_no_wrap"]]


def flags(algorithm: str, mesh: str, pes: int, sips: list[str]) -> list[str]:
    w, h = mesh.split("x")
    shape = ["--shape", "2x1"] if sips[-1] == "mesh_2d_no_wrap" else []
    mesh_keys = "--set", f"sip.cube_mesh={{w: {w}, h: {h}}}", "--set", f"cube.pes={pes}"
    return ["--algorithm", algorithm, "--n-elem", "12", *sips, *shape, *mesh_keys]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_run_on_the_least_systems(algorithm: str) -> None:
    for (mesh, pes), sips in product(CUBES, SIPS):
        done = run(*flags(algorithm, mesh, pes, sips))
        assert done.outcome.error is None, (mesh, pes, sips)
        assert [(row["checked"], row["wrong"]) for row in done.document["runs"]] == [(True, 0)], (mesh, pes, sips)
