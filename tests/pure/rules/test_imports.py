"""The layers of the three packages, as pyproject.toml lists them for import-linter."""

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def test_imports_keep_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    if lint_imports(config_filename=str(PYPROJECT), no_cache=True):
        pytest.fail(capsys.readouterr().out, pytrace=False)
