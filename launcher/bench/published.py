"""Published figures of the hardware, read from CSV files."""

import csv
import io
import math
from pathlib import Path
from typing import NamedTuple

from sipsim.config.load import default_dir
from sipsim.core.errors import ConfigError
from sipsim.core.files import read_limited

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
"""Columns that a file must have. Columns in ``FURTHER`` are read if present; all other columns are ignored."""
CASE = "case"
"""The column with a row's bench and case, which ``scripts/tenstorrent`` writes and ``ahbm-bench`` reads."""
FURTHER = ("topology", "num_devices", "num_links", "total_bytes", "noc_message_type", "note", "tolerance", CASE)
MAX_FILE_BYTES = 16 * 2**20
MAX_DIGITS = 15
TO_REPRODUCE = "output"


class Published(NamedTuple):
    """Row of published figures. ``kind``: ``output`` for a value that the simulation should reproduce, ``input`` for a
    parameter's value. Empty cells are None (numbers) or "" (texts). ``devices`` is a text, as some rows contain
    ``2,4``. ``message``: type of NoC message. ``problem``: the unreadable cell; such a row has no case.
    """

    id: str
    architecture: str
    family: str
    test: str
    hops: int | None
    nbytes: int | None
    channels: int | None
    metric: str
    value: float | None
    kind: str
    statistic: str
    topology: str = ""
    devices: str = ""
    links: int | None = None
    total_bytes: int | None = None
    message: str = ""
    note: str = ""
    case: str = ""
    tolerance: str = ""
    problem: str = ""


def default_files() -> list[Path]:
    """Return the project's files of published figures."""
    return sorted((default_dir() / "published").glob("*.csv"))


def read_published(path: Path, with_cases: bool = False) -> list[Published]:
    """Return the rows of a file; unreadable rows have a ``problem``. ``with_cases``: require column ``case``.

    Raises:
        ConfigError: if the file is no table, a column is missing, or an id is missing or repeated.
    """
    try:
        data = read_limited(path, MAX_FILE_BYTES)
        if data is None:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB; name a table of figures")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; name a CSV table") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows, seen = [], dict[str, int]()
    try:
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(f"{path}:1: column {missing[0]} is missing; needed are {', '.join(COLUMNS)}")
        if with_cases and CASE not in (reader.fieldnames or ()):
            how = f"add it with python scripts/validate_tenstorrent.py --csv {path} --add-cases"
            raise ConfigError(f"{path}:1: column {CASE} is missing; {how}")
        for values in reader:
            row = _row({name: values.get(name) or "" for name in (*COLUMNS, *FURTHER)})
            if not row.id:
                raise ConfigError(f"{path}:{reader.line_num}: the row has no id; give the row an id")
            if row.id in seen:
                raise ConfigError(f"{path}:{reader.line_num}: row {row.id} is in line {seen[row.id]}, too; rename one")
            seen[row.id] = reader.line_num
            rows.append(row)
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}: is not CSV: {error}; correct the line") from None
    return rows


def _row(values: dict[str, str]) -> Published:
    problems: list[str] = []

    def whole(name: str) -> int | None:
        text = values[name].strip()
        if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
            return int(text)
        if text:
            problems.append(f"{name} {text!r} is no whole number")
        return None

    def measured() -> float | None:
        text = values["value"].strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value > 0:
            return value
        problems.append(f"value {text!r} is no number above 0")
        return None

    return Published(
        id=values["id"],
        architecture=values["arch"],
        family=values["family"],
        test=values["test"],
        hops=whole("hops"),
        nbytes=whole("packet_size_bytes"),
        channels=whole("channels"),
        metric=values["metric"],
        value=measured(),
        kind=values["kind"],
        statistic=values["statistic"],
        topology=values["topology"],
        devices=values["num_devices"],
        links=whole("num_links"),
        total_bytes=whole("total_bytes"),
        message=values["noc_message_type"],
        note=values["note"],
        case=values[CASE],
        tolerance=values["tolerance"],
        problem="; ".join(problems),
    )
