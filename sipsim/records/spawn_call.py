"""Call of a worker by ``mp.spawn``: the names of its module and function, and its arguments as bytes.

The arguments travel to the processes of the SIPs, which may be on other hosts, so only plain data can be arguments.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from sipsim.core.errors import ConfigError
from sipsim.core.task import NOT_PLAIN, makes_generator

PLAIN = "numbers, strings, bytes, lists, tuples, dicts and NumPy arrays"
MAIN = "__main__"
_TUPLE, _DICT, _ARRAY, _SCALAR, _INT, _COMPLEX = range(1, 7)
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1
_ARRAY_KINDS = "?biufcSUMm"


class SpawnCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Function ``name`` of ``module``, called as ``name(rank, *args)``; module ``__main__`` is the host script.

    ``packed``: the arguments, encoded by :meth:`of`.
    """

    module: str
    name: str
    packed: bytes

    @classmethod
    def of(cls, fn: Callable[..., object], args: tuple[object, ...]) -> "SpawnCall":
        """Return the call of a function that is found by its module-level name.

        Raises:
            ConfigError: ``fn`` has no module-level name, or an argument is not plain data.
        """
        module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
        if (
            isinstance(fn, type)
            or not callable(fn)
            or not isinstance(module, str)
            or not isinstance(name, str)
            or not name.isidentifier()
        ):
            what = "a lambda" if name == "<lambda>" or str(name).endswith(".<lambda>") else repr(fn)
            raise ConfigError(
                f"mp.spawn: {what} has no module-level name; give a function that a module defines by def"
            )
        if makes_generator(fn):
            raise ConfigError(f"mp.spawn: {name} {NOT_PLAIN}")
        if not isinstance(args, tuple | list):
            raise ConfigError(f"mp.spawn: args={args!r}; give a tuple of the arguments of {name} after the rank")
        try:
            packed = [_packed(each, f"args[{index}]") for index, each in enumerate(args)]
        except RecursionError:
            raise ConfigError("mp.spawn: args are nested too deeply; give args without cycles") from None
        return cls(module, name, msgspec.msgpack.encode(packed))

    def args(self) -> list[Any]:
        """Return new copies of the arguments."""
        args: list[Any] = _decode(self.packed)
        return args


def _packed(value: Any, where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        return value if _LEAST_INT <= value <= _MOST_INT else Ext(_INT, hex(value).encode())
    if kind is complex:
        return _ext(_COMPLEX, [value.real, value.imag])
    if kind in (list, tuple):
        items = [_packed(each, f"{where}[{index}]") for index, each in enumerate(value)]
        return items if kind is list else _ext(_TUPLE, items)
    if kind is dict:
        return _ext(_DICT, [(_packed(key, where), _packed(each, f"{where}[{key!r}]")) for key, each in value.items()])
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _ARRAY_KINDS:
        array = np.asarray(value, order="C")
        return _ext(_ARRAY if kind is np.ndarray else _SCALAR, [array.dtype.str, array.shape, array.tobytes()])
    raise ConfigError(f"mp.spawn: {where} is a {kind.__name__}; give only {PLAIN}")


def _ext(code: int, content: Any) -> Ext:
    return Ext(code, msgspec.msgpack.encode(content))


def _decode(data: bytes | memoryview) -> Any:
    return msgspec.msgpack.decode(data, ext_hook=_unpacked)


def _unpacked(code: int, data: memoryview) -> Any:
    if code == _INT:
        return int(bytes(data), 16)
    content = _decode(data)
    if code == _TUPLE:
        return tuple(content)
    if code == _DICT:
        return dict(content)
    if code == _COMPLEX:
        return complex(*content)
    dtype, shape, raw = content
    array = np.frombuffer(raw, dtype).reshape(shape).copy()
    return array if code == _ARRAY else array[()]
