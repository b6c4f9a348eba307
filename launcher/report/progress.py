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
        self._began_s = time.monotonic()
        self._next_s = self._began_s + SHOW_AFTER_S
        self._furthest_ps = 0
        self._live: Any = None

    def due(self) -> bool:
        """Whether the line should be brought up to date now."""
        if not self._enabled or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + EVERY_S
        return True

    def show(self, now_ps: int, grants: int) -> None:
        """Draw the line; a run that is not old enough for one gets none."""
        if not self._enabled or time.monotonic() < self._began_s + SHOW_AFTER_S:
            return
        if self._live is None:
            # Imported here: most runs are over before anybody needs it.
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            self._live = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._live.add_task("")
            self._live.start()
        self._furthest_ps = max(self._furthest_ps, now_ps)
        elapsed_s = time.monotonic() - self._began_s
        said = f"simulated {format_time_ps(self._furthest_ps)} in {elapsed_s:.1f} s, {grants} grants"
        self._live.update(self._task, description=said)

    def close(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
