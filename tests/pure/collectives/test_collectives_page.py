"""The tables of docs/collectives.md are true: every formula is compared with what the schedule sends."""

import inspect
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from link_elements import link_elements
from schedules import MODULES, group_of, task_of

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.config import load
from sipsim.collectives.group import Group
from sipsim.collectives.schedule import PAIRS, RANKS, VECTOR, Transfer, units
from sipsim.collectives.semantics import COLLECTIVES, Task, every_rank, only_root

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/collectives.md").read_text(encoding="utf-8")
N_ELEM = 2**8 * 3**2 * 5 * 7
"""Elements of a unit of a long call: a multiple of most numbers of pieces."""
MESH = "mesh_2d_no_wrap"
SYSTEMS: dict[str, tuple[str, list[tuple[int, int]]]] = {
    "ring": ("ring_1d", [(3, 1), (4, 1), (5, 1), (8, 1)]),
    "ring, G even": ("ring_1d", [(4, 1), (6, 1), (8, 1)]),
    "ring, G odd": ("ring_1d", [(3, 1), (5, 1), (7, 1)]),
    "ring of 2^L": ("ring_1d", [(4, 1), (8, 1), (16, 1)]),
    "line": (MESH, [(3, 1), (4, 1), (5, 1), (8, 1)]),
    "torus": ("torus_2d", [(2, 2), (4, 2), (3, 3), (4, 4)]),
    "mesh": (MESH, [(2, 2), (4, 2), (3, 3), (4, 4)]),
    "any": ("ring_1d", [(4, 1), (6, 1), (8, 1)]),
}
"""What a table's column `links` stands for."""


class Row(NamedTuple):
    """``what``: the last column, `busiest link` or `busiest rank`."""

    algorithm: str
    collective: str
    links: str
    rounds: str
    what: str
    most: str


