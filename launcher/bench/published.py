"""Published figures of hardware: rows of a CSV file, and which simulated figure answers which row."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from launcher.bench.base import Figure
from sipsim.config.load import default_dir
from sipsim.errors import ConfigError

COLUMNS = (
    "id",
    "arch",
    "family",
    "test",
    "hops",
    "packet_size_bytes",
    "channels",
    "metric",
    "value",
    "kind",
    "statistic",
)
"""Those that are read; others may stand beside them."""
MAX_FILE_BYTES = 16 * 2**20


class Published(NamedTuple):
    """A row. ``kind``: ``output`` is to be reproduced, ``input`` may be a parameter. ``nbytes``: None if not given."""

    id: str
    architecture: str
    family: str
    test: str
    hops: int
    nbytes: int | None
    channels: int
    metric: str
    value: float
    kind: str
    statistic: str
    tolerance: str = ""

    def is_answered_by(self, figure: Figure) -> bool:
        """Whether a figure of this row's architecture is what the row measured."""
        case = figure.case
        if case.hops != max(self.hops, 1):
            return False
        is_same_case = (case.test, case.channels, figure.nbytes) == (self.test, self.channels, self.nbytes)
        return is_same_case and (figure.metric, figure.statistic) == (self.metric, self.statistic)


def default_files() -> list[Path]:
    """Those that come with the project."""
    return sorted((default_dir() / "published").glob("*.csv"))


def read_published(path: Path) -> list[Published]:
    """The rows of a file.

    Raises:
        ConfigError: one line with the file, the line and what is wrong.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB, which no table of figures is")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{path}:1: column {missing[0]} is missing; needed are {', '.join(COLUMNS)}")
    rows, seen = [], dict[str, int]()
    for values in reader:
        row = _row(values, f"{path}:{reader.line_num}")
        if row.id in seen:
            raise ConfigError(f"{path}:{reader.line_num}: row {row.id} stands in line {seen[row.id]} already")
        seen[row.id] = reader.line_num
        rows.append(row)
    return rows


def _row(values: dict[str, str | None], where: str) -> Published:
    def number(name: str, default: int | None) -> int | None:
        text = (values[name] or "").strip()
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise ConfigError(f"{where}: {name} {text!r} must be a whole number")
        return int(text)

    text = (values["value"] or "").strip()
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{where}: value {text!r} must be a number") from None
    names = {name: values[name] or "" for name in ("id", "arch", "family", "test", "metric", "kind", "statistic")}
    if not names["id"]:
        raise ConfigError(f"{where}: a row needs an id")
    hops, channels = number("hops", 1), number("channels", 1)
    assert hops is not None
    assert channels is not None
    return Published(
        id=names["id"],
        architecture=names["arch"],
        family=names["family"],
        test=names["test"],
        hops=hops,
        nbytes=number("packet_size_bytes", None),
        channels=channels,
        metric=names["metric"],
        value=value,
        kind=names["kind"],
        statistic=names["statistic"],
        tolerance=values.get("tolerance") or "",
    )


def row_of(figure: Figure, architecture: str, rows: Iterable[Published]) -> Published | None:
    """The published row that a figure answers, if there is one."""
    return next((row for row in rows if row.architecture == architecture and row.is_answered_by(figure)), None)
