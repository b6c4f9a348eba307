"""What is alive in this process at some points of a program, with Python's collector of cycles off. Not a test.

So a cycle that only the collector would free counts as what it is: an object that is never freed.
"""

import gc
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any


class Meter:
    """Counts objects, blocks of small memory and resident KiB at ``points`` points of ``messages`` messages.

    ``objects``: what the collector tracks, by type; what was frozen before does not count. ``blocks``: all that
    Python's own allocator has given out, numbers and short texts too.
    """

    def __init__(self, messages: int, points: int) -> None:
        gc.disable()
        self._every = messages // points
        self.messages = 0
        self._kinds: list[Counter[type]] = []
        self._samples: list[tuple[int, int, int, int]] = []
        self._sample()  # what sampling itself leaves
        self._kinds.clear()
        self._samples.clear()

    def tick(self, messages: int = 1) -> None:
        """So many messages more are over."""
        before = self.messages // self._every
        self.messages += messages
        if self.messages // self._every > before:
            self._sample()

    def _sample(self) -> None:
        objects = gc.get_objects()
        count = len(objects)
        del self._kinds[1:]
        self._kinds.append(Counter(map(type, objects)))
        del objects
        self._samples.append((self.messages, count, sys.getallocatedblocks(), _resident_kib()))

    def write(self, file: str) -> None:
        """Write the samples, and what is there more at the last than at the first, by type."""
        gc.enable()
        more = Counter(self._kinds[-1])
        more.subtract(self._kinds[0])
        kinds = {f"{kind.__module__}.{kind.__qualname__}": count for kind, count in more.most_common(12) if count > 0}  # type: ignore[attr-defined]
        Path(file).write_text(json.dumps({"samples": self._samples, "kinds": kinds}))


def _resident_kib() -> int:
    pages: Any = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4
