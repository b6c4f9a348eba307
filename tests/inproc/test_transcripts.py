"""Commands and what they say, line by line: ``transcripts/*.txt``, by the default config.

``pytest tests/inproc/test_transcripts.py --refresh`` writes them anew; the diff is to be read.
"""

import gc
from pathlib import Path

import pytest

from ahbm_sim.testing import session

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands_say_what_they_said(
    file: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    thresholds = gc.get_threshold()
    text = file.read_text()
    played = session(text, tmp_path)
    gc.set_threshold(*thresholds)
    if request.config.getoption("refresh"):
        file.write_text(played)
    else:
        assert played.splitlines() == text.splitlines()
