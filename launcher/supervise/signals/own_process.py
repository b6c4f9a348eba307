"""Keeps code of a user that runs in the launcher's own process from ending or replacing that process.

Not what C code, ``os.abort`` or a deadly signal does: those are seen by whoever started the process.
"""

import contextlib
import functools
import os
import posix
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

ENDS = ((os, "_exit"), (posix, "_exit"), (os, "execv"), (posix, "execv"), (os, "execve"), (posix, "execve"))
"""``os`` has a name of its own for each; the other functions that replace the process call these."""


@contextlib.contextmanager
def kept(refuse: Callable[[str], NoReturn]) -> Iterator[None]:
    """Meanwhile ``refuse`` is called in place of what would end this process, with the call as text; it raises.

    Processes that the code forks, and threads that were there before, are free to go.
    """
    pid, others = os.getpid(), {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def guarded(name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(really)
        def guard(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == pid and threading.get_ident() not in others:
                refuse(f"os.{name}({', '.join(map(repr, args[:1]))})")
            return really(*args, **kwargs)

        return guard

    real: list[tuple[ModuleType, str, Any]] = [(module, name, getattr(module, name)) for module, name in ENDS]
    for module, name, really in real:
        setattr(module, name, guarded(name, really))
    try:
        yield
    finally:
        for module, name, really in real:
            setattr(module, name, really)
