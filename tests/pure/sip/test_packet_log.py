"""The packet log: what is read is what was written, whatever a kill left at its end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import PacketBatch, decode_for_sip, encode
from sipsim.errors import ConfigError
from sipsim.recovery.packet_log import PacketLog, fingerprint

DIGEST = "d" * 64


def packet(number: int, nbytes: int = 5) -> tuple[int, int, bytes]:
    return number % 3, 100 + 7 * number % 50, bytes([number % 256]) * nbytes


def batch(first: int, count: int) -> bytes:
    return encode(PacketBatch(0, first, tuple(packet(n) for n in range(first, first + count))))


def write(folder: Path, *, cut: int = 0) -> Path:
    """Two batches to 1, a mark, one to 2, one to 1, a mark; then ``cut`` bytes are truncated."""
    log = PacketLog(str(folder), 0, DIGEST)
    log.append(1, batch(0, 2))
    log.append(1, batch(2, 1))
    log.mark(40)
    log.append(2, batch(0, 3))
    log.append(1, batch(3, 4))
    log.mark(90)
    log.close()
    path = folder / "sip-0.packets"
    with path.open("r+b") as file:
        file.truncate(max(file.seek(0, 2) - cut, 0))
    return path


def numbers(frames: list[bytes]) -> list[int]:
    found = []
    for frame in frames:
        message = decode_for_sip(frame)
        assert isinstance(message, PacketBatch)
        assert message.packets == tuple(packet(n) for n in range(message.first, message.first + len(message.packets)))
        found += range(message.first, message.first + len(message.packets))
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    log = PacketLog(str(tmp_path), 0, DIGEST)
    assert log.logged_ps == 90
    assert log.logged == {1: [fingerprint(packet(n)) for n in range(7)], 2: [fingerprint(packet(n)) for n in range(3)]}
    assert log.logged_counts() == ((1, 7, 100), (2, 3, 100))
    assert numbers(list(log.batches(1))) == list(range(7))
    assert numbers(list(log.batches(2))) == [0, 1, 2]
    assert list(log.batches(3)) == []
    log.close()


@pytest.mark.parametrize(("first", "given"), [(0, 0), (1, 0), (2, 2), (3, 3), (6, 3), (7, 7)])
def test_batches_from_a_packet_number_on(tmp_path: Path, first: int, given: int) -> None:
    write(tmp_path)
    log = PacketLog(str(tmp_path), 0, DIGEST)
    assert numbers(list(log.batches(1, first))) == list(range(given, 7))
    log.close()


def test_batches_include_unwritten_ones(tmp_path: Path) -> None:
    log = PacketLog(str(tmp_path), 0, DIGEST)
    log.append(1, batch(0, 2))
    assert numbers(list(log.batches(1))) == [0, 1]
    log.close()


@given(cut=st.integers(0, 400), flip=st.none() | st.integers(0, 400))
def test_a_torn_end_is_truncated_and_continued(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int | None
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = write(folder, cut=cut)
    if flip is not None:
        data = bytearray(path.read_bytes())
        at = max(len(data) - 1 - flip, 80)
        if at < len(data):
            data[at] ^= 0x55
        path.write_bytes(data)
    log = PacketLog(str(folder), 0, DIGEST)
    ones = len(log.logged.get(1, []))
    assert (log.logged_ps, ones >= {0: 0, 40: 3, 90: 7}[log.logged_ps]) in ((0, True), (40, True), (90, True))
    assert numbers(list(log.batches(1))) == list(range(ones))
    log.append(1, batch(ones, 2))
    log.close()
    again = PacketLog(str(folder), 0, DIGEST)
    assert len(again.logged[1]) == ones + 2
    assert again.logged_ps == log.logged_ps
    again.close()


def test_writes_of_a_predecessor_are_ignored(tmp_path: Path) -> None:
    old = PacketLog(str(tmp_path), 0, DIGEST)
    old.append(1, batch(0, 2))
    old.flush()
    new = PacketLog(str(tmp_path), 0, DIGEST)
    new.append(1, batch(2, 5))
    new.flush()
    old.append(1, batch(2, 1))
    old.close()
    new.append(1, batch(7, 3))
    assert numbers(list(new.batches(1))) == list(range(10))
    new.close()
    third = PacketLog(str(tmp_path), 0, DIGEST)
    assert third.logged_counts()[0][:2] == (1, 10)
    third.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sip-0.packets"]


def test_a_log_of_another_plan(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match="of another plan"):
        PacketLog(str(tmp_path), 0, "e" * 64)


def test_a_file_that_is_not_a_packet_log(tmp_path: Path) -> None:
    (tmp_path / "sip-0.packets").write_text("notes")
    with pytest.raises(ConfigError, match="not a packet log"):
        PacketLog(str(tmp_path), 0, DIGEST)


@pytest.mark.parametrize("length", [0, 1, 20, 79])
def test_a_torn_header_is_rewritten(tmp_path: Path, length: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    log = PacketLog(str(tmp_path), 0, DIGEST)
    assert (log.logged, log.logged_ps) == ({}, 0)
    log.close()


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        PacketLog(str(tmp_path / "none"), 0, DIGEST)
