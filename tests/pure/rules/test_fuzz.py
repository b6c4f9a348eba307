"""Whatever decodes bytes of others ends in acceptance or in its own error, in bounded memory and in bounded steps.

The targets are those of ``fuzz_targets.py``.
"""

import random
import sys
import tracemalloc
from types import FrameType
from typing import Any

import msgspec
import pytest
from fuzz_targets import KEPT, PARCEL, Target, log_of, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from mangle import CLAIMS, DEEP, mangled

from launcher.hosts.wire import encode
from launcher.processes.fork_server import SetUp, StartProcess
from sipsim.records.dump import SipDump, TaskState

TARGETS = targets()
pytestmark = pytest.mark.fault
MOST_BYTES = 16 * 2**20
MOST_LINES = 1_000_000
LONGEST = 20_000
QUICK = settings(derandomize=True, database=None, max_examples=100)
DEEPER = b"[" * 100_000
QUEUELESS = TaskState((7, 0, 0), "", "", "recv", ("E",))
FOUND: list[tuple[str, bytes]] = [
    ("agent", encode(SetUp(DEEPER.decode()))),
    ("agent", encode(StartProcess(1, 0, None))[:-1] + b"\x91" * 100_000),
    ("dump", b'{"x":' + DEEPER),
    ("dump", msgspec.json.encode(SipDump(0, 5, (), (QUEUELESS,)))),
    ("environ", "AHBM_NODE_RANK=1\0SLURM_JOB_ID=5\0SLURM_NNODES=²".encode()),
    ("environ", b"AHBM_NODE_RANK=1\0SLURM_JOB_ID=5\0SLURM_NNODES=" + b"9" * 5000),
    ("evidence", b"\x93NUMPY\x01\x00\x04\x00{'a'"),
    ("log", log_of((1, b"no parcel"))),
    ("log", log_of((4096, PARCEL))),
    ("log", log_of((-7, PARCEL))),
    ("log", log_of((-1, b"\xff" * 8))),
    ("outcome", b'{"x":' + DEEPER),
    ("run_file", b'{"x":' + DEEPER),
    ("run_file", msgspec.json.encode({**KEPT, "cwd": "a\0b"})),
    ("trace", b"a" * 140_000 + b"\n"),
    ("trace", b"1,0,2\n\xff,,,,,,\n"),
]
"""What was answered with another error once."""


class TooLong(BaseException):
    """A target that does not get done."""


def weighed(target: Target, data: bytes) -> int:
    """How many bytes of memory it takes."""
    tracemalloc.start()
    try:
        target.try_on(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def counted(target: Target, data: bytes) -> int:
    """How many lines of Python it takes; stops one that takes too many."""
    lines = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > MOST_LINES:
            raise TooLong(f"{lines} lines for {len(data)} bytes")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        target.try_on(data)
    finally:
        sys.settrace(before)
    return lines


def hostile(target: Target) -> list[bytes]:
    """What is made to take memory, time or stack, alone and inside of what is accepted."""
    found = [b"", b"\x00", b"\xc1", b"\xc0", *CLAIMS, *(claim * 20 for claim in CLAIMS), b"\xdc\xff\xff" * 20_000]
    found += [opening * DEEP for opening in (b"\x91", b"[", b'{"a":', b"{", b"- ", b"a: ", b"\x81\xa1a", b"(", b"&a ")]
    found += [b"[" * LONGEST, b"\x91" * LONGEST, b"9" * LONGEST, b"a" * LONGEST, b"\n" * LONGEST, b"\xff" * LONGEST]
    found += [b"\x82\xa1a\x01\xa1a\x02", b'{"a": 1, "a": 2}', b"a: 1\na: 2\n", b"\x91\xcb\x7f\xf8" + bytes(6), b"NaN"]
    found += [b"a: &a [b, b]\n" + b"".join(b"a%d: &a%d [*a, *a, *a]\n" % (n, n) for n in range(100))]
    for sample in target.samples[:3]:
        found += [sample * (LONGEST // max(len(sample), 1)), sample[:9] + b"\x91" * DEEP, sample[:9] + b"[" * DEEP]
        found += [sample[:at] + claim for claim in CLAIMS for at in (1, 8, 9, 10, len(sample) // 2)]
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_accepted(name: str) -> None:
    target = TARGETS[name]
    assert target.samples
    for sample in target.samples:
        target.take(sample)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    @QUICK
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        TARGETS[name].try_on(data)

    check()


@pytest.mark.parametrize("examples", [200, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_nearly_right(name: str, examples: int) -> None:
    """Some of it must be right and some wrong, or the changes are of no use."""
    target, answers = TARGETS[name], set()

    @settings(QUICK, max_examples=examples)
    @given(st.sampled_from(target.samples), st.integers(0, 2**32))
    def check(sample: bytes, seed: int) -> None:
        answers.add(target.try_on(mangled(sample, random.Random(seed), target.words)))

    check()
    assert answers == ({True} if name == "trace" else {True, False}), "a trace has only lines that are left out"


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_made_to_hurt(name: str) -> None:
    for data in hostile(TARGETS[name]):
        assert weighed(TARGETS[name], data) < MOST_BYTES, data[:50]
        assert counted(TARGETS[name], data) <= MOST_LINES


@pytest.mark.parametrize("name", TARGETS)
def test_cut_anywhere(name: str) -> None:
    for sample in TARGETS[name].samples:
        for length in range(0, len(sample), len(sample) // 200 + 1):
            TARGETS[name].try_on(sample[:length])


@pytest.mark.parametrize(("name", "data"), FOUND, ids=[f"{name}-{number}" for number, (name, _) in enumerate(FOUND)])
def test_what_was_found_before(name: str, data: bytes) -> None:
    assert counted(TARGETS[name], data) <= MOST_LINES
