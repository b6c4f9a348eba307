"""Files that an agent's processes write for the launcher: logs while they run, artifact folders at the end."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from launcher.hosts.wire import PIECE_BYTES, File, Log
from sipsim.core.files.files import Unsafe, reader
from sipsim.records.artifacts import is_artifact


class AgentArtifacts:
    """The files in ``folder``; logs are read incrementally."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._read: dict[str, int] = {}

    def logs(self) -> Iterator[Log]:
        """New output in the logs."""
        for path in sorted(self._folder.glob("sip-*.log")):
            with reader(path) as log:
                log.seek(self._read.get(path.stem, 0))
                while piece := log.read(PIECE_BYTES):
                    self._read[path.stem] = log.tell()
                    yield Log(path.stem, piece)

    def files(self) -> Iterator[File]:
        """Every file in the ranks' artifact folders, whatever its name, piece by piece; an empty file is one piece.

        Links are not followed. A file that cannot be sent is named on standard error.
        """
        for path in sorted(self._folder.glob("rank-*")):
            for folder, _, names in os.walk(path):
                for name in sorted(names):
                    yield from self._pieces(Path(folder, name))

    def _pieces(self, path: Path) -> Iterator[File]:
        name = path.relative_to(self._folder).as_posix()
        try:
            file = reader(path)
        except Unsafe as error:
            print(f"ahbm-agent: {name!r} stays on its host: it {error.strerror}", file=sys.stderr)
            return
        with file:
            if not is_artifact(name):
                why = "its name is too long, too deep or no text"
                print(f"ahbm-agent: {name!r} stays on its host: {why}", file=sys.stderr)
                return
            piece = file.read(PIECE_BYTES)
            yield File(name, piece)
            while piece := file.read(PIECE_BYTES):
                yield File(name, piece)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
