"""A line on the terminal that says how far a longer run is, in simulated time. Silent when nobody looks."""

import sys
import time
from typing import Any

from sipsim.units import format_time_ps

SHOW_AFTER_S = 1.0
EVERY_S = 0.2


class Progress:
    """``due`` says when it is time to ask; ``show`` draws. Draws on standard error, so that tables stay clean."""

    def __init__(self, quiet: bool) -> None:
        self._enabled = not quiet and sys.stderr.isatty()
        self._next_s = time.monotonic() + SHOW_AFTER_S
        self._live: Any = None

    def due(self) -> bool:
        """Whether the line should be brought up to date now."""
        if not self._enabled or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + EVERY_S
        return True

    def show(self, now_ps: int, grants: int) -> None:
        """Draw the line."""
        if not self._enabled:
            return
        if self._live is None:
            # Imported here: most runs are over before anybody needs it.
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("simulated {task.description}"), TimeElapsedColumn())
            self._live = Bar(*columns, console=Console(stderr=True), transient=True)
            self._live.start()
            self._task = self._live.add_task("")
        self._live.update(self._task, description=f"{format_time_ps(now_ps)}, {grants} grants")

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
