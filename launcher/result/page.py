"""Page of all fields of result files, for ``ahbm-launch --list fields``.

The page is generated from the record types of the files (see ``sipsim.core.fields``), which this module lists.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from launcher.report.outcome import ErrorFile
from launcher.result.fields import (
    HardwareDocument,
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

A key is written with the keys that lead to it; `[]` means each entry of a list. *Time* names the clock of a value:
`simulated` is the time of the simulated system, the same in every run, in whole picoseconds if the key ends in `_ps`;
`host` is the time of the machines that run the simulator, different in every run; `none` means that the value is no
time. A key marked *optional* is left out if its value is unknown or has no meaning; in a table its cell is empty. New
keys may be added without a new `schema`.
"""


OPLOG = f"""A line for each operation: its rank, `kind`, start and end in ps of simulated time, cube and PE, and
`field=value` for each field of its kind. The lines of a rank are in the order of its op log, and a receive follows the
send of its message; within these limits, lines are in the order of their ends. `{HOST_WRITE}` and `{HOST_CLEAR}` are
writes of the host to memories; they are no operations and are part of no digest. Addresses are physical; `h<n>` is a
handle of the PE. On chips of tiles the columns of cube and PE are x and y of the tile, in coordinates of NoC 0."""


class DocumentPage(NamedTuple):
    """A kind of result file. ``written_by``: command and flag, or file name; ``record``: type of document or line."""

    written_by: str
    about: str
    record: type


DOCUMENTS = (
    DocumentPage(
        "ahbm-launch --json", "The result, also of a refused run; `RunOutcome.document` in Python.", ResultDocument
    ),
    DocumentPage("ahbm-launch --csv-links", "A row per link and direction, for each row of the table.", LinkCsvRow),
    DocumentPage("ahbm-launch --csv", "A row for each of the result's `runs`, with their keys as columns.", RunRow),
    DocumentPage("ahbm-launch --trace-ccl", "A row for each send and receive.", TraceLine),
    DocumentPage("error.json", "The failure, in the folders of `--log-dir` and `--run-dir`.", ErrorFile),
    DocumentPage("ahbm-probe --json", "One transfer, term by term; also with `--short`.", ProbeDocument),
    DocumentPage("ahbm-probe --sweep-bytes --json", "The bandwidth of each size, and its bounds.", SweepDocument),
    DocumentPage("ahbm-probe --sweep-bytes --csv", "A row for each size.", SizePoint),
    DocumentPage("ahbm-probe --matrix --json", "The times of all pairs.", MatrixDocument),
    DocumentPage("ahbm-probe --matrix --csv", "A row for each pair.", MatrixRow),
    DocumentPage(
        "ahbm-probe --hardware --json", "The controller of queue pairs: registers, rings, estimates.", HardwareDocument
    ),
)


def page() -> str:
    """Return the page as Markdown, without a final newline."""
    sections = [line for document in DOCUMENTS for line in _section(document)]
    return "\n".join([HEAD, *sections, *_oplog()]).rstrip("\n")


def _oplog() -> Iterator[str]:
    """Yield the section of the op log: the kinds of records, except those of users' modules."""
    # These imports define the kinds.
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
