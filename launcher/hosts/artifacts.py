"""Files that an agent's processes write for the launcher: logs while they run, results and traces at the end."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.hosts.wire import PIECE_BYTES, File, Log

WANTED = re.compile(r"\d+-\d+-(in|out)\.npy|trace\.\d+\.csv")
"""Recorded data of scripts, and traces."""


class AgentArtifacts:
    """The files in ``folder``; logs are read incrementally."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._read: dict[str, int] = {}

    def logs(self) -> Iterator[Log]:
        """New output in the logs."""
        for path in sorted(self._folder.glob("sip-*.log")):
            with path.open("rb") as log:
                log.seek(self._read.get(path.stem, 0))
                while piece := log.read(PIECE_BYTES):
                    self._read[path.stem] = log.tell()
                    yield Log(path.stem, piece)

    def files(self) -> Iterator[File]:
        """All other wanted files, piece by piece."""
        for path in sorted(self._folder.iterdir()):
            if WANTED.fullmatch(path.name):
                with path.open("rb") as file:
                    while piece := file.read(PIECE_BYTES):
                        yield File(path.name, piece)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
