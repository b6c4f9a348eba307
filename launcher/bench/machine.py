"""The simulated chips that a bench runs on, and how it runs a host script there."""

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
"""The chips, and the preset of their links."""
ARCHITECTURES = {"wormhole": "wormhole_b0", "blackhole": "blackhole"}
"""The chips, as published figures name them."""
WORD = 16
"""Bytes: of an Ethernet command."""
MOST_BYTES, MOST_CHANNELS = 131072, 32


def can_send(nbytes: int, channels: int) -> bool:
    """Whether a bench of raw links takes packets of this size, from so many buffers."""
    return 0 < nbytes <= MOST_BYTES and nbytes % WORD == 0 and 0 < channels <= MOST_CHANNELS


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Chips of a kind, in a ring if a run does not say otherwise. ``settings``: as of ``--set``; ``samples``: None, as
    many as the published test.
    """

    chip: str = "wormhole"
    link: str | None = None
    settings: tuple[str, ...] = ()
    engine: str = "inproc"
    samples: int | None = None

    @property
    def architecture(self) -> str:
        """As published figures name it."""
        return ARCHITECTURES[self.chip]

    @property
    def link_name(self) -> str:
        """The preset of their links."""
        return self.link or LINKS[self.chip]

    @cached_property
    def params(self) -> ChipParams:
        """The parameters of a chip.

        Raises:
            ConfigError: for settings that cannot be.
        """
        flags = [word for setting in self._settings for word in ("--set", setting)]
        resolved = resolve(parse(["--link", self.link_name, *flags]))
        kind = kind_of(resolved)
        assert isinstance(kind, TensixKind)
        return kind.params(resolved)

    @property
    def room(self) -> int:
        """Bytes of an Ethernet core that the buffers of a script have.

        Raises:
            ConfigError: for settings that cannot be.
        """
        ethernet = self.params.ethernet
        return ethernet.l1_KiB * KIB - ethernet.kernel_base - SEMAPHORE_AREA

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: for those that cannot be.
        """
        assert self.params

    def check_fabric(self, revision: str, sizes: Iterable[int], payload_bytes: int = 0) -> None:
        """Check what a fabric is opened with, and that the packets fit. ``payload_bytes``: 0, the chip's own.

        Raises:
            ConfigError: for what the chips do not have.
        """
        fabric, most = self.params.fabric, self.params.fabric.most_payload_bytes
        if revision not in fabric.revisions:
            raise ConfigError(f"--revision: {unknown_name('revision', revision, sorted(fabric.revisions))}")
        if payload_bytes > most:
            raise ConfigError(f"--payload {payload_bytes}: the longest packet of {self.chip} has {most} B")
        held = payload_bytes or fabric.payload_bytes
        too_long = [nbytes for nbytes in sizes if nbytes > held]
        if too_long:
            raise ConfigError(f"--sizes {too_long[0]}: packets hold up to {held} B of payload")

    def check_room(self, buffers: int, nbytes: int) -> None:
        """Check that so many buffers, each with a word behind it, fit.

        Raises:
            ConfigError: when they do not.
        """
        needed = buffers * (nbytes + SYNC_BYTES)
        if needed > self.room:
            what = f"{buffers} x {nbytes} B, each with a word of {SYNC_BYTES} B, are {needed} B"
            raise ConfigError(f"--sizes {nbytes}: {what}; a kernel of an Ethernet core of {self.chip} has {self.room}")

    @property
    def _settings(self) -> list[str]:
        return [f"system.chip={self.chip}", *self.settings]

    def with_first(self, *settings: str) -> "Machine":
        """The same with settings that those it has already may overrule."""
        return replace(self, settings=(*settings, *self.settings))

    def run_each(
        self, sizes: Iterable[int], script: str, sips: int, arguments: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """As :meth:`run`, once for each size, which the script finds in ``sizes``: chips are new each time."""
        return [told for nbytes in sizes for told in self.run(script, sips, {**arguments, "sizes": [nbytes]})]

    def run(
        self, script: str, sips: int, arguments: Mapping[str, object], topology: str = "ring_1d"
    ) -> list[dict[str, Any]]:
        """What the ranks of a host script of ``launcher.bench.programs`` have told. ``topology``: as of ``--topology``.

        Raises:
            SimulationError: when the run fails.
            ConfigError: for settings that cannot be.
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
        return [json.loads(told) for told in re.findall(rf"{re.escape(MARK)}(\{{.*\}})", outcome.output)]
