"""Small systems and scripts for collectives of process groups. Not a test."""

import textwrap
from pathlib import Path
from typing import Any

from runs import Run, run, script_file

MESH = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--set", "cube.pes=2")
HEAD = """
import numpy as np
from sipsim.chips.ahbm.host.layout import DPPolicy

def device(torch, array, **layout):
    tensor = torch.zeros(array.shape, dtype=array.dtype, **layout)
    return tensor.copy_(torch.from_numpy(array))

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
"""


def script(folder: Path, body: str) -> str:
    """A host script with ``device(torch, array)``, and ``body`` in its ``worker``, after the group of all is made."""
    return script_file(folder, HEAD + textwrap.indent(textwrap.dedent(body), "    "))


def run_groups(folder: Path, body: str, *flags: object, sips: int = 4, **how: Any) -> Run:
    """Run a script with such a body."""
    return run("--sips", sips, *MESH, *flags, script(folder, body), **how)


def rows(done: Run) -> list[tuple[str, list[int], int, bool]]:
    """Of each collective: name, ranks of the group, wrong elements, whether it was checked."""
    assert done.outcome.error is None, done.outcome.error
    return [(row["collective"], row["group"], row["wrong"], row["checked"]) for row in done.document["runs"]]
