"""The page of all fields of result files, ``ahbm-launch --list fields``.

Made from the records that the files are made of (``sipsim.core.fields``). Only documents are listed here, no field.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from launcher.report.outcome import ErrorFile
from launcher.result.fields import (
    LinkCsvRow,
    MatrixDocument,
    MatrixRow,
    ProbeDocument,
    ResultDocument,
    RunRow,
    SizePoint,
    SweepDocument,
)
from sipsim.chips.ahbm.memory.store import HOST_CLEAR, HOST_WRITE
from sipsim.chips.ahbm.pe.engine import ENGINES
from sipsim.core.fields import fields_of
from sipsim.records.oplog import FIELDS, TraceLine, definer_of

HEAD = """# Fields of result files

A key is written with the keys that lead to it; `[]` stands for each entry of a list. *Time* says which clock a value
tells: `simulated` is the time of the simulated system, the same in every run, in whole picoseconds where a key ends in
`_ps`; `host` is that of the machines that simulate, another in every run; `none` is no time. A key marked *optional* is
left out where it is unknown or has no meaning; in a table its cell is empty. New keys may come without another
`schema`.
"""


OPLOG = f"""A line for each operation: its rank, `kind`, start and end in ps of simulated time, cube and PE, and
`field=value` for each field of its kind. A rank's lines are in the order of its op log, a receive comes after the send
of its message, and of the lines that may come next the one that ended first does. `{HOST_WRITE}` and `{HOST_CLEAR}` are
what the host does to memories; they are no operations and in no digest. Addresses are physical; `h<n>` is a handle of
the PE. On chips of tiles the columns of cube and PE are x and y of the tile, in coordinates of NoC 0."""


class DocumentPage(NamedTuple):
    """A kind of file: ``written_by`` what, and the ``record`` that it holds or that its lines are."""

    written_by: str
    about: str
    record: type


DOCUMENTS = (
    DocumentPage(
        "ahbm-launch --json", "The result, also of a refused run; `RunOutcome.document` in Python.", ResultDocument
    ),
    DocumentPage("ahbm-launch --csv-links", "A row for each link, one way, in each row of the table.", LinkCsvRow),
    DocumentPage("ahbm-launch --csv", "A row for each of the result's `runs`, with their keys as columns.", RunRow),
    DocumentPage("ahbm-launch --trace-ccl", "A row for each send and receive.", TraceLine),
    DocumentPage("error.json", "The failure, in the folders of `--log-dir` and `--run-dir`.", ErrorFile),
    DocumentPage("ahbm-probe --json", "One transfer, term by term; with `--short` too.", ProbeDocument),
    DocumentPage("ahbm-probe --sweep-bytes --json", "The bandwidth of each size, and what bounds it.", SweepDocument),
    DocumentPage("ahbm-probe --sweep-bytes --csv", "A row for each size.", SizePoint),
    DocumentPage("ahbm-probe --matrix --json", "The times of all pairs.", MatrixDocument),
    DocumentPage("ahbm-probe --matrix --csv", "A row for each pair.", MatrixRow),
)


def page() -> str:
    """The page as Markdown, without the last newline."""
    sections = [line for document in DOCUMENTS for line in _section(document)]
    return "\n".join([HEAD, *sections, *_oplog()]).rstrip("\n")


def _oplog() -> Iterator[str]:
    """The kinds of records of the op log, those of users' modules left out."""
    # What defines kinds is imported by this.
    ENGINES.names()
    import_module("sipsim.chips.tensix.results")
    yield from ("## `ahbm-launch --oplog`", "", OPLOG, "", "| kind | fields |", "|---|---|")
    for kind, fields in sorted(FIELDS.items()):
        if definer_of(kind).startswith("sipsim."):
            yield f"| `{kind}` | {', '.join(f'`{field}`' for field in fields)} |"


def _section(document: DocumentPage) -> Iterator[str]:
    yield from (f"## `{document.written_by}`", "", document.about, "", "| key | type | time | |", "|---|---|---|---|")
    for field in fields_of(document.record):
        types = f"{field.types}, optional" if field.is_optional else field.types
        yield f"| `{field.path}` | {types} | {field.time} | {field.text} |"
    yield ""
