"""``torch.ahbm.row``: what a script does inside is a row of the table by itself, from a row start on."""

from collections.abc import Callable
from typing import Any

from sipsim.chips.ahbm.host.records import RunRecords


class Row:
    """A context manager; see :meth:`sipsim.chips.ahbm.host.distributed.distributed.Distributed.row`. ``begin(name)``:
    the row start.
    """

    def __init__(self, name: str, records: RunRecords, begin: Callable[[str], None]) -> None:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(f"row({name!r}): give its name as a line of text")
        self._name = name
        self._records = records
        self._begin = begin

    def __enter__(self) -> None:
        name, records = self._name, self._records
        if records.row is not None:
            raise ValueError(f"row({name!r}) is inside row({records.row!r}); let that end first")
        self._begin(name)
        records.row = name

    def __exit__(self, *_error: Any) -> None:
        self._records.row = None
