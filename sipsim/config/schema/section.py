"""What the sections of config files are made of: bounded numbers, and a struct whose keys are exactly its fields."""

from typing import Annotated, Any, ClassVar, get_type_hints

from msgspec import Meta, Struct

Index = Annotated[int, Meta(ge=0, le=2047)]
PositiveInt = Annotated[int, Meta(ge=1, le=2**40)]
NonNegative = Annotated[float, Meta(ge=0, le=1e6)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping in a config file whose keys are exactly the fields.

    ``for_readers``: keys that say something to people, and have no effect on a run.
    """

    for_readers: ClassVar[tuple[str, ...]] = ()


def field_types(section: type[Section]) -> dict[str, Any]:
    """The type of each key, in order."""
    hints = get_type_hints(section, include_extras=True)
    return {key: hints[key] for key in section.__struct_fields__}


class NoParams(Section, frozen=True):
    """The parameters of a kind that has none of its own."""
