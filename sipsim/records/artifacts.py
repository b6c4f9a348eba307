"""A rank's artifact folder: the files that its process leaves for the launcher, whatever their names.

The launcher finds them in ``rank_folder`` of the run's private folder, also those of ranks on other hosts. Names are
text without control characters, at most ``MOST_FOLDERS`` folders deep; other files stay where the rank ran.
"""

import os
import re
from pathlib import Path

from sipsim.core.errors import OutputError

RECORDED_IO = "recorded_io"
"""The folder of the inputs and outputs of a script's collectives."""
MOST_FOLDERS = 8
LONGEST_NAME = 1024
_PART = r"(?!\.\.?(?:/|\Z))[^/\x00-\x1f\ud800-\udfff]{1,255}"
NAME_PATTERN = rf"\Arank-[0-9]{{1,6}}(?:/{_PART}){{1,{MOST_FOLDERS + 1}}}\Z"
"""The name of a file in a rank's folder, from the folder that holds the folders of all ranks."""
_NAME = re.compile(NAME_PATTERN)


def rank_folder(folder: str, rank: int) -> str:
    """The artifact folder of a rank below ``folder``."""
    return os.path.join(folder, f"rank-{rank}")


def is_artifact(name: str) -> bool:
    """Whether ``name``, relative to what holds the ranks' folders, names a file in one of them."""
    return len(name) <= LONGEST_NAME and _NAME.match(name) is not None


def made(folder: str, *below: str) -> Path:
    """A rank's artifact folder, or a folder below it, made where it is missing.

    Raises:
        OutputError: when it cannot be made, or the rank has none (``folder`` is empty).
    """
    if not folder:
        raise OutputError("this rank has no artifact folder; its files would stay where it runs")
    path = Path(folder, *below)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = "make room there, or set TMPDIR to another folder"
        raise OutputError(f"{path}: cannot be made: {error.strerror}; {hint}") from None
    return path
