"""A bridge whose host program runs in a thread of its own, with the host task as its agent. Not a test."""

import sys
import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

from sipsim.chips.api.bridge import Bridge


class RunEnded(BaseException):
    """Ends the thread of a program that was cut short."""


class ThreadBridge(Bridge):
    """Either the thread runs or the simulation does: each waits for the other's message."""

    def __init__(self) -> None:
        super().__init__()
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._error: BaseException | None = None
        self._closed = False
        self.thread: threading.Thread | None = None

    def body(self, program):
        return partial(self._run, program)

    def _run(self, program):
        self.thread = threading.Thread(target=self._run_program, args=(program,), name="host program", daemon=True)
        self.thread.start()
        while (request := self._requests.get()) is not None:
            self._answers.put(self._answer(request))
        self.thread.join()
        if self._error is not None:
            raise self._error

    def call(self, fn, *args, **kwargs):
        if threading.current_thread() is not self.thread:
            return self._perform(partial(fn, *args, **kwargs))
        if self._closed:
            raise RunEnded
        self._requests.put(partial(fn, *args, **kwargs))
        result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def host_frame(self, task_frame):
        """The host program's, in its thread, outside of this file."""
        frame = sys._current_frames().get(self.thread.ident) if self.thread is not None else None
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame

    def close(self):
        self._closed = True
        if self.thread is not None and self.thread.is_alive():
            self._answers.put((None, RunEnded()))
            self.thread.join()

    def _perform(self, request):
        result = request()
        self.on_call_end()
        return result

    def _answer(self, request):
        try:
            return self._perform(request), None
        except Exception as error:
            return None, error

    def _run_program(self, program):
        try:
            program()
        except RunEnded:
            pass
        except BaseException as error:
            self._error = error
        self._requests.put(None)
