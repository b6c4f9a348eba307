"""The op log, the operations of every PE in canonical text (ADR-0023 D9.5), and the trace of sends and receives (D14).

One line an operation: ``kind start_ps end_ps cube pe field=value ...``. Lines are in the order of simulation, which is
the same for every engine and every timing of the mail; the hash is part of the run's digest.

A record names its operands and results: addresses, or handles (``h<n>``, counted on each PE), so that the operations
can be carried out again from the bytes in memory at the start. Where a program orders all accesses to an address by
commands that have ended, the order of a SIP's records is such an order; a message is that of its slot (``addr``) with
``sender_seq`` = ``consumer_seq`` - 1.
"""

import csv
import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sipsim.core.errors import OutputError
from sipsim.core.fields import no_time, simulated_time
from sipsim.core.files import REWRITE, open_file
from sipsim.core.registry import Definitions
from sipsim.records.artifacts import made


class LineFile:
    """A file of lines in a rank's artifact folder, whole after each line, so that the lines before a crash are in it.

    ``what`` it holds, and the ``flag`` that asks for it.
    """

    def __init__(self, path: Path, what: str, flag: str) -> None:
        self._file = os.fdopen(open_file(path, REWRITE), "w", buffering=1, newline="")
        self._path = path
        self._what = what
        self._flag = flag
        self._is_lost = False

    def write(self, lines: str) -> None:
        """Write whole lines.

        Raises:
            OutputError: when the disk is full.
        """
        try:
            self._file.write(lines)
        except OSError as error:
            self._is_lost = True
            hint = f"make room there, set TMPDIR to another folder, or leave {self._flag} out"
            raise OutputError(f"{self._path}: {self._what} cannot be written: {error.strerror}; {hint}") from None

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            # `write` has reported the lost line, which Python still buffers.
            if not self._is_lost:
                raise


FLUSH_EVERY = 512
MOST_DIGITS = 32
"""Bytes of values that are written themselves, as hexadecimal digits."""
DIGITS, SHA256 = "0x", "sha256:"
OPLOG_FILE = "oplog.txt"
"""The name of a rank's op log in its artifact folder."""


class OpLog:
    """Append-only, hashed as it grows. ``keep`` retains the records for tests; the hash needs none of them."""

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._hash = hashlib.sha256()
        self._pending: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._most_pending = FLUSH_EVERY
        self._file: LineFile | None = None
        self.count = 0

    def write_to(self, file: LineFile) -> None:
        """Write each line to a file, from now on."""
        self._most_pending, self._file = 1, file

    def note(self, record: tuple[Any, ...]) -> None:
        """Write what is no operation to the file, as a record of its kind: neither counted, kept nor hashed."""
        if self._file is not None:
            self._file.write(line(record))

    def append(self, record: tuple[Any, ...]) -> None:
        """Log one operation: kind, start and end in ps, cube, PE, and the fields of its kind."""
        self._pending.append(record)
        if len(self._pending) >= self._most_pending:
            self._flush()

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """All kept records."""
        self._flush()
        return self._records

    @property
    def total(self) -> int:
        """Records so far, hashed or not: the commands that have ended."""
        return self.count + len(self._pending)

    def sha256(self) -> str:
        """Hash of all lines."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        text = "".join([_TEMPLATES[record[0]] % record for record in self._pending])
        self._hash.update(text.encode())
        if self._file is not None and text:
            self._file.write(text)
        self.count += len(self._pending)
        if self._keep:
            self._records += self._pending
        self._pending.clear()


def oplog_file(oplog: OpLog, folder: str) -> LineFile:
    """The file in a rank's artifact folder that an op log is written to from now on."""
    file = LineFile(made(folder) / OPLOG_FILE, "the op log", "--oplog")
    oplog.write_to(file)
    return file


FIELDS = Definitions[str, tuple[str, ...]]()
"""Fields of each kind of record after kind, start, end, cube and PE. ``src`` and ``dst`` are sip.cube.pe."""
_TEMPLATES = Definitions[str, str]()


def record_kind(kind: str, *fields: str) -> str:
    """Define a kind of record by its fields; the kind.

    Raises:
        ValueError: for a kind that is defined already with other fields.
    """
    if FIELDS.get(kind, fields) != fields:
        raise ValueError(f"records of kind {kind!r} have the fields {FIELDS[kind]}, not {fields}")
    # As ``collections.namedtuple`` does: the kind is its caller's.
    module = sys._getframe(1).f_globals["__name__"]
    FIELDS.define(kind, fields, module)
    _TEMPLATES.define(kind, "%s %s %s %s %s " + " ".join(f"{name}=%s" for name in fields) + "\n", module)
    return kind


def definer_of(kind: str) -> str:
    """A module that defines a kind of record."""
    return min(FIELDS.modules[kind])


def line(record: tuple[Any, ...]) -> str:
    """The canonical text of one record."""
    return _TEMPLATES[record[0]] % record


def values_as_text(data: bytes | memoryview) -> str:
    """Values as the op log writes them: digits, or the SHA-256 of more than ``MOST_DIGITS`` bytes."""
    if len(data) <= MOST_DIGITS:
        return f"{DIGITS}{bytes(data).hex()}"
    return f"{SHA256}{hashlib.sha256(data).hexdigest()}"


@lru_cache(maxsize=1024)
def as_text(shape: tuple[int, ...]) -> str:
    """A shape as the op log writes it."""
    return "x".join(map(str, shape))


@lru_cache(maxsize=1024)
def shape_of(text: str) -> tuple[int, ...]:
    """The shape that the op log writes so."""
    return tuple(map(int, text.split("x"))) if text else ()


class TraceLine(NamedTuple):
    """A send that returned, or a receive that ended, at ``t_ps``."""

    rank: Annotated[int, no_time("The SIP whose kernel sent or received.")]
    cube: Annotated[int, no_time("The cube of the kernel's PE.")]
    pe: Annotated[int, no_time("The kernel's PE.")]
    t_ps: Annotated[int, simulated_time("When the message left for the ring, or the receive ended, in ps.")]
    op: Annotated[str, no_time("send or recv.")]
    dir: Annotated[str, no_time("The direction that the kernel named, or of the message that it got.")]
    nbytes: Annotated[int, no_time("The size of the message in bytes, without framing.")]
    run: Annotated[
        int | None, no_time("The collective, as its index in the result's runs; empty in a kernel of torch.launch.")
    ]
    start_ps: Annotated[int, simulated_time("When the kernel asked for it, in ps.")]
    peer: Annotated[str, no_time("The PE at the other end, as SIP.CUBE.PE.")]
    phase: Annotated[str, no_time("The phase of the kernel when it asked, as tl.phase names it; empty for none.")]


TRACE_FILE = "trace.csv"
"""The name of a rank's trace in its artifact folder."""


class TraceFile:
    """A rank's trace: one line each, ``(rank, t, dir, nbytes)`` of ADR-0023 D14, with cube and PE.

    ``close`` and errors as in :class:`LineFile`.
    """

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, "the trace", "--trace-ccl")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self.close = self._file.close

    def append(self, line: TraceLine) -> None:
        """Write one line."""
        self._lines.writerow(line)
