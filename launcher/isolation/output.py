"""Standard output and error that survive a closed terminal or pipe, or a full disk.

After the first error output is dropped, so that a run still writes its files and returns its exit code.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)
"""The reader has closed the stream; this is no error."""


class SafeStream:
    """A stream whose writes never raise. ``trouble``: why output was lost, except to a closed reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.trouble = ""

    def write(self, text: str) -> int:
        """Write or drop."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush or drop."""
        with self._dropping():
            self._stream.flush()

    def close(self) -> None:
        """Flush: code that shares this process may close it, and the result is still to be written."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in GONE:
                self.trouble = self.trouble or f"{error.strerror or error}"
            # Redirects buffered output too, or the flush at exit would raise.
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def safe_output() -> Iterator[SafeStream]:
    """Wrap standard output and error of this process; yields standard output."""
    streams = sys.stdout, sys.stderr
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = streams
