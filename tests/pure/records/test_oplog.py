"""The op log: canonical lines, and a hash that depends on them and on nothing else."""

import hashlib

import pytest

import sipsim.records.oplog
from sipsim.chips.ahbm.pe.engine import ENGINES
from sipsim.records.oplog import FIELDS, OpLog, line, record_kind

ENGINES.names()  # loads all engines, which define the kinds of records

LINES = [
    ("ipcq.send", 10, 10, 1, 0, "0.1.0", "0.2.0", "tcm", 4096, 64, "E", "f16", "32", 0, "h3"),
    ("ipcq.recv", 10, 90, 2, 0, "return_slot", "0.1.0", "0.2.0", "tcm", 4096, 64, "W", "f16", "32", 1, "h0", "-"),
    ("math", 90, 95, 2, 0, "add", "f16", "4x8", "h0,h1", "h2"),
    ("dma_write", 95, 120, 2, 0, 8192, 64, "f16", "4x8", "h2"),
]


def log(count: int, keep: bool = False) -> OpLog:
    made = OpLog(keep)
    for i in range(count):
        made.append(LINES[i % len(LINES)])
    return made


def text(count: int) -> str:
    return "".join(line(LINES[i % len(LINES)]) for i in range(count))


def test_a_line_shows_every_field() -> None:
    assert line(LINES[1]) == (
        "ipcq.recv 10 90 2 0 recv_mode=return_slot src=0.1.0 dst=0.2.0 space=tcm addr=4096 nbytes=64 dir=W "
        "dtype=f16 shape=32 consumer_seq=1 result=h0 dst_addr=-\n"
    )
    assert line(LINES[2]) == "math 90 95 2 0 op=add dtype=f16 shape=4x8 operands=h0,h1 result=h2\n"


@pytest.mark.parametrize("flush_every", [1, 2, 7, 512])
@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 30])
def test_the_hash_is_of_the_lines(monkeypatch: pytest.MonkeyPatch, flush_every: int, count: int) -> None:
    """However many are flushed at once."""
    monkeypatch.setattr(sipsim.records.oplog, "FLUSH_EVERY", flush_every)
    assert log(count).sha256() == hashlib.sha256(text(count).encode()).hexdigest()


def test_sha256_does_not_change_the_state() -> None:
    asked, silent = log(3), log(3)
    asked.sha256()
    for made in (asked, silent):
        made.append(LINES[3])
    assert asked.sha256() == asked.sha256() == silent.sha256() == hashlib.sha256(text(4).encode()).hexdigest()


def test_keep_returns_all_records_and_the_same_hash() -> None:
    kept, lean = log(1030, keep=True), log(1030)
    assert kept.sha256() == lean.sha256()
    assert kept.records == [LINES[i % len(LINES)] for i in range(1030)]
    assert lean.records == []
    assert kept.count == lean.count == 1030


@pytest.mark.parametrize("index", range(1, len(LINES[0])))
def test_every_value_moves_the_hash(index: int) -> None:
    changed = list(LINES[0])
    changed[index] = f"{changed[index]}1"
    made = OpLog()
    made.append(tuple(changed))
    assert made.sha256() != log(1).sha256()


def test_order_moves_the_hash() -> None:
    one, two = OpLog(), OpLog()
    for made, order in ((one, (0, 1)), (two, (1, 0))):
        for i in order:
            made.append(LINES[i])
    assert one.sha256() != two.sha256()


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_a_wrong_number_of_fields_is_refused(kind: str) -> None:
    with pytest.raises(TypeError, match="not all arguments converted"):
        line((kind, 0, 0, 0, 0, *["x"] * (len(FIELDS[kind]) + 1)))


def test_a_kind_of_record_is_defined_once() -> None:
    with pytest.raises(ValueError, match="records of kind 'math' have the fields"):
        record_kind("math", "op")
