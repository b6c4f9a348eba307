"""Files in folders that another user may have prepared: nothing but a new or own regular file is ever opened."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from traps import FOLDERS, NOBODY, TRAPS, as_root

from sipsim.core.files import (
    APPEND,
    PRIVATE,
    READABLE,
    REWRITE,
    Folder,
    Unsafe,
    open_file,
    open_named,
    write_file,
)

KEPT = b"the victim's"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victims" / "file"
    path.parent.mkdir()
    path.write_bytes(KEPT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "prepared"
    path.mkdir(0o700)
    return path


def is_untouched(victim: Path) -> bool:
    return (os.listdir(victim.parent), victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (
        ["file"],
        KEPT,
        0o644,
    )


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("flags", [APPEND, REWRITE, os.O_RDWR, os.O_RDWR | os.O_CREAT], ids=hex)
def test_no_trap_is_opened(folder: Path, victim: Path, trap: str, flags: int) -> None:
    TRAPS[trap](folder / "name", victim)
    with pytest.raises(Unsafe) as caught:
        open_file(folder / "name", flags)
    assert (caught.value.filename, is_untouched(victim)) == (str(folder / "name"), True)


@pytest.mark.parametrize("trap", [trap for trap in TRAPS if trap != "hard link"])
def test_no_trap_is_read(folder: Path, victim: Path, trap: str) -> None:
    """A second name of an own file harms no reader."""
    TRAPS[trap](folder / "name", victim)
    with pytest.raises(Unsafe), Folder(folder) as own:
        own.read("name", 10)


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", ["name", f".name.{os.getpid()}"], ids=["name", "temporary"])
def test_a_file_that_is_written_whole_takes_the_name_from_any_trap(
    folder: Path, victim: Path, trap: str, name: str
) -> None:
    name = f".name.{os.getpid()}" if name != "name" else name
    TRAPS[trap](folder / name, victim)
    write_file(folder / "name", b"new", READABLE)
    assert (os.listdir(folder), (folder / "name").read_bytes(), is_untouched(victim)) == (["name"], b"new", True)
    assert not (folder / "name").is_symlink()


@pytest.mark.parametrize("spoil", FOLDERS)
def test_no_folder_is_used_in_which_others_decide_what_names_mean(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder)
    for use in (Folder, lambda path: open_file(path / "x", APPEND), lambda path: write_file(path / "x", b"")):
        with pytest.raises(Unsafe):
            use(folder)
    assert os.listdir(folder) == []


def test_folders_that_may_be_used(folder: Path) -> None:
    """Others may write in it but change no name of ours; or they may only look."""
    for mode in (0o1777, 0o755, 0o500):
        folder.chmod(mode)
        Folder(folder).close()


def test_a_group_of_several_is_others(folder: Path) -> None:
    as_root(os.chown, folder, -1, NOBODY)
    folder.chmod(0o770)
    with pytest.raises(Unsafe):
        Folder(folder)


def test_a_folder_that_is_exchanged_after_its_check_is_not_entered(folder: Path, victim: Path) -> None:
    with Folder(folder) as own:
        folder.rename(folder.with_name("elsewhere"))
        folder.symlink_to(victim.parent)
        own.write("file", b"new")
        os.close(own.open("log", APPEND))
    assert is_untouched(victim)
    assert sorted(os.listdir(folder.with_name("elsewhere"))) == ["file", "log"]


def test_links_of_others_are_followed_nowhere_and_own_ones_to_what_the_user_named(tmp_path: Path, victim: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(victim)
    os.close(open_named(link, os.O_WRONLY))
    as_root(lambda: os.lchown(link, NOBODY, NOBODY))
    with pytest.raises(Unsafe):
        open_named(link, REWRITE)
    link.unlink()
    link.symlink_to(victim.parent)
    as_root(lambda: os.lchown(link, NOBODY, NOBODY))
    with pytest.raises(Unsafe):
        Folder(link)
    assert is_untouched(victim)


@pytest.mark.parametrize("mode", [PRIVATE, READABLE])
def test_umask_takes_from_modes(folder: Path, mode: int) -> None:
    before = os.umask(0o027)
    try:
        write_file(folder / "written", b"", mode)
        os.close(open_file(folder / "opened", APPEND, mode))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {mode & ~0o027}


def test_a_full_disk_is_told_with_the_file_that_keeps_what_it_had(small_disk: Path) -> None:
    write_file(small_disk / "name", b"old")
    with pytest.raises(OSError, match="No space") as caught:
        write_file(small_disk / "name", bytes(2**17))
    assert caught.value.filename == str(small_disk / "name")
    assert (os.listdir(small_disk), (small_disk / "name").read_bytes()) == (["name"], b"old")
