"""Every key of a config with other values that its schema allows, from the structs themselves."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from sipsim.chips.ahbm.collectives.neighbours import TABLES
from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY, MEMORY_KINDS
from sipsim.chips.ahbm.memory.presets import presets
from sipsim.chips.api.chip import kind_of
from sipsim.config.check import Path, dotted
from sipsim.config.schema import Resolved
from sipsim.fabric.links.kind import LINK_KINDS
from sipsim.topology.links import TOPOLOGIES

OF_MEMORIES = ("hbm", "sram", "tcm")


class Key(NamedTuple):
    """A key, its value, and others, of which rules between values may refuse some."""

    path: Path
    value: Any
    others: list[Any]

    @property
    def name(self) -> str:
        return dotted(self.path)

    def flags(self) -> Iterator[str]:
        """As ``--set`` takes them."""
        yield from (f"{self.name}={json.dumps(other)}" for other in self.others)


def keys_of(resolved: Resolved) -> Iterator[Key]:
    """All keys of the four files, also those that have no value there, and those of the kinds that are chosen."""
    raw = msgspec.to_builtins(resolved)
    names = [*TOPOLOGIES.names(), *TABLES.names(), *MEMORY_KINDS.names(), *LINK_KINDS.names(), *presets()]
    names += [*raw["links"]["links"], *raw["ccl"]["algorithms"]]
    for file in inspect.type_info(Resolved).fields:  # type: ignore[attr-defined]
        for key in _below(resolved, (), raw[file.encode_name], file.type, {}):
            if isinstance(key.value, str):
                key.others.extend(name for name in names if name != key.value)
            yield key


def _below(resolved: Resolved, path: Path, value: Any, kind: Any, owner: Mapping[str, Any]) -> Iterator[Key]:
    if isinstance(kind, inspect.UnionType) and isinstance(value, dict):
        yield Key(path, value, [None])
        kind = next(each for each in kind.types if isinstance(each, inspect.StructType))
    if isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.AnyType):
        value, kind = _params(resolved, path, value, owner)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.encode_name not in kind.cls.for_readers:
                own = value.get(field.encode_name, _default(field))
                yield from _below(resolved, (*path, field.encode_name), own, field.type, value)
    elif isinstance(kind, inspect.DictType):
        for key, item in value.items():
            yield from _below(resolved, (*path, key), item, kind.value_type, value)
    elif kind is not None:
        yield Key(path, value, [each for each in _others(kind, value) if each != value])


def _params(resolved: Resolved, path: Path, value: Any, owner: Mapping[str, Any]) -> tuple[Any, Any]:
    """Free parameters, and the struct of their kind."""
    if path == ("system", "chip_params"):
        chip = kind_of(resolved)
        return chip.params_of(value), inspect.type_info(chip.Params)
    if path[0] == "links":
        return value, inspect.type_info(LINK_KINDS.get(owner["kind"]))
    if path[0] in OF_MEMORIES:
        return value, inspect.type_info(MEMORY_KINDS.get(owner.get("kind") or FIXED_LATENCY).Params)
    return value, None


def _default(field: inspect.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return None if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _others(kind: Any, value: Any) -> list[Any]:
    match kind:
        case inspect.UnionType():
            return [each for option in kind.types for each in _others(option, value)]
        case inspect.NoneType():
            return [None]
        case inspect.BoolType():
            return [not value]
        case inspect.LiteralType():
            return list(kind.values)
        case inspect.EnumType():
            return [each.value for each in kind.cls]
        case inspect.IntType() | inspect.FloatType():
            number = 4 if value is None or isinstance(value, str) else value
            drawn = [
                number * 2,
                number // 2 if isinstance(kind, inspect.IntType) else number / 2,
                number + 1,
                number + 7,
            ]
            return [each for each in (*drawn, 1, 0) if _is_in(each, kind)]
        case inspect.VarTupleType():
            return [list(value[:-1]), list(value[::-1])] if value else []
    return []


def _is_in(number: float, kind: Any) -> bool:
    least = (kind.ge is None or number >= kind.ge) and (kind.gt is None or number > kind.gt)
    most = (kind.le is None or number <= kind.le) and (kind.lt is None or number < kind.lt)
    return least and most and (kind.multiple_of is None or number % kind.multiple_of == 0)
