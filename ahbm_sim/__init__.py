"""The commands of the distribution ``ahbm-sim``, under a name that no other distribution uses.

``broker``, ``sipsim`` and ``launcher`` are names that others may use too. Before any of them is imported, each command
checks that Python finds those of this distribution; ``launcher`` checks it again for programs that import it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "ahbm-sim"
PACKAGES = ("broker", "sipsim", "launcher")
MARK = f'DISTRIBUTION = "{NAME}"'
"""A line of each package's ``__init__.py``."""
USAGE_EXIT = 2
ADVICE = "install ahbm-sim in a virtual environment of its own, and keep folders with that name off PYTHONPATH"


def problem(packages: Sequence[str] = PACKAGES) -> str | None:
    """One line about the first of these that is not of this distribution, or about missing configs; else None.

    Nothing is imported.
    """
    root = Path(__file__).resolve().parent.parent
    for name in packages:
        found = _file_of(name)
        if found is None or found.parent.parent != root or MARK not in found.read_text(encoding="utf-8").splitlines():
            where = "none" if found is None else f"{found}{_owner(name)}"
            return f"package {name} must be the one of {NAME}, in {root}; Python finds {where}: {ADVICE}"
    if not (root / "sipsim" / "_configs").is_dir() and not (root / "pyproject.toml").is_file():
        return f"{root} has no default configs of {NAME} (sipsim/_configs): install it again"
    return None


def _file_of(name: str) -> Path | None:
    """The file that would be imported under a name."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def _owner(name: str) -> str:
    """The other distributions that have a package of this name, in words."""
    # Imported here: it takes as long as much of a start.
    from importlib.metadata import packages_distributions

    owners = sorted({each for each in packages_distributions().get(name, []) if each != NAME})
    return f" of distribution {', '.join(owners)}" if owners else ""


def _start(program: str, module: str, function: str = "main") -> int:
    found = problem()
    if found is not None:
        print(f"{program}: {found}", file=sys.stderr)
        return USAGE_EXIT
    code: int = getattr(importlib.import_module(module), function)()
    return code


def launch() -> int:
    """``ahbm-launch``."""
    return _start("ahbm-launch", "launcher.cli.launch")


def probe() -> int:
    """``ahbm-probe``."""
    return _start("ahbm-probe", "launcher.cli.probe")


def bench() -> int:
    """``ahbm-bench``."""
    return _start("ahbm-bench", "launcher.cli.bench")


def races() -> int:
    """``ahbm-races``."""
    return _start("ahbm-races", "launcher.cli.races")


def agent() -> int:
    """``ahbm-agent``."""
    return _start("ahbm-agent", "launcher.hosts.agent")


def broker() -> int:
    """``ahbm-broker``."""
    return _start("ahbm-broker", "launcher.cli.by_hand", "broker_main")


def sip() -> int:
    """``ahbm-sip``."""
    return _start("ahbm-sip", "launcher.cli.by_hand", "sip_main")
