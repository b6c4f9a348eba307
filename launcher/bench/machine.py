"""Machine of a bench: a set of simulated chips, on which host scripts run."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from launcher.api import run
from launcher.bench.programs.common import MARK
from launcher.options import parse
from launcher.run.prepare import resolve
from sipsim.chips.api.chip import kind_of
from sipsim.chips.tensix.chip import TensixKind
from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES
from sipsim.chips.tensix.host import SEMAPHORE_AREA
from sipsim.chips.tensix.params import ChipParams
from sipsim.core.errors import ConfigError, SimulationError
from sipsim.core.registry import unknown_name

KIB = 2**10
SCRIPTS = "launcher.bench.programs"
LINKS = {"wormhole": "tenstorrent_100g", "blackhole": "tenstorrent_400g"}
"""Link preset by chip kind."""
ARCHITECTURES = {"wormhole": "wormhole_b0", "blackhole": "blackhole"}
"""Name in published figures by chip kind."""
WORD = 16
"""Word of an Ethernet command in bytes."""
MOST_BYTES, MOST_CHANNELS = 131072, 32


def can_send(nbytes: int, channels: int) -> bool:
    """Whether a bench of raw links supports packets of ``nbytes`` from ``channels`` buffers."""
    return 0 < nbytes <= MOST_BYTES and nbytes % WORD == 0 and 0 < channels <= MOST_CHANNELS


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Chips of one kind, in a ring by default. ``link``: link preset; None selects the chip's preset. ``settings``:
    values of ``--set``. ``samples``: samples per figure; None selects the published number.
    """

    chip: str = "wormhole"
    link: str | None = None
    settings: tuple[str, ...] = ()
    engine: str = "inproc"
    samples: int | None = None

    @property
    def architecture(self) -> str:
        """The chip's name in published figures."""
        return ARCHITECTURES[self.chip]

    @property
    def link_name(self) -> str:
        """The name of the links' preset."""
        return self.link or LINKS[self.chip]

    @cached_property
    def params(self) -> ChipParams:
        """The parameters of a chip.

        Raises:
            ConfigError: for invalid settings.
        """
        flags = [word for setting in self._settings for word in ("--set", setting)]
        resolved = resolve(parse(["--link", self.link_name, *flags]))
        kind = kind_of(resolved)
        assert isinstance(kind, TensixKind)
        return kind.params(resolved)

    @property
    def room(self) -> int:
        """The bytes of an Ethernet core's L1 that are free for a script's buffers.

        Raises:
            ConfigError: for invalid settings.
        """
        ethernet = self.params.ethernet
        return ethernet.l1_KiB * KIB - ethernet.kernel_base - SEMAPHORE_AREA

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: for invalid settings.
        """
        assert self.params

    def check_fabric(self, revision: str, sizes: Iterable[int], payload_bytes: int = 0) -> None:
        """Check a fabric's revision, packet sizes and largest payload. ``payload_bytes``: 0 for the chip's default.

        Raises:
            ConfigError: for an unknown revision, or a payload or packet that is too long.
        """
        fabric, most = self.params.fabric, self.params.fabric.most_payload_bytes
        if revision not in fabric.revisions:
            raise ConfigError(f"--revision: {unknown_name('revision', revision, sorted(fabric.revisions))}")
        if payload_bytes > most:
            raise ConfigError(f"--payload {payload_bytes}: the longest payload of {self.chip} is {most} B; give less")
        longest = payload_bytes or fabric.payload_bytes
        too_long = [nbytes for nbytes in sizes if nbytes > longest]
        if too_long:
            raise ConfigError(f"--sizes {too_long[0]}: packets hold up to {longest} B of payload; give smaller sizes")

    def check_room(self, buffers: int, nbytes: int) -> None:
        """Check that the buffers, each followed by a word of flow control, fit into an Ethernet core.

        Raises:
            ConfigError: if the buffers do not fit.
        """
        needed = buffers * (nbytes + SYNC_BYTES)
        if needed > self.room:
            what = f"{buffers} x {nbytes} B, each with a word of {SYNC_BYTES} B, are {needed} B"
            raise ConfigError(f"--sizes {nbytes}: {what}; an Ethernet core has {self.room} B free; give smaller sizes")

    @property
    def _settings(self) -> list[str]:
        return [f"system.chip={self.chip}", *self.settings]

    def with_first(self, *settings: str) -> "Machine":
        """Return a machine with further settings, which the settings of this machine override."""
        return replace(self, settings=(*settings, *self.settings))

    def run_each(
        self, sizes: Iterable[int], script: str, sips: int, arguments: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """Call :meth:`run` with new chips once per size, which the script gets as argument ``sizes``."""
        return [result for nbytes in sizes for result in self.run(script, sips, {**arguments, "sizes": [nbytes]})]

    def run(
        self, script: str, sips: int, arguments: Mapping[str, object], topology: str = "ring_1d"
    ) -> list[dict[str, Any]]:
        """Run a host script of ``launcher.bench.programs`` on ``sips`` chips; return the reports of all ranks.

        Raises:
            SimulationError: if the run fails.
            ConfigError: for invalid settings.
        """
        outcome = run(
            f"{SCRIPTS}.{script}",
            as_module=True,
            script_args=[json.dumps(arguments)],
            sips=sips,
            topology=topology,
            link=self.link_name,
            engine=self.engine,
            set=self._settings,
        )
        if outcome.error is not None:
            raise SimulationError(f"{script}: {outcome.error['message']}")
        return [json.loads(text) for text in re.findall(rf"{re.escape(MARK)}(\{{.*\}})", outcome.output)]
