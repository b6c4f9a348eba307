"""Isolation of a run from its process: state that a run may change is restored, and lost output does not end the run.

A program may make many runs, but one at a time, since import paths, modules and standard streams belong to the whole
process. If a flag names the file ``-``, the file's content is written to standard output, in place of the table.
"""

import contextlib
import errno
import gc
import io
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from sipsim.core.files import REWRITE, naming, open_named
from sipsim.core.registry import forget_modules
from sipsim.node.script import is_shared, submodules
from sipsim.records.code_place import working_folder

STANDARD_OUTPUT = Path("-")


def absolute(path: Path) -> Path:
    """Return a destination as an absolute path; ``-`` (standard output) is returned unchanged."""
    return path if path == STANDARD_OUTPUT else path.absolute()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a destination, a file or ``-`` for standard output, for writing; a file's line ends are not translated."""
    if path == STANDARD_OUTPUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with naming(path), os.fdopen(_without_waiting(path), "w", newline="") as file:
        yield file


def _without_waiting(path: Path) -> int:
    """Open ``path`` for writing and return the descriptor; raise OSError if ``path`` is a pipe without a reader."""
    try:
        fd = open_named(path, REWRITE | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "this pipe has no reader", str(path)) from None
        raise
    os.set_blocking(fd, True)
    return fd


MOST_BYTES = 2**20
"""Size of the captured output in bytes: earlier output is dropped."""
_RUN_ACTIVE = threading.Lock()


@contextlib.contextmanager
def isolated() -> Iterator[Callable[[], str]]:
    """Isolate the run in the body of the ``with``; yield a function that returns the captured output so far.

    Restored: standard output and error, which are captured; import paths; modules, except those of this project and of
    installed packages, which stay; the working directory; the environment; the thresholds of the garbage collector; the
    states of the random generators. Objects of the run in reference cycles are freed.

    Raises:
        RuntimeError: if another run is active.
    """
    if not _RUN_ACTIVE.acquire(blocking=False):
        raise RuntimeError("another run is under way in this process; start this run after the other run's end")
    try:
        with _captured() as output, contextlib.ExitStack() as stack:
            for restoring in (_paths, _modules, _environment, _folder, _generators, _collector):
                stack.enter_context(restoring())
            yield output
    finally:
        _RUN_ACTIVE.release()


class _Tail(io.RawIOBase):
    """A byte stream that keeps the last ``MOST_BYTES`` bytes."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= MOST_BYTES:
            self._size -= len(self._pieces.popleft())
        return len(piece)

    def text(self) -> str:
        return b"".join(self._pieces)[-MOST_BYTES:].decode(errors="replace")


@contextlib.contextmanager
def _captured() -> Iterator[Callable[[], str]]:
    tail: Any = _Tail()
    stream = io.TextIOWrapper(io.BufferedWriter(tail), "utf-8", "backslashreplace", write_through=True)

    def output() -> str:
        stream.flush()
        text: str = tail.text()
        return text

    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield output


@contextlib.contextmanager
def _paths() -> Iterator[None]:
    argv, path = sys.argv, sys.path
    saved = list(argv), list(path)
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path
        argv[:], path[:] = saved


@contextlib.contextmanager
def _modules() -> Iterator[None]:
    before = dict(sys.modules)
    bound = submodules({name: module for name, module in before.items() if not is_shared(name, module)})
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if name not in before and not is_shared(name, module):
                del sys.modules[name]
        sys.modules.update(before)
        for package, name, module in bound:
            setattr(package, name, module)
        forget_modules()


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    before = os.getcwd()
    try:
        yield
    finally:
        if working_folder() != before:
            # The run may have deleted the folder.
            with contextlib.suppress(OSError):
                os.chdir(before)


@contextlib.contextmanager
def _generators() -> Iterator[None]:
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextlib.contextmanager
def _collector() -> Iterator[None]:
    before = gc.get_threshold()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        # Objects of tasks that never ended are freed here, while the run's output and modules are still in place.
        gc.collect()


GONE = (errno.EPIPE, errno.EIO)
"""Error numbers of a write to a stream that the reader has closed, which is no failure of the run."""


class SafeStream:
    """Text stream whose writes never raise, even if the terminal or pipe is closed or the disk is full.

    After the first error, output is dropped, so that a run still writes its files and returns its exit code.
    ``trouble``: why output was lost; empty if the reader closed the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.trouble = ""

    def write(self, text: str) -> int:
        """Write ``text``; after an error, drop ``text``."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush buffered output; after an error, drop the buffered output."""
        with self._dropping():
            self._stream.flush()

    def close(self) -> None:
        """Flush only: user code in this process may close the stream before the launcher writes the result."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in GONE:
                self.trouble = self.trouble or f"{error.strerror or error}"
            # Redirect buffered output too, or the flush at exit would raise.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextlib.contextmanager
def safe_output() -> Iterator[SafeStream]:
    """Replace standard output and error by :class:`SafeStream` in the body of the ``with``; yield standard output."""
    streams = sys.stdout, sys.stderr
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = streams
