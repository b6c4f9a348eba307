"""Fields of result files: their descriptions are read off their declarations, in the order of the files."""

from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest

from launcher.result.page import DOCUMENTS
from sipsim.core.fields import columns_of, fields_of, host_time, no_time, simulated_time


class Inner(NamedTuple):
    """In a tuple."""

    at_ps: Annotated[int, simulated_time("When.")]


class Struct(msgspec.Struct):
    """In a list."""

    wall_s: Annotated[float | None, host_time("How long.")]
    names: Annotated[list[str], no_time("With a default that is made anew.")] = []
    perhaps: Annotated[int | msgspec.UnsetType, no_time("Left out without a value.")] = msgspec.UNSET
    src: Annotated[str, no_time("By another name.")] = msgspec.field(name="from", default="")


Shared = Annotated[str, no_time("A name.")]


class Record(TypedDict):
    """All kinds of fields."""

    name: Shared
    alias: Shared | None
    counts: Annotated[list[list[int]], no_time("Lists.")]
    free: Annotated[dict[str, Any] | None, no_time("Any keys.")]
    rows: Annotated[list[Struct], no_time("Rows.")]
    pair: NotRequired[Annotated[tuple[Inner, ...] | None, no_time("Perhaps.")]]


def test_every_field_of_a_record_and_of_those_in_it() -> None:
    assert [(line.path, line.types, line.time, line.is_optional, line.is_open) for line in fields_of(Record)] == [
        ("name", "string", "none", False, False),
        ("alias", "string or null", "none", False, False),
        ("counts", "array", "none", False, False),
        ("free", "object or null", "none", False, True),
        ("rows", "array", "none", False, False),
        ("rows[].wall_s", "number or null", "host", False, False),
        ("rows[].names", "array", "none", False, False),
        ("rows[].perhaps", "integer", "none", True, False),
        ("rows[].from", "string", "none", False, False),
        ("pair", "array", "none", True, False),
        ("pair[].at_ps", "integer", "simulated", False, False),
    ]
    assert [line.text for line in fields_of(Record)][:3] == ["A name.", "A name.", "Lists."]
    assert columns_of(Record) == ("name", "alias", "counts", "free", "rows", "pair")


def test_a_field_without_a_description_is_refused() -> None:
    class Bare(NamedTuple):
        """One is missing."""

        good: Shared
        bad: list[int] | None

    with pytest.raises(TypeError, match=r"Bare\.bad has no description; make it Annotated\[..., no_time\('...'\)\]"):
        list(fields_of(Bare))


@pytest.mark.parametrize("document", DOCUMENTS, ids=[document.written_by for document in DOCUMENTS])
def test_each_field_has_one_sentence_and_a_time_that_its_name_bears_out(document: Any) -> None:
    """A host's time is in s, in floats; one of the simulation in ps or ns."""
    lines = list(fields_of(document.record))
    assert len({line.path for line in lines}) == len(lines) > 2
    for line in lines:
        text, unit = line.text, line.path.rpartition("_")[2]
        assert text.endswith("."), line.path
        assert text[:-1].count(". ") == 0, line.path
        wanted = {"s": "host", "ps": "simulated", "ns": "simulated", "GBps": "simulated"}.get(unit)
        if wanted is not None and line.types != "object":
            assert line.time == wanted, line.path
