"""Warnings about rejected connections and frames, one line each, for the broker's log or the launcher's output."""

import sys
from collections.abc import Iterable
from typing import TextIO

from broker.mail.base import Notice

MOST = 100


class ConnectionWarnings:
    """The warnings of one process, each line starting with ``prefix``. Rate limit: ``MOST`` lines and a last one."""

    def __init__(self, prefix: str, out: TextIO | None = None) -> None:
        self._prefix = prefix
        self._out = out
        self._written = 0

    def write(self, notices: Iterable[Notice]) -> None:
        """Print those that report a rejection; lost connections are the normal end of a run."""
        for notice in notices:
            if notice.kind == "rejected" and self._written <= MOST:
                self._written += 1
                text = notice.text if self._written <= MOST else f"{MOST} were rejected; further ones are not reported"
                print(f"{self._prefix}: {text}", file=self._out or sys.stderr, flush=True)
