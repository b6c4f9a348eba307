"""Names of files that no file system takes, and links that lead in a circle: each is refused in a line."""

from pathlib import Path

import pytest

from launcher import options
from launcher.result.document import check_files, write_refusal
from launcher.run import prepare
from sipsim.core.errors import ConfigError
from sipsim.node.script import find_script

LONG = "a" * 300


@pytest.mark.parametrize("flag", ["--config", "--ccl"])
def test_a_config_file_that_is_a_circle_of_links(tmp_path: Path, flag: str) -> None:
    circle = tmp_path / "circle.yaml"
    circle.symlink_to(circle)
    with pytest.raises(ConfigError, match=r"circle\.yaml"):
        prepare.resolve(options.parse([flag, str(circle)]))


def test_a_script_with_a_name_that_is_too_long() -> None:
    with pytest.raises(ConfigError, match=LONG):
        find_script(f"{LONG}.py", as_module=False)


def test_a_result_file_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--json"):
        check_files({"--json": tmp_path / LONG}, {})
    write_refusal(tmp_path / LONG, [], "no such thing")


def test_a_result_does_not_overwrite_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the record of a refusal, whichever flag it is for."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "s.py"
    script.write_text("")
    for argv in (["--json", "s.py", "s.py"], ["--csv=./s.py", "--config", "s.py"], ["--oplog", "s.py", "--ccl=s.py"]):
        chosen = options.parse(argv)
        with pytest.raises(ConfigError, match=r"^--\w+ s.py: would overwrite the file of "):
            check_files(chosen.files, chosen.inputs)
        write_refusal(Path("s.py"), argv, "no such thing")
    assert script.read_text() == ""


def test_two_results_on_standard_output() -> None:
    with pytest.raises(ConfigError, match=r"^--csv -: is also the file of --json"):
        check_files({"--json": Path("-"), "--csv": Path("-")}, {})
