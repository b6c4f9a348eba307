"""What a data mover had left at the end of a run is told, in a run that is well otherwise."""

from pathlib import Path

import pytest
from runs import run

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/tensix/slices.py"


@pytest.mark.parametrize("short", [False, True], ids=["all are read", "one is not"])
def test_a_channel_that_has_not_ended_is_told(tmp_path: Path, short: bool) -> None:
    """The reader takes the last row and does not say so."""
    source = EXAMPLE.read_text()
    say = "        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 2 if is_last else 1)\n\n\ndef tensor"
    assert say in source
    script = tmp_path / "slices.py"
    script.write_text(source.replace(say, f"        if row < ROWS - 1:\n    {say}") if short else source)
    done = run("--topology", "n300", script)
    told = [notice for notice in done.outcome.notices if "has not ended" in notice]
    assert done.document["status"] == "ok", done.document["error"]
    assert bool(told) is short
    if short:
        assert "rank 1: kernel erisc_data_mover on" in "".join(told)
        assert "after 7 messages, in READING: " in "".join(told)
