"""What commands print and refuse, line by line: the transcripts in ``transcripts/*.txt``, with the default config.

``./scripts/test tests/inproc/test_transcripts.py --refresh`` writes them anew; read the diff.
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
    thresholds = gc.get_threshold()  # ahbm-launch sets others
    text = file.read_text()
    try:
        played = session(text, tmp_path)
    finally:
        gc.set_threshold(*thresholds)
    if request.config.getoption("refresh"):
        file.write_text(played)
    else:
        assert played.splitlines() == text.splitlines()
