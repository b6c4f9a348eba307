"""Artifact folder of a rank: files with any names that the rank's process writes for the launcher.

The launcher finds the files in ``rank_folder`` of the run's private folder, including files of ranks on other hosts.
Names must be text without control characters, at most ``MOST_FOLDERS`` folders deep; other files are not transferred.
"""

import os
import re
from pathlib import Path

from sipsim.core.errors import OutputError

RECORDED_IO = "recorded_io"
"""Name of the folder for the inputs and outputs of a script's collectives."""
MOST_FOLDERS = 8
LONGEST_NAME = 1024
_PART = r"(?!\.\.?(?:/|\Z))[^/\x00-\x1f\ud800-\udfff]{1,255}"
NAME_PATTERN = rf"\Arank-[0-9]{{1,6}}(?:/{_PART}){{1,{MOST_FOLDERS + 1}}}\Z"
"""Pattern of the path of an artifact, relative to the folder that contains the folders of all ranks."""
_NAME = re.compile(NAME_PATTERN)


def rank_folder(folder: str, rank: int) -> str:
    """Return the path of a rank's artifact folder in ``folder``."""
    return os.path.join(folder, f"rank-{rank}")


def is_artifact(name: str) -> bool:
    """Return whether ``name``, a path relative to the parent of the ranks' folders, is a valid name of an artifact."""
    return len(name) <= LONGEST_NAME and _NAME.match(name) is not None


def make_artifact_folder(folder: str, *below: str) -> Path:
    """Return a rank's artifact folder, or a folder below it, after creating it if necessary.

    Raises:
        OutputError: the folder cannot be created, or the rank has no artifact folder (``folder`` is "").
    """
    if not folder:
        raise OutputError("this rank has no artifact folder, so its files would not reach the launcher")
    path = Path(folder, *below)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = "free disk space there, or set TMPDIR to another folder"
        raise OutputError(f"{path}: the folder cannot be created: {error.strerror}; {hint}") from None
    return path
