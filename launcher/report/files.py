"""Merges the ranks' files: op logs in causal order, traces in order of simulated time."""

import contextlib
import csv
import heapq
import re
from collections.abc import Iterator
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path

from launcher.isolation import opened
from launcher.options import Options
from sipsim.chips.ahbm.ipcq.records import RECV, SEND
from sipsim.core.files import reader
from sipsim.records.oplog import OPLOG_FILE, TRACE_FILE, TraceLine

Message = tuple[int, int]
"""Identity of a message: the address of the message's slot, and ``sender_seq``."""
_SEND = re.compile(rf"{re.escape(SEND)} .* addr=(\d+) .* sender_seq=(\d+)(?: |$)")
_RECV = re.compile(rf"{re.escape(RECV)} .* addr=(\d+) .* consumer_seq=(\d+)(?: |$)")


def write_logs(folder: str, options: Options) -> list[str]:
    """Merge traces and op logs of the ranks' folders in ``folder`` into the requested files; return failure lines."""
    requested = (write_trace, options.trace_ccl), (write_oplog, options.oplog)
    return list(filter(None, [write(folder, target) for write, target in requested if target]))


def write_oplog(folder: str, target: Path) -> str:
    """Merge the op logs in the ranks' folders below ``folder`` into ``target``, a file or ``-``.

    Returns:
        A line about what was left out or failed; "" if the op log is complete.
    """
    paths = {int(path.parent.name.removeprefix("rank-")): path for path in Path(folder).glob(f"rank-*/{OPLOG_FILE}")}
    merge = Merge()
    try:
        with ExitStack() as files, opened(target) as out:
            logs = {
                rank: _whole(files.enter_context(TextIOWrapper(reader(path), newline="")))
                for rank, path in sorted(paths.items())
            }
            out.writelines(merge.lines(logs))
    except OSError as error:
        return f"--oplog {error.filename or target}: {error.strerror}; the op log is incomplete"
    if merge.unsent:
        ranks = ", ".join(map(str, merge.unsent))
        return f"--oplog {target}: the logs of ranks {ranks} end at receives whose sends are lost with a process"
    return ""


class Merge:
    """Merge of op logs. ``unsent``: the ranks whose merged lines end at a receive because the send is missing.

    The lines of each rank stay in order, and a receive follows the send of the same message; otherwise, lines are
    sorted by end time. Logs are streamed: only messages that are sent and not yet received are in memory.
    """

    def __init__(self) -> None:
        self.unsent: list[int] = []
        self._sent: set[Message] = set()
        self._waiting: dict[Message, tuple[int, int, str]] = {}

    def lines(self, logs: dict[int, Iterator[str]]) -> Iterator[str]:
        """Yield the lines of all ranks in causal order, one per record, with the rank in front of each line."""
        heads: list[tuple[int, int, str]] = []
        for rank, log in logs.items():
            self._advance(heads, rank, log)
        while heads:
            _, rank, text = heapq.heappop(heads)
            yield f"{rank} {text}\n"
            sent = _SEND.match(text)
            if sent is not None:
                message = int(sent[1]), int(sent[2])
                held = self._waiting.pop(message, None)
                if held is None:
                    self._sent.add(message)
                else:
                    heapq.heappush(heads, held)
            self._advance(heads, rank, logs[rank])
        self.unsent = sorted(rank for _, rank, _ in self._waiting.values())

    def _advance(self, heads: list[tuple[int, int, str]], rank: int, log: Iterator[str]) -> None:
        """Read a rank's next line and queue the line; a receive of an unsent message waits for the send instead."""
        text = next(log, None)
        if text is None:
            return
        head = int(text.split(" ", 3)[2]), rank, text
        received = _RECV.match(text)
        if received is not None:
            message = int(received[1]), int(received[2]) - 1
            if message not in self._sent:
                self._waiting[message] = head
                return
            self._sent.discard(message)
        heapq.heappush(heads, head)


def _whole(file: Iterator[str]) -> Iterator[str]:
    """Yield complete lines without line ends; a killed process may leave its last line incomplete."""
    for text in file:
        if text.endswith("\n"):
            yield text[:-1]


T_PS, RANK = TraceLine._fields.index("t_ps"), TraceLine._fields.index("rank")


def write_trace(folder: str, target: Path) -> str:
    """Merge the traces in the ranks' folders below ``folder`` into ``target``, a file or ``-``.

    Lines that a killed process has left incomplete are skipped. Returns a line if the merge failed, else "".
    """
    rows = []
    try:
        for path in sorted(Path(folder).glob(f"rank-*/{TRACE_FILE}")):
            with reader(path) as trace:
                whole = trace.read().decode(errors="replace").rpartition("\n")[0].splitlines()
            rows += [(t_ps, rank, index, row) for index, (t_ps, rank, row) in enumerate(_read(whole))]
        with opened(target) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(TraceLine._fields)
            writer.writerows(row for *_, row in sorted(rows))
    except OSError as error:
        return f"--trace-ccl {error.filename or target}: {error.strerror}; the trace is incomplete"
    return ""


def _read(lines: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    for line in lines:
        with contextlib.suppress(ValueError, csv.Error):
            (row,) = csv.reader([line])
            if len(row) == len(TraceLine._fields):
                yield int(row[T_PS]), int(row[RANK]), row
