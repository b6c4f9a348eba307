"""What another user may have prepared at a name, so that something else is read or written in place of a new file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534
Trap = Callable[[Path, Path], object]
"""Takes the name, and the victim."""


def _of_another(path: Path, _victim: Path) -> None:
    path.write_text("planted")
    as_root(os.chown, path, NOBODY, NOBODY)


def as_root(does: Callable[..., object], *args: object) -> None:
    """What needs root; the test is skipped for others."""
    if os.geteuid():
        pytest.skip("only root can make files of other users")
    does(*args)


TRAPS: dict[str, Trap] = {
    "link": lambda path, victim: path.symlink_to(victim),
    "link to nothing": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "hard link": lambda path, victim: path.hardlink_to(victim),
    "pipe": lambda path, _: os.mkfifo(path),
    "device": lambda path, _: as_root(os.mknod, path, 0o20666, os.makedev(1, 3)),
    "of another user": _of_another,
}


def opened_to_others(folder: Path) -> None:
    """Any user can write there."""
    folder.chmod(0o777)


def given_away(folder: Path) -> None:
    """It is another user's."""
    as_root(os.chown, folder, NOBODY, NOBODY)


FOLDERS: list[Callable[[Path], None]] = [opened_to_others, given_away]
"""What can be wrong with a folder."""
