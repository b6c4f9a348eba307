"""Warnings about rejected connections and frames, one line each, for the broker's log or the launcher's output."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TextIO

from broker.mail.base import Notice

MOST = 100


class ConnectionWarnings:
    """The warnings of one process, each line starting with ``prefix``. One that comes again and again is written the
    first, tenth, hundredth ... time, with the number. Rate limit: ``MOST`` lines and a last one.
    """

    def __init__(self, prefix: str, out: TextIO | None = None) -> None:
        self._prefix = prefix
        self._out = out
        self._written = 0
        self._times: Counter[str] = Counter()

    def write(self, notices: Iterable[Notice]) -> None:
        """Print those that report a rejection; lost connections are the normal end of a run."""
        for notice in notices:
            if notice.kind != "rejected" or self._written > MOST:
                continue
            self._times[notice.text] += 1
            times = str(self._times[notice.text])
            if times.strip("0") == "1":
                self._written += 1
                text = notice.text if times == "1" else f"{notice.text} ({times} times)"
                text = text if self._written <= MOST else f"{MOST} were rejected; further ones are not reported"
                print(f"{self._prefix}: {text}", file=self._out or sys.stderr, flush=True)
