"""Standard output and error that outlast whoever reads them: a closed terminal or pipe, a full disk.

What cannot be written is dropped from then on, so that a run ends as it would have, with its files and its exit code.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)
"""Nobody reads any more, which is the reader's business and no trouble of ours."""


class SafeStream:
    """A stream that never raises when it is written to. ``trouble``: why something was lost that somebody wanted."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.trouble = ""

    def write(self, text: str) -> int:
        """Write, or drop it."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what was there."""
        with self._dropping():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in GONE:
                self.trouble = self.trouble or f"{error.strerror or error}"
            # What Python still holds goes there too, or its last flush would complain.
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def safe_output() -> Iterator[SafeStream]:
    """Both of this process's streams, for as long; yields standard output."""
    streams = sys.stdout, sys.stderr
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = streams
