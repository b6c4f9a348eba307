"""The commands of the distribution ``ahbm-sim``, under a name that no other distribution uses.

``broker``, ``sipsim`` and ``launcher`` are names that others may use too. Before any of them is imported, each command
checks that Python finds those of this distribution; ``launcher`` checks it again for programs that import it.
"""

import faulthandler
import gc
import importlib
import importlib.util
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "ahbm-sim"
PACKAGES = ("broker", "sipsim", "launcher")
MARK = f'DISTRIBUTION = "{NAME}"'
"""A line of each package's ``__init__.py``."""
USAGE_EXIT = 2
INTERRUPTED_EXIT = 130
LEAST_MEMORY = 200 << 20
"""Address space in bytes, for the libraries and a small run."""
ADVICE = "install ahbm-sim in a virtual environment of its own, and keep folders with that name off PYTHONPATH"

MAINS = {
    "ahbm-launch": ("launcher.commands.launch", "main"),
    "ahbm-probe": ("launcher.probe.command", "main"),
    "ahbm-bench": ("launcher.bench.command", "main"),
    "ahbm-races": ("launcher.commands.races", "main"),
    "ahbm-agent": ("launcher.hosts.agent", "main"),
    "ahbm-broker": ("launcher.commands.by_hand", "broker_main"),
    "ahbm-sip": ("launcher.commands.by_hand", "sip_main"),
}
"""Module and function of each command."""


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


def _start(program: str) -> int:
    _prepare_process()
    found = problem()
    if found is not None:
        print(f"{program}: {found}", file=sys.stderr)
        return USAGE_EXIT
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < LEAST_MEMORY:
        # Libraries end the process in various ways.
        text = f"ulimit -v allows this process {limit >> 10} KiB; it needs {LEAST_MEMORY >> 10} to start: raise it"
        print(f"{program}: {text}", file=sys.stderr)
        return USAGE_EXIT
    gc.disable()
    try:
        module, function = MAINS[program]
        main = getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        print(f"{program}: interrupted by Ctrl-C", file=sys.stderr)
        return INTERRUPTED_EXIT
    # Modules stay to the end: collections, the one at exit too, need not go through them. With the collections while
    # they are imported, that is a fifth of the CPU time of a short run.
    gc.freeze()
    gc.enable()
    code: int = main()
    return code


def _prepare_process() -> None:
    """Make this process fit for a command, before anything is imported that opens a file or starts a thread."""
    # Requests for a run's state may be sent to a whole process group; before and after a run they are ignored.
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    # A file or a socket that is opened under the number of a closed stream would get what is printed.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    # A crash in C code, which code of a user may call here, says where.
    faulthandler.enable(file=2, all_threads=False)


def launch() -> int:
    """``ahbm-launch``."""
    return _start("ahbm-launch")


def probe() -> int:
    """``ahbm-probe``."""
    return _start("ahbm-probe")


def bench() -> int:
    """``ahbm-bench``."""
    return _start("ahbm-bench")


def races() -> int:
    """``ahbm-races``."""
    return _start("ahbm-races")


def agent() -> int:
    """``ahbm-agent``."""
    return _start("ahbm-agent")


def broker() -> int:
    """``ahbm-broker``."""
    return _start("ahbm-broker")


def sip() -> int:
    """``ahbm-sip``."""
    return _start("ahbm-sip")
