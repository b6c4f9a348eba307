"""A module with the exports of ADR-0032 D7 alone: the backend wires all cubes, and the kernel elects the root cube."""

from pathlib import Path

import pytest
from runs import run

from launcher.run.effects import note_effects
from sipsim.core.errors import ConfigError

MODULE = """
SIP_TOPO_RING, SIP_TOPO_TORUS, SIP_TOPO_MESH = 0, 1, 2
TOPO_NAME_TO_KIND = {"ring_1d": SIP_TOPO_RING, "torus_2d": SIP_TOPO_TORUS, "mesh_2d_no_wrap": SIP_TOPO_MESH}


def kernel_args(world_size, n_elem):
    return n_elem, 4, 4, world_size


def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, tl):
    assert sip_topo_kind == SIP_TOPO_RING
    cube = tl.program_id(1)
    x, y = cube % cube_w, cube // cube_w
    root_x, root_y = n_elem % cube_w, n_elem // cube_w % cube_h
    row = t_ptr + cube * n_elem * 2
    towards, back = ("E", "W") if x < root_x else ("W", "E")
    total = tl.load(row, (n_elem,), dtype="f16")
    for side, end in (("W", 0), ("E", cube_w - 1)):
        if x != end and (x == root_x or side == back):
            total = total + tl.recv(dir=side, shape=(n_elem,), dtype="f16")
    if x != root_x:
        tl.send(dir=towards, src=total)
        total = tl.recv(dir=towards, shape=(n_elem,), dtype="f16")
        if x not in (0, cube_w - 1):
            tl.send(dir=back, src=total)
    else:
        towards, back = ("S", "N") if y < root_y else ("N", "S")
        for side, end in (("N", 0), ("S", cube_h - 1)):
            if y != end and (y == root_y or side == back):
                total = total + tl.recv(dir=side, shape=(n_elem,), dtype="f16")
        if y == root_y:
            moving = total
            for _ in range(n_sips - 1):
                tl.send(dir="global_E", src=moving)
                moving = tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
                total = total + moving
        else:
            tl.send(dir=towards, src=total)
            total = tl.recv(dir=towards, shape=(n_elem,), dtype="f16")
        for side, end in (("N", 0), ("S", cube_h - 1)):
            if y != end and (y == root_y or side == back):
                tl.send(dir=side, src=total)
        for side, end in (("W", 0), ("E", cube_w - 1)):
            if x != end:
                tl.send(dir=side, src=total)
    tl.store(row, total)
"""


@pytest.mark.parametrize("root", range(16))
def test_every_cube_can_be_the_root(tmp_path: Path, root: int) -> None:
    (tmp_path / "d7.py").write_text(MODULE)
    entry = f"{{module: {tmp_path / 'd7.py'}, topology: none, buffer_kind: tcm, n_elem: 8, root_cube: {root}}}"
    (tmp_path / "ccl.yaml").write_text(f"defaults: {{algorithm: d7}}\nalgorithms: {{d7: {entry}}}\n")
    done = run("--sips", 3, "--ccl", tmp_path / "ccl.yaml", "--n-elem", 16 + root)
    (row,) = done.document["runs"]
    assert (row["wrong"], row["checked"]) == (0, True)
    note_effects(done.prepared, done.outcome)
    assert "algorithms.d7.root_cube" in done.outcome.without_effect


def test_n_elem_of_the_entry_is_the_size_without_a_flag(tmp_path: Path) -> None:
    (tmp_path / "d7.py").write_text(MODULE)
    entry = f"{{module: {tmp_path / 'd7.py'}, topology: none, n_elem: 24}}"
    (tmp_path / "ccl.yaml").write_text(f"defaults: {{algorithm: d7}}\nalgorithms: {{d7: {entry}}}\n")
    sizes = [
        run("--ccl", tmp_path / "ccl.yaml", *flags).document["runs"][0]["count"] for flags in ((), ("--n-elem", 8))
    ]
    assert sizes == [16 * 24, 16 * 8]


def test_one_run_has_one_size() -> None:
    entries = ["--set", "algorithms.ring.n_elem=8", "--set", "algorithms.direct.n_elem=9"]
    with pytest.raises(ConfigError, match=r"algorithms.ring.n_elem = 8, algorithms.direct.n_elem = 9: .* --n-elem"):
        run("--algorithm", "ring,direct", *entries)
