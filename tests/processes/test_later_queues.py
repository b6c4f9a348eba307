"""Queue pairs that a host script makes while time runs, in processes, one of which is killed and comes back."""

from pathlib import Path

import pytest
from later_script import FLAGS, SCRIPT
from launch import launched


@pytest.mark.processes
@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:2@1us")], ids=["as is", "killed"])
def test_a_rank_that_is_killed_comes_back_with_its_generations(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """With the digest of one process that is left alone; the script checks its sums itself."""
    script = tmp_path / "later.py"
    script.write_text(SCRIPT)
    once = launched("--engine", "inproc", *FLAGS, script)
    assert once.exit_code == 0, once.stderr
    done = launched("--engine", "local", *FLAGS, *flags, "--json", tmp_path / "out.json", script)
    assert done.exit_code == 0, done.stderr
    assert done.digest == once.digest
    if flags:
        assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 1, 0, 0]
