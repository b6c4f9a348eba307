"""The packet log: what is read is what was written, whatever a kill left at its end."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.wire import PacketBatch, decode_for_sip, encode
from sipsim.core.errors import ConfigError, OutputError
from sipsim.core.session import fingerprint
from sipsim.node.packet_log import PacketLog

DIGEST = "d" * 64
Result = TypeVar("Result")


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


HEADER_BYTES = len(f"ahbm packets 2 {DIGEST} 0\n")


def whole_records(data: bytes) -> list[bytes]:
    """The records of a log, as the module's docstring has them."""
    records, at = [], HEADER_BYTES
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        records.append(data[at:end])
        at = end
    return records


class Damage(NamedTuple):
    """What happens to the bytes of a log: ``at`` and ``other`` are places in it, in thousandths."""

    kind: str
    at: int
    other: int

    def of(self, data: bytes) -> bytes:
        at, other = sorted(place * len(data) // 1000 for place in (self.at, self.other))
        records = whole_records(data)
        one, two = sorted(place * len(records) // 1000 for place in (self.at, self.other))
        match self.kind:
            case "flip":
                return data[:at] + bytes([data[at] ^ 1 << self.other % 8]) + data[at + 1 :]
            case "cut":
                return data[:at]
            case "lost":
                return data[:at] + data[other:]
            case "twice":
                return data[:other] + data[at:]
            case "zeros":
                return data[:at] + bytes(other - at) + data[other:]
            case "longer":
                return data + data[at:other]
            case "huge":
                return data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
        kept = {
            "a record lost": records[:one] + records[one + 1 :],
            "a record twice": records[: one + 1] + records[one:],
            "records exchanged": [
                *records[:one],
                records[two],
                *records[one + 1 : two],
                records[one],
                *records[two + 1 :],
            ],
        }
        return data[:HEADER_BYTES] + b"".join(kept[self.kind] if one < two else records)


KINDS = ("flip", "cut", "lost", "twice", "zeros", "longer", "huge")
PLACES = st.integers(0, 999)
DAMAGE = st.builds(
    Damage, st.sampled_from((*KINDS, "a record lost", "a record twice", "records exchanged")), PLACES, PLACES
)


def state_of(log: PacketLog) -> tuple[object, ...]:
    return log.logged, log.logged_ps, log.logged_counts(), [list(log.batches(dst)) for dst in (1, 2, 3)]


def or_line(act: Callable[[], Result]) -> Result | str:
    """What it returns, or the line with which it is refused."""
    try:
        return act()
    except (ConfigError, OutputError) as error:
        return str(error)


@given(DAMAGE)
@example(Damage("records exchanged", 0, 500))
def test_a_damaged_log_is_refused_or_is_what_was_written_up_to_the_damage(
    tmp_path_factory: pytest.TempPathFactory, damage: Damage
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = write(folder)
    whole = path.read_bytes()
    path.write_bytes(damage.of(whole))
    log = or_line(lambda: PacketLog(str(folder), 0, DIGEST))
    if isinstance(log, str):
        assert log.startswith(f"{path}: ")
        assert path.read_bytes()[:HEADER_BYTES] != whole[:HEADER_BYTES]
        return
    found = state_of(log)
    assert bool(log.notice) == (path.stat().st_size < len(damage.of(whole))), "every cut is told"
    log.close()
    kept = path.read_bytes()
    assert whole.startswith(kept)
    # What stands in a log that was only ever written so far.
    path.write_bytes(kept)
    again = PacketLog(str(folder), 0, DIGEST)
    assert (state_of(again), again.notice) == (found, "")
    ones = len(again.logged.get(1, []))
    again.append(1, batch(ones, 2))
    again.close()
    third = PacketLog(str(folder), 0, DIGEST)
    assert numbers(list(third.batches(1))) == list(range(ones + 2))
    third.close()


@given(DAMAGE)
def test_damage_under_a_running_sip_is_told_when_its_packets_are_needed(
    tmp_path_factory: pytest.TempPathFactory, damage: Damage
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = write(folder)
    log, whole = PacketLog(str(folder), 0, DIGEST), path.read_bytes()
    wanted, damaged = list(log.batches(1)), damage.of(whole)
    with path.open("r+b") as file:
        file.write(damaged)
        file.truncate()
    found = or_line(lambda: list(log.batches(1)))
    if isinstance(found, str):
        assert damaged[HEADER_BYTES : len(whole)] != whole[HEADER_BYTES:]
        assert found.startswith(f"{path}: ")
    else:
        assert damaged[HEADER_BYTES : len(whole)] == whole[HEADER_BYTES:]
        assert found == wanted
    log.close()


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


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (f"ahbm packets 2 {'e' * 64} 0\n", "of another plan"),
        (f"ahbm packets 2 {DIGEST} 1\n", "of another rank"),
        (f"ahbm packets 1 {DIGEST}\n", "not a packet log"),
        (f"ahbm packets 3 {DIGEST} 0\n", "of another version"),
        ("notes", "not a packet log"),
    ],
)
def test_a_file_that_is_not_this_log_is_refused_and_kept(tmp_path: Path, header: str, says: str) -> None:
    path = tmp_path / "sip-0.packets"
    path.write_text(header)
    with pytest.raises(ConfigError, match=says) as caught:
        PacketLog(str(tmp_path), 0, DIGEST)
    assert str(caught.value).startswith(f"{path}: ")
    assert "away; the SIP then simulates" in str(caught.value)
    assert path.read_text() == header


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
