"""History of a rank for ``--explain``: its spans, the phases of its kernels, delayed transfers, and waits in memories,
written to a file at the end of the run.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker.wire import checked
from sipsim.chips.ahbm.ipcq.messages import Installed
from sipsim.chips.ahbm.memory.ports import Wait
from sipsim.core.errors import OutputError
from sipsim.core.files import reader, write_file
from sipsim.fabric.delays import Delayed
from sipsim.records.recorder import PhaseStart, Recorder, Span

HISTORY_FILE = "history.msgpack"
"""Name of a rank's history in its artifact folder."""


class History(msgspec.Struct, frozen=True):
    """History of one rank. Span number n has index n - 1. ``later``: queue pairs installed during the simulation."""

    rank: int
    spans: list[Span]
    phases: list[PhaseStart]
    delayed: list[Delayed]
    waits: list[Wait]
    later: list[Installed] = []


_DECODER = msgspec.msgpack.Decoder(History)


def write_history(
    folder: Path, recorder: Recorder, delayed: Iterable[Delayed], waits: list[Wait], later: list[Installed]
) -> None:
    """Write a rank's history, at the end of its run.

    Raises:
        OutputError: if the file cannot be written, for example because the disk is full.
    """
    history = History(recorder.rank, recorder.spans or [], recorder.phases, list(delayed), waits, later)
    path = folder / HISTORY_FILE
    try:
        write_file(path, msgspec.msgpack.encode(history, enc_hook=_as_text))
    except OSError as error:
        hint = "free disk space, set TMPDIR to another folder, or leave --explain out"
        raise OutputError(f"{path}: cannot write the history: {error.strerror}; {hint}") from None


def read_histories(folders: Sequence[Path]) -> list[History]:
    """Return the histories of all ranks, in order of rank.

    Raises:
        OSError: if a file is missing.
        BadFrame: for a file that is not a history.
    """
    return [_read_history(each / HISTORY_FILE) for each in folders]


def _read_history(path: Path) -> History:
    with reader(path) as file:
        return checked(_DECODER.decode, file.read(), "the history of a rank")


def _as_text(fact: Any) -> str:
    """Return the text of a fact of a user's command that is not a plain value."""
    return repr(fact)
