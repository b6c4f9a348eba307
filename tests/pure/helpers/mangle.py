"""Valid bytes made a little wrong: a value inside MessagePack or JSON replaced, dropped, doubled; or the bytes.

Not a test. For ``tests/pure/rules/test_fuzz.py``.
"""

import json
import random
from typing import Any

import msgpack


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


DEEP = 500
CLAIMS = [b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
"""Of 4 G elements, characters, bytes and pairs."""
BITS = [*CLAIMS, b"\xc7\x01\x05x", b"\xd4\x05x", b"\xd6\xff\x00\x00\x00\x01", b"\xc1", b"\xc0", b"\xff", b"\x00"]
BITS += [
    b"\n",
    b'"',
    b"[",
    b"{",
    b":",
    b",",
    b" ",
    b"-",
    b"\x1b",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"9" * 5000,
    b"\xb2",
]
ODD: list[Any] = [None, True, False, -1, 0, 1, 4096, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 0.5, 1e308]
ODD += [float("nan"), float("inf"), "", "x" * 99, [], {}, {"a": 1}, [[[[]]]], "\x00", "ä", "²", "a\nb", nested(DEEP)]
ONLY_PACKED: list[Any] = [b"", b"\xff" * 99, {1: 2}, msgpack.ExtType(5, b"x"), msgpack.ExtType(5, b"")]


def changed(value: Any, dice: random.Random, odd: list[Any]) -> Any:
    """A value with one thing in it replaced, dropped, doubled or moved."""
    if not isinstance(value, list | dict) or not value or dice.random() < 0.1:
        return dice.choice(odd)
    if isinstance(value, dict):
        key = dice.choice(list(value))
        rest = {name: item for name, item in value.items() if name != key}
        match dice.randrange(6):
            case 0:
                return rest
            case 1:
                return {**value, "odd": dice.choice(odd)}
            case _:
                return {**rest, key: changed(value[key], dice, odd)}
    found = list(value)
    at = dice.randrange(len(found))
    match dice.randrange(7):
        case 0:
            del found[at]
        case 1:
            found.insert(at, found[at])
        case 2:
            found.insert(at, dice.choice(odd))
        case 3:
            other = dice.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        case _:
            found[at] = changed(found[at], dice, odd)
    return found


def with_value_changed(data: bytes, dice: random.Random) -> bytes | None:
    """``data`` with a value in it changed; None where it is neither JSON nor MessagePack."""
    try:
        value = json.loads(data)
        if isinstance(value, list | dict):
            return json.dumps(changed(value, dice, ODD)).encode()
    except (ValueError, RecursionError):
        pass
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
        if isinstance(value, list | dict):
            packed: bytes = msgpack.packb(changed(value, dice, ODD + ONLY_PACKED))
            return packed
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        pass
    return None


def with_bytes_changed(data: bytes, dice: random.Random, words: tuple[bytes, ...] = ()) -> bytes:
    """``data`` cut, with a tail, with a part doubled or moved, or with some of its bytes replaced by odd ones."""
    at, to = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    bit = dice.choice([*BITS, *words])
    match dice.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data + bit
        case 2:
            return data[:at] + bit + data[at:]
        case 3:
            return data[:at] + bit + data[at + len(bit) :]
        case 4:
            return data[:to] + data[at:to] + data[to:]
        case 5:
            return data[:at] + data[to:]
        case _:
            return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]


def mangled(data: bytes, dice: random.Random, words: tuple[bytes, ...] = ()) -> bytes:
    """One to three changes of either kind."""
    for _ in range(dice.randint(1, 3)):
        other = with_value_changed(data, dice) if dice.random() < 0.6 else None
        data = with_bytes_changed(data, dice, words) if other is None else other
    return data
