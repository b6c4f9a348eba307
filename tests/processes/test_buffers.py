"""Finite input buffers in processes of their own: the digest of the same run in one process."""

from typing import Any

import pytest

from launcher.api import run

pytestmark = pytest.mark.processes

SMALL: dict[str, Any] = {"sips": 4, "topology": "torus_2d", "n_elem": 1024}


@pytest.mark.parametrize("mode", ["fast_path", "fabric"])
def test_digests_are_those_of_one_process(mode: str) -> None:
    settings = [
        "router.buffer_packets=1",
        "io_port.buffer_packets=2",
        f"defaults.credit_return_mode={mode}",
        "sip.cube_mesh.w=2",
    ]
    digests = {run(**SMALL, set=settings, engine=engine).document["digest"] for engine in ("inproc", "local")}
    assert len(digests) == 1
