"""Loads a user's Python file as it is now.

Python takes cached bytecode for a file of the same size and the same second. A script that a sweep writes anew at
once would run as the one before it.
"""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class SourceLoader(SourceFileLoader):
    """Compiles the source each time, and writes no bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def source_spec(name: str, path: Path | str) -> ModuleSpec:
    """How to import the file ``path`` as module ``name``."""
    spec = spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    assert spec is not None
    return spec