def tables(text: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(heading, column names, cells of the rows) of each table."""
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        for found in re.finditer(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", body, re.MULTILINE):
            lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
            yield heading.replace("`", ""), lines[0], lines[2:]


TABLES = list(tables(PAGE))
ROWS = [
    Row(heading, collective, cells[1], cells[2], columns[3], cells[3])
    for heading, columns, rows in TABLES
    if heading in MODULES
    for cells in rows
    for collective in re.findall(r"\w+", cells[0])
]


def holds(said: str, group: Group, counted: Fraction | int, near: Fraction | int = 0) -> bool:
    """Whether what a cell says is so, in units of ``n``; rounding of blocks apart."""
    width, height = group.grid
    names = {"G": group.size, "L": (group.size - 1).bit_length(), "W": width, "H": height, "n": Fraction(1)}
    found = re.fullmatch(r"(at most )?`(.*)`", said)
    assert found is not None, said
    # Exact: numbers of the formula become fractions, but `//` stays that of whole numbers.
    formula = re.sub(r"(?<!/)/(?!/)", "* ONE /", found[2])
    value = eval(formula, {"ONE": Fraction(1), **names})
    return counted <= value + near if found[1] else abs(counted - value) <= near


def rounds_of(module: ModuleType, task: Task) -> int:
    """The rounds of a schedule in which anything is sent."""
    steps = [step for flow in module.schedule(task) for rank in range(task.size) for step in flow.steps_of(rank)]
    return len({step.round for step in steps})


def most_of(module: ModuleType, task: Task, what: str) -> Fraction:
    """Elements over the busiest link, or of the busiest rank, in units."""
    if what == "busiest rank":
        return Fraction(module.most_moved(task), task.n_elem)
    counted = max(link_elements(task, module.schedule(task), module.wiring(task.group)).values())
    by_module = module.busiest_link(task)
    assert by_module is None or abs(by_module - counted) <= task.n_elem // 1000
    return Fraction(counted, task.n_elem)


def checked(row: Row) -> None:
    """Check a row on all systems of its column `links`."""
    module, (topology, shapes) = MODULES[row.algorithm], SYSTEMS[row.links]
    for shape in shapes:
        group = group_of(topology, shape)
        short, long = (task_of(row.collective, group, n_elem, itemsize=2) for n_elem in (group.size, N_ELEM))
        assert holds(row.rounds, group, rounds_of(module, short)), (row, shape, rounds_of(module, short))
        most = most_of(module, short if row.what == "busiest rank" else long, row.what)
        assert holds(row.most, group, most, Fraction(1, 1000)), (row, shape, most)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.algorithm}-{row.collective}-{row.links}")
def test_a_row_of_an_algorithm(row: Row) -> None:
    checked(row)


@pytest.mark.parametrize("wrong", [{"rounds": "`G`"}, {"most": "`n / 3`"}, {"rounds": "at most `1`"}])
def test_a_wrong_row_is_found(wrong: dict[str, str]) -> None:
    right = next(row for row in ROWS if (row.algorithm, row.collective) == ("ring", "all_reduce"))
    checked(right)
    with pytest.raises(AssertionError):
        checked(right._replace(**wrong))


def test_every_collective_of_every_algorithm_has_a_row() -> None:
    asked = {(name, collective) for name, module in MODULES.items() for collective in module.COLLECTIVES}
    assert {(row.algorithm, row.collective) for row in ROWS} == asked


@pytest.mark.parametrize("name", MODULES)
def test_the_text_says_whether_ranks_are_identical(name: str) -> None:
    section = PAGE[PAGE.index(f"\n### `{name}`\n") :].partition("\n|")[0]
    is_said = bool(re.search(r"(?<!Not )\b[Ii]dentical\b", section))
    assert is_said == MODULES[name].RANK_IDENTICAL


def of_table(heading: str) -> dict[str, list[str]]:
    """The rows of the table of a section by their first cell."""
    return {cells[0].strip("`"): cells[1:] for name, _, rows in TABLES if name == heading for cells in rows}


def test_the_table_of_collectives() -> None:
    rows = of_table("What each collective does")
    own = {name: COLLECTIVES.get(name) for name in COLLECTIVES.names() if "." not in name}
    assert set(rows) == set(own)
    for name, collective in own.items():
        *_, ops, factor = rows[name]
        assert ops == (", ".join(collective.ops) or "none"), name
        for size in (2, 3, 8):
            assert holds(factor, group_of("ring_1d", (size, 1)), collective.busbw_factor(size)), name


def test_the_table_of_intercube_algorithms() -> None:
    """Its columns against the modules; bytes against those that the runs of the page tell."""
    rows = of_table("The algorithms of intercube")
    entries = load().ccl.algorithms
    modules = {name: Algorithm(name, entry) for name, entry in entries.items()}
    assert set(rows) == {name for name, algorithm in modules.items() if not algorithm.is_schedule}
    lines = re.findall(r"^(\w+),(\d+),[\d.]+,(\d+)$", PAGE, re.MULTILINE)
    told = {name: (int(nbytes), int(most)) for name, nbytes, most in lines}
    for name, (lies, identical, most, _) in rows.items():
        assert (identical == "yes") == bool(modules[name].rank_identical), name
        nbytes, busiest = told[name]
        row_bytes = nbytes // (4 * 8 if lies == "one row per PE" else 4)
        assert eval(most.strip("`"), {"G": 4, "S": row_bytes}) == busiest, name


FIELDS = [table for heading, *table in TABLES if heading == "Writing an algorithm"]


def first_cells(*columns: str) -> list[str]:
    """The names in the first column of the one table of the section with these columns."""
    ((_, rows),) = [table for table in FIELDS if table[0] == [*columns]]
    return [name for cells in rows for name in re.findall(r"`(\w+)[^`]*`", cells[0])]


def test_the_fields_for_authors_are_there() -> None:
    """Those of tasks and groups, and all of a transfer in its order; none is told that a module has no hook for."""
    task, group = (
        {name for cells in rows for name in re.findall(r"`(\w+)", cells[0])}
        for columns, rows in FIELDS
        if columns == ["field", "what it is"]
    )
    assert task == {*Task._fields}
    assert all(hasattr(group_of("torus_2d", (3, 2)), name) for name in group)
    assert first_cells("field", "value") == [*Transfer._fields]
    hooks = set(first_cells("name", "needed", "what it is")) - {"busiest_link"}
    source = Path(inspect.getfile(Algorithm)).read_text(encoding="utf-8")
    assert all(f'_hook("{name}"' in source for name in hooks)


def test_the_blocks_of_each_collective() -> None:
    """By the definitions: who has a unit before and who needs it after, in a group of three with root 1."""
    who = {"all": every_rank, "the root": only_root}
    ((_, rows),) = [table for table in FIELDS if table[0][0] == "collectives"]
    told = set()
    for names, unit, before, after, block in rows:
        for place, name in enumerate(re.findall(r"`(\w+)`", names)):
            collective = COLLECTIVES.get(name)
            told.add(name)
            for has, said in ((collective.holds, before), (collective.needs, after)):
                said = said.split("; ")[min(place, said.count("; "))]
                for number, rank in product(range(units(collective.cut, 3)), range(3)):
                    wanted = who[said](number, rank, 3, 1) if said in who else _rank_of(said, number) == rank
                    assert has(number, rank, 3, 1) == wanted, (name, said, number, rank)
            of_unit = {VECTOR: "`p`", RANKS: "`r * pieces + p`", PAIRS: "`(i * G + j) * pieces + p`"}
            assert block == of_unit[collective.cut], (name, unit)
    every = (COLLECTIVES.get(name) for name in COLLECTIVES.names())
    assert told == {each.name for each in every if not each.per_cube}


def _rank_of(said: str, unit: int) -> int:
    """Of unit ``r``, or ``i * 3 + j``."""
    return {"rank r": unit, "rank i": unit // 3, "rank j": unit % 3}[said]
