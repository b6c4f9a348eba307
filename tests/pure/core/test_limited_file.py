"""Files that a user names, whatever they are: all of it, or a refusal, and never a wait or memory without end."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.isolation import opened
from sipsim.core import files as limited_file
from sipsim.core.files import read_limited


@given(data=st.binary(max_size=40), most=st.integers(0, 40))
def test_all_of_a_file_or_none(data: bytes, most: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "limited"
    path.write_bytes(data)
    assert read_limited(path, most) == (data if len(data) <= most else None)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full"])
def test_a_device_without_an_end(name: str) -> None:
    assert read_limited(Path(name), 100_000) is None


@pytest.mark.parametrize("name", ["folder", "missing"])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=name):
        read_limited(tmp_path / name, 9)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_to_which_nobody_writes(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_file, "LONGEST_WAIT_S", 0.01)
    with pytest.raises(OSError, match="no data arrived"):
        read_limited(pipe, 9)


def test_a_pipe_with_a_writer(pipe: Path) -> None:
    writer = threading.Thread(target=pipe.write_text, args=("six B\n",))
    writer.start()
    assert read_limited(pipe, 9) == b"six B\n"
    writer.join()


def test_a_pipe_that_nobody_reads_is_not_written_to(pipe: Path) -> None:
    with pytest.raises(OSError, match="this pipe has no reader"), opened(pipe):
        pass


def test_a_pipe_that_somebody_reads(pipe: Path) -> None:
    """What is written is more than the pipe holds."""
    got: list[str] = []
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)

    def read() -> None:
        with open(reading) as file:
            got.append(file.read())

    reader = threading.Thread(target=read)
    with opened(pipe) as file:
        # Before there is a writer a reader would find the end.
        reader.start()
        file.write("x" * 200_000)
    reader.join()
    assert got == ["x" * 200_000]
