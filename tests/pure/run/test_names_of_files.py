"""Names of files that no file system takes, and links that lead in a circle: each is refused in a line."""

from pathlib import Path

import pytest

from launcher.run import options, prepare
from launcher.run.results.result import check_files
from sipsim.errors import ConfigError
from sipsim.host.script import find_script

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
        check_files({"--json": tmp_path / LONG})
