"""What the processes of an agent leave in its folder for the launcher: logs while they run, other files at the end."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.hosts.wire import PIECE_BYTES, File, Log

WANTED = re.compile(r"\d+-\d+-(in|out)\.npy|trace\.\d+\.csv")
"""What a script's ranks leave for the check of their results, and traces."""


class AgentArtifacts:
    """Those in ``folder``; logs are read on from where they were last read to."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._read: dict[str, int] = {}

    def logs(self) -> Iterator[Log]:
        """What is new in the logs."""
        for path in sorted(self._folder.glob("sip-*.log")):
            with path.open("rb") as log:
                log.seek(self._read.get(path.stem, 0))
                while piece := log.read(PIECE_BYTES):
                    self._read[path.stem] = log.tell()
                    yield Log(path.stem, piece)

    def files(self) -> Iterator[File]:
        """Everything else that the launcher wants, piece by piece."""
        for path in sorted(self._folder.iterdir()):
            if WANTED.fullmatch(path.name):
                with path.open("rb") as file:
                    while piece := file.read(PIECE_BYTES):
                        yield File(path.name, piece)

    def remove(self) -> None:
        """The folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
