"""The op log, the operations of every PE in canonical text (ADR-0023 D9.5), and the trace of sends and receives (D14).

One line per operation: ``kind start_ps end_ps cube pe field=value ...``. Lines are in the order of simulation, which is
the same for every engine and every timing of the mail; the hash is part of the run's digest.

A record names its operands and results by address, or by handle (``h<n>``, counted on each PE), so that the operations
can be performed again from the initial contents of memory. If a program orders all accesses to an address by commands
that have ended, then the order of a SIP's records respects the program's order. A recv takes the message of its slot
(``addr``) with ``sender_seq`` = ``consumer_seq`` - 1.
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
from sipsim.records.artifacts import make_artifact_folder


class LineFile:
    """A text file in a rank's artifact folder, flushed after each line, so that no line before a crash is lost.

    ``what``: what the file contains; ``flag``: the option that requests the file; both for messages.
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
            OutputError: writing fails, such as on a full disk.
        """
        try:
            self._file.write(lines)
        except OSError as error:
            self._is_lost = True
            hint = f"free disk space there, set TMPDIR to another folder, or leave {self._flag} out"
            raise OutputError(f"{self._path}: {self._what} cannot be written: {error.strerror}; {hint}") from None

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            # ``write`` has already reported the line that Python still buffers.
            if not self._is_lost:
                raise


FLUSH_EVERY = 512
MOST_DIGITS = 32
"""The largest size, in bytes, of a value that the op log writes as hexadecimal digits; longer values are hashed."""
DIGITS, SHA256 = "0x", "sha256:"
OPLOG_FILE = "oplog.txt"
"""File name of a rank's op log in its artifact folder."""


class OpLog:
    """Append-only log of operations with a running SHA-256. ``keep``: True to store the records, too."""

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._hash = hashlib.sha256()
        self._pending: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._most_pending = FLUSH_EVERY
        self._file: LineFile | None = None
        self.count = 0

    def write_to(self, file: LineFile) -> None:
        """Write each line to ``file`` from now on."""
        self._most_pending, self._file = 1, file

    def note(self, record: tuple[Any, ...]) -> None:
        """Write a record that is not an operation to the file only. The record is not counted, stored or hashed."""
        if self._file is not None:
            self._file.write(line(record))

    def append(self, record: tuple[Any, ...]) -> None:
        """Log one operation as a record: kind, start and end in ps, cube, PE, and the fields of the kind."""
        self._pending.append(record)
        if len(self._pending) >= self._most_pending:
            self._flush()

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """All stored records."""
        self._flush()
        return self._records

    @property
    def total(self) -> int:
        """The number of records so far, which is the number of commands that have ended."""
        return self.count + len(self._pending)

    def sha256(self) -> str:
        """SHA-256 of all lines, in hexadecimal digits."""
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
    """Write an op log to a file in a rank's artifact folder from now on; return the file."""
    file = LineFile(make_artifact_folder(folder) / OPLOG_FILE, "the op log", "--oplog")
    oplog.write_to(file)
    return file


FIELDS = Definitions[str, tuple[str, ...]]()
"""By kind, the names of a record's fields after kind, start, end, cube and PE. ``src``, ``dst``: sip.cube.pe."""
_TEMPLATES = Definitions[str, str]()


def record_kind(kind: str, *fields: str) -> str:
    """Define a kind of record by its fields; return the kind.

    Raises:
        ValueError: the kind is already defined with other fields.
    """
    if FIELDS.get(kind, fields) != fields:
        raise ValueError(f"records of kind {kind!r} have the fields {FIELDS[kind]}, not {fields}; rename one")
    # The definition belongs to the calling module, found as ``collections.namedtuple`` finds it.
    module = sys._getframe(1).f_globals["__name__"]
    FIELDS.define(kind, fields, module)
    _TEMPLATES.define(kind, "%s %s %s %s %s " + " ".join(f"{name}=%s" for name in fields) + "\n", module)
    return kind


def definer_of(kind: str) -> str:
    """Return the module that defines a kind of record; if several modules do, the first by name."""
    return min(FIELDS.modules[kind])


def line(record: tuple[Any, ...]) -> str:
    """Return the canonical text of one record, with a newline."""
    return _TEMPLATES[record[0]] % record


def values_as_text(data: bytes | memoryview) -> str:
    """Return values as the op log writes them: hexadecimal digits, or SHA-256 of more than ``MOST_DIGITS`` bytes."""
    if len(data) <= MOST_DIGITS:
        return f"{DIGITS}{bytes(data).hex()}"
    return f"{SHA256}{hashlib.sha256(data).hexdigest()}"


@lru_cache(maxsize=1024)
def as_text(shape: tuple[int, ...]) -> str:
    """Return a shape as the op log writes it: ``2x3``."""
    return "x".join(map(str, shape))


@lru_cache(maxsize=1024)
def shape_of(text: str) -> tuple[int, ...]:
    """Parse a shape in the form of :func:`as_text`."""
    return tuple(map(int, text.split("x"))) if text else ()


class TraceLine(NamedTuple):
    """One line of the trace: a send that returned, a receive that ended, or a kernel that ended, at ``t_ps``."""

    rank: Annotated[int, no_time("The SIP that sent or received.")]
    cube: Annotated[int, no_time("The cube of the kernel's PE; on chips of tiles the tile's x.")]
    pe: Annotated[int, no_time("The kernel's PE; on chips of tiles the tile's y.")]
    t_ps: Annotated[
        int,
        simulated_time("When the message left for the ring or the link, or the receive or the kernel ended, in ps."),
    ]
    op: Annotated[str, no_time("send or recv; on chips of tiles also kernel, a kernel from its start to its end.")]
    dir: Annotated[
        str,
        no_time(
            "The direction that the kernel named; for a recv from any direction, the message's; on chips of tiles the "
            "Ethernet channel."
        ),
    ]
    nbytes: Annotated[int, no_time("The size of the message in bytes, without framing.")]
    run: Annotated[
        int | None,
        no_time(
            "The SIP's collective or program, by start from 0; empty in a kernel of torch.launch, and for messages on "
            "chips of tiles."
        ),
    ]
    start_ps: Annotated[int, simulated_time("When the kernel issued the operation, or started, in ps.")]
    peer: Annotated[str, no_time("The PE at the other end, as SIP.CUBE.PE; on chips of tiles the core, as SIP.X.Y.")]
    phase: Annotated[
        str,
        no_time(
            "The phase of the kernel at the issue, as tl.phase names it, or the name of the kernel; empty for none."
        ),
    ]


TRACE_FILE = "trace.csv"
"""File name of a rank's trace in its artifact folder."""


class TraceFile:
    """The CSV file of a rank's trace: (rank, t, dir, nbytes) of each send and receive (ADR-0023 D14), and more fields.

    ``close`` and errors: as in :class:`LineFile`.
    """

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path, "the trace", "--trace-ccl")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self.close = self._file.close

    def append(self, line: TraceLine) -> None:
        """Write one line."""
        self._lines.writerow(line)
