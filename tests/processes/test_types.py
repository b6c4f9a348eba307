"""What only bf16 needs is imported only for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from launch import environment

SMALL = ("--sips", "2", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--n-elem", "4097")


@pytest.mark.parametrize(("dtype", "is_imported"), [("f16", False), ("i8", False), ("bf16", True)])
def test_bf16_is_imported_when_it_is_used(dtype: str, is_imported: bool, tmp_path: Path) -> None:
    flags = [*SMALL, "--dtype", dtype, "--engine", "inproc"]
    code = f"import sys, launcher.commands.launch as cli\ncli.main({flags})\nprint('ml_dtypes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.splitlines()[-1] == str(is_imported)
