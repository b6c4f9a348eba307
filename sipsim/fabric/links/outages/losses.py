"""Frames that were on a link when it went down, where none is sent again: they end the run, with all that was lost."""

from typing import Any

from sipsim.core.engine import Engine
from sipsim.core.errors import LinkLoss
from sipsim.core.units import format_exact_time_ps
from sipsim.fabric.links.outages.links_outages import Loss


class Losses:
    """What one direction of link ``link`` has lost. The run ends when it goes down, or when the loss is found if that
    is later: a frame is handed over when its last chunk starts.
    """

    def __init__(self, link: str, engine: Engine) -> None:
        self._link = link
        self._engine = engine
        self._packets = 0
        self._frames: dict[str, int] = {}

    def add(self, loss: Loss, nbytes: int, payload: Any) -> None:
        """Packets of a frame of ``nbytes`` with this payload were lost."""
        if not self._packets:
            self._engine.at(max(loss.down_ps, self._engine.now_ps), lambda: self._end(loss.down_ps))
        self._packets += loss.packets
        carried = f"{type(payload).__name__} of {nbytes} B"
        self._frames[carried] = self._frames.get(carried, 0) + 1

    def _end(self, down_ps: int) -> None:
        """Raise what ends the run.

        Raises:
            LinkLoss: always.
        """
        packets = "1 packet was" if self._packets == 1 else f"{self._packets} packets were"
        frames = ", ".join(f"{count} {what}" for what, count in self._frames.items())
        raise LinkLoss(
            f"link {self._link} went down at {format_exact_time_ps(down_ps)}: {packets} on it and lost, parts of "
            f"{frames}; set go_back_n: true in the link's preset, and they are sent again"
        )
