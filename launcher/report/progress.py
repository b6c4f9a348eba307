"""A progress line for longer runs, in simulated time. Only on a terminal."""

import sys
import time
from typing import Any

from sipsim.units import format_time_ps

SHOW_AFTER_S = 1.0
EVERY_S = 0.2


class Progress:
    """Draws on standard error, which keeps tables clean. ``due``: when to call ``show``."""

    def __init__(self, quiet: bool) -> None:
        self._enabled = not quiet and sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + SHOW_AFTER_S
        self._furthest_ps = 0
        self._live: Any = None

    def due(self) -> bool:
        """Whether the line is to be updated now."""
        if not self._enabled or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + EVERY_S
        return True

    def show(self, now_ps: int, grants: int) -> None:
        """Draw the line, unless the run is too short yet."""
        if not self._enabled or time.monotonic() < self._began_s + SHOW_AFTER_S:
            return
        if self._live is None:
            # Imported here: most runs are too short for it.
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            self._live = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._live.add_task("")
            self._live.start()
        self._furthest_ps = max(self._furthest_ps, now_ps)
        elapsed_s = time.monotonic() - self._began_s
        text = f"simulated {format_time_ps(self._furthest_ps)} in {elapsed_s:.1f} s, {grants} grants"
        self._live.update(self._task, description=text)

    def close(self) -> None:
        """Remove the line."""
        if self._live is not None:
            self._live.stop()
