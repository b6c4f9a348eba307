"""A file of lines in a rank's artifact folder, whole after each line, so that the lines before a crash are in it."""

import os
from pathlib import Path

from sipsim.core.errors import OutputError
from sipsim.core.files.files import REWRITE, open_file


class LineFile:
    """``what`` it holds, and the ``flag`` that asks for it."""

    def __init__(self, path: Path, what: str, flag: str) -> None:
        self._file = os.fdopen(open_file(path, REWRITE), "w", buffering=1, newline="")
        self._path = path
        self._what = what
        self._flag = flag
        self._is_lost = False

    def write(self, lines: str) -> None:
        """Write whole lines.

        Raises:
            OutputError: when the disk is full.
        """
        try:
            self._file.write(lines)
        except OSError as error:
            self._is_lost = True
            hint = f"make room there, set TMPDIR to another folder, or leave {self._flag} out"
            raise OutputError(f"{self._path}: {self._what} cannot be written: {error.strerror}; {hint}") from None

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            # `write` has reported the lost line, which Python still buffers.
            if not self._is_lost:
                raise
