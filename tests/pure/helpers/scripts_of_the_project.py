"""Programs of ``scripts`` as modules."""

import importlib.util
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "scripts"


def script(name: str) -> Any:
    """``scripts/NAME.py``, run anew."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
