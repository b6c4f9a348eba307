"""What the commands have in common: standard output that may break, exit codes of mistakes, answers as files."""

import sys
from collections.abc import Callable
from pathlib import Path

from launcher.report.destination import opened
from launcher.run.options import Usage
from launcher.run.output import safe_output
from sipsim.errors import ERROR_KINDS, AhbmError, ConfigError


def run_command(name: str, answer: Callable[[], None]) -> int:
    """Answer, and return 0, or the exit code of a mistake, with one line that starts with the command's ``name``."""
    return with_safe_output(name, lambda: _answered(name, answer))


def with_safe_output(name: str, run: Callable[[], int]) -> int:
    """The exit code of ``run``, or that of an output that could not be written, which is told."""
    with safe_output() as out:
        code = run()
        out.flush()
        if out.trouble:
            print(f"{name}: standard output cannot be written: {out.trouble}", file=sys.stderr)
            return code or ERROR_KINDS["internal"]
        return code


def _answered(name: str, answer: Callable[[], None]) -> int:
    try:
        answer()
    except Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        return usage.exit_code
    except AhbmError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return ConfigError.exit_code
    return 0


def write_file(path: Path | None, text: str) -> None:
    """Write a text where a flag asks for it: a file, or standard output."""
    if path is not None:
        with opened(path) as file:
            file.write(text)
