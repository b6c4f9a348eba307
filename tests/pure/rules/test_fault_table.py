"""The table of fault groups says what is true: each test that it names is there, and would be collected."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fault_groups", ROOT / "tests/fault_groups.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = _table()


def collected(path: Path) -> set[str]:
    """``[CLASS::]FUNCTION`` of every test in a file, by reading it."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            inner = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            found.update(f"{node.name}::{name}" for name in inner if name.startswith("test_"))
    return found


def trouble(test: str) -> str:
    """Why a test that the table names is none; "" for one that is."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.is_file():
        return f"{test}: there is no {file}"
    names = collected(path)
    return "" if (name in names if name else names) else f"{test}: {file} has no such test"


def test_there_are_twenty_two_groups() -> None:
    assert list(TABLE.FAULT_GROUPS) == list(range(1, 23))


@pytest.mark.parametrize("number", TABLE.FAULT_GROUPS)
def test_every_test_that_it_names_is_there(number: int) -> None:
    group = TABLE.FAULT_GROUPS[number]
    assert [why for test in group.tests if (why := trouble(test))] == []
    assert len(set(group.tests)) == len(group.tests)
    assert group.tests


@pytest.mark.parametrize(
    "test",
    [
        "tests/pure/test_gone.py",
        "tests/pure/test_gone.py::test_it",
        "tests/pure/rules/test_fault_table.py::test_gone",
        "tests/pure/rules/test_fault_table.py::trouble",
        "tests/processes/test_reports.py::test_each_is_named",
        "tests/processes/launch.py",
    ],
)
def test_what_is_no_test_is_found_out(test: str) -> None:
    assert trouble(test)
