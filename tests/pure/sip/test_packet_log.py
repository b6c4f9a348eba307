"""The packet log: what is read is what was written, whatever a kill left at its end.

Seen to fail with these bugs planted: a torn record read, a torn record appended to, a mark counted without the parcels
above it, a checksum not looked at, a log of another plan continued, parcels given from after the number asked for.
"""

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
    """Two parcels to 1, a mark, one to 2, one to 1, a mark; then so many bytes less."""
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
    assert log.told_logged() == ((1, 7, 100), (2, 3, 100))
    assert numbers(list(log.parcels(1))) == list(range(7))
    assert numbers(list(log.parcels(2))) == [0, 1, 2]
    assert list(log.parcels(3)) == []
    log.close()


@pytest.mark.parametrize(("first", "given"), [(0, 0), (1, 0), (2, 2), (3, 3), (6, 3), (7, 7)])
def test_parcels_from_a_number_on(tmp_path: Path, first: int, given: int) -> None:
    write(tmp_path)
    log = PacketLog(str(tmp_path), 0, DIGEST)
    assert numbers(list(log.parcels(1, first))) == list(range(given, 7))
    log.close()


def test_what_waits_to_be_written_is_given_too(tmp_path: Path) -> None:
    log = PacketLog(str(tmp_path), 0, DIGEST)
    log.append(1, batch(0, 2))
    assert numbers(list(log.parcels(1))) == [0, 1]
    log.close()


@given(cut=st.integers(0, 400), flip=st.none() | st.integers(0, 400))
def test_any_end_is_cut_back_to_whole_records_and_continued(
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
    assert numbers(list(log.parcels(1))) == list(range(ones))
    log.append(1, batch(ones, 2))
    log.close()
    again = PacketLog(str(folder), 0, DIGEST)
    assert len(again.logged[1]) == ones + 2
    assert again.logged_ps == log.logged_ps
    again.close()


def test_a_predecessor_that_lives_on_writes_where_nobody_reads(tmp_path: Path) -> None:
    """Planted: both write one file; of what the successor wrote a few packets were left, and nobody was told."""
    old = PacketLog(str(tmp_path), 0, DIGEST)
    old.append(1, batch(0, 2))
    old.flush()
    new = PacketLog(str(tmp_path), 0, DIGEST)
    new.append(1, batch(2, 5))
    new.flush()
    old.append(1, batch(2, 1))
    old.close()
    new.append(1, batch(7, 3))
    assert numbers(list(new.parcels(1))) == list(range(10))
    new.close()
    third = PacketLog(str(tmp_path), 0, DIGEST)
    assert third.told_logged()[0][:2] == (1, 10)
    third.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sip-0.packets"]


def test_a_log_of_another_plan(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match="of another plan"):
        PacketLog(str(tmp_path), 0, "e" * 64)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "sip-0.packets").write_text("notes")
    with pytest.raises(ConfigError, match="not a packet log"):
        PacketLog(str(tmp_path), 0, DIGEST)


@pytest.mark.parametrize("length", [0, 1, 20, 79])
def test_a_header_that_was_cut_is_written_again(tmp_path: Path, length: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    log = PacketLog(str(tmp_path), 0, DIGEST)
    assert (log.logged, log.logged_ps) == ({}, 0)
    log.close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        PacketLog(str(tmp_path / "none"), 0, DIGEST)
