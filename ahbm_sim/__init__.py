"""The commands of the distribution ``ahbm-sim``, in a package whose name no other distribution uses.

Other distributions may also have packages ``broker``, ``sipsim`` or ``launcher``. Before any of them is imported, each
command checks that Python finds this distribution's packages; ``launcher`` checks again for programs that import it.
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
"""The line in each package's ``__init__.py`` that identifies it as a package of this distribution."""
USAGE_EXIT = 2
INTERRUPTED_EXIT = 130
LEAST_MEMORY = 200 << 20
"""The least address space for the libraries and a small run, in bytes."""
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
    """Check that Python finds this distribution's packages and configs; return a problem in one line, or None.

    No package is imported.
    """
    root = Path(__file__).resolve().parent.parent
    for name in packages:
        found = _file_of(name)
        if found is None or found.parent.parent != root or MARK not in found.read_text(encoding="utf-8").splitlines():
            where = "none" if found is None else f"{found}{_owner(name)}"
            return f"package {name} must be the one of {NAME}, in {root}; Python finds {where}: {ADVICE}"
    if not (root / "sipsim" / "_configs").is_dir() and not (root / "pyproject.toml").is_file():
        return f"{root} has no default configs of {NAME} (sipsim/_configs); install {NAME} again"
    return None


def _file_of(name: str) -> Path | None:
    """Return the file that an import of package ``name`` would load; None if Python finds no file."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def _owner(name: str) -> str:
    """Return `` of distribution NAMES`` for the other distributions with a package of this name, or ""."""
    # Imported here, since the import takes a large part of the start time.
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
        # With less memory, libraries crash the process without a clear message.
        text = f"ulimit -v allows this process {limit >> 10} KiB; set at least {LEAST_MEMORY >> 10} KiB"
        print(f"{program}: {text}", file=sys.stderr)
        return USAGE_EXIT
    gc.disable()
    try:
        module, function = MAINS[program]
        main = getattr(importlib.import_module(module), function)
    except KeyboardInterrupt:
        print(f"{program}: interrupted by Ctrl-C", file=sys.stderr)
        return INTERRUPTED_EXIT
    # Modules are never freed, so garbage collections, including the one at exit, need not visit them. This, and no
    # collections during imports, saves a fifth of the CPU time of a short run.
    gc.freeze()
    gc.enable()
    code: int = main()
    return code


def _prepare_process() -> None:
    """Set up signals and standard streams, before any import that opens a file or starts a thread."""
    # Signals that request a run's state may be sent to a whole process group; before and after a run, ignore them.
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    # A file or socket that takes the descriptor number of a closed standard stream would receive printed text.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    # For a crash in C code that a user's code calls, print the place.
    faulthandler.enable(file=2, all_threads=False)


def launch() -> int:
    """Run the command ``ahbm-launch``; return its exit code."""
    return _start("ahbm-launch")


def probe() -> int:
    """Run the command ``ahbm-probe``; return its exit code."""
    return _start("ahbm-probe")


def bench() -> int:
    """Run the command ``ahbm-bench``; return its exit code."""
    return _start("ahbm-bench")


def races() -> int:
    """Run the command ``ahbm-races``; return its exit code."""
    return _start("ahbm-races")


def agent() -> int:
    """Run the command ``ahbm-agent``; return its exit code."""
    return _start("ahbm-agent")


def broker() -> int:
    """Run the command ``ahbm-broker``; return its exit code."""
    return _start("ahbm-broker")


def sip() -> int:
    """Run the command ``ahbm-sip``; return its exit code."""
    return _start("ahbm-sip")
