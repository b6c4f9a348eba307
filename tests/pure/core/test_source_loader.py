"""A file that is written anew at once is loaded anew."""

import importlib.util
import os
from pathlib import Path

from sipsim.core.registry import source_spec


def loaded(path: Path) -> int:
    spec = source_spec("script", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.n)


def test_a_file_of_the_same_size_and_second_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    for n in (1, 2):
        path.write_text(f"n = {n}\n")
        os.utime(path, (0, 0))
        assert loaded(path) == n
    assert [each.name for each in tmp_path.iterdir()] == ["script.py"]
