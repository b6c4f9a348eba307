"""What benches of collectives have in common: the rows of a run, and which collectives run over groups."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from sipsim.ccl.collectives.base import COLLECTIVES
from sipsim.ccl.collectives.group import GroupCollective


def group_collectives() -> list[str]:
    """Those of the registry that schedules run."""
    return [name for name in COLLECTIVES.names() if isinstance(COLLECTIVES.get(name), GroupCollective)]


def rows(bench: str, flags: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a run of ``ahbm-launch`` with these flags. ``bench``: who says why, where it fails.

    Raises:
        SystemExit: when it fails.
    """
    words = [sys.executable, "-m", "launcher", *flags, "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{bench}: {' '.join(flags)}: {done.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return found
