"""What people are told of strangers at a port: a line each, in the broker's log or in the launcher's words."""

import sys
from collections.abc import Iterable
from typing import TextIO

from broker.mail.base import Notice

MOST = 100


class ConnectionWarnings:
    """One end's. ``who``: whose port it is. Connections that end are nothing to tell: runs end that way.

    Whoever comes again and again fills no disk: after ``MOST`` lines there is one more.
    """

    def __init__(self, who: str, out: TextIO | None = None) -> None:
        self._who = who
        self._out = out
        self._told = 0

    def tell(self, notices: Iterable[Notice]) -> None:
        """Those of them that are worth a line."""
        for notice in notices:
            if notice.kind == "stranger" and self._told <= MOST:
                self._told += 1
                text = notice.text if self._told <= MOST else f"{MOST} were turned away; no more of them are told"
                print(f"{self._who}: {text}", file=self._out or sys.stderr, flush=True)
