"""Every test that the table of fault groups names exists."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GROUPS = runpy.run_path(str(ROOT / "tests/fault_groups.py"))["FAULT_GROUPS"]


def collected(path: Path) -> set[str]:
    """``[CLASS::]FUNCTION`` of every test in a file, read from its source."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner = [(f"{node.name}::", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found.update(prefix + each.name for prefix, each in inner if isinstance(each, ast.FunctionDef))
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("number", GROUPS)
def test_every_test_of_a_group_exists(number: int) -> None:
    tests = GROUPS[number].tests
    files = {name.partition("::")[0] for name in tests}
    known = {f"{file}::{test}" for file in files for test in collected(ROOT / file)} | files
    assert tests
    assert sorted(set(tests) - known) == []
