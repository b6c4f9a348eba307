"""Types of flag values: each parses a text, or raises ``ArgumentTypeError``. Only ``hosts`` may read a file."""

import argparse
import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from broker.mail.kinds import check_mail
from sipsim.core.files import read_limited
from sipsim.core.units import parse_size_bytes, parse_time_ps

Hosts = tuple[tuple[str, int | None], ...]
"""Names of hosts with the number of SIPs on each host; None if the host gets an equal share."""
MOST_SLOTS = 4096
MAX_HOSTS_BYTES = 2**20
MOST_SIPS = 2048
MOST_ITERATIONS = 100_000
MOST_ELEMENTS = 2**40
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?", re.ASCII)


class IntRange:
    """Flag type: a whole number from ``least`` to ``most``."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def __call__(self, text: str) -> int:
        number = int(text) if re.fullmatch("-*[0-9]{1,30}", text) and not text.startswith("--") else None
        if number is None or not self._least <= number <= self._most:
            allowed = f"a whole number of at least {self._least} and at most {self._most}"
            raise argparse.ArgumentTypeError(f"{text!r} must be {allowed}")
        return number


SIPS = IntRange(1, MOST_SIPS)
SEED = IntRange(0, 2**64 - 1)


def list_of(item: Callable[[str], int]) -> Callable[[str], list[int]]:
    """Return the flag type of several values of type ``item``, separated by commas."""

    def parse_list(text: str) -> list[int]:
        return [item(part) for part in text.split(",")]

    return parse_list


def names(text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas; no name may occur twice."""
    listed = tuple(part.strip() for part in text.split(","))
    if "" in listed:
        raise argparse.ArgumentTypeError(f"{text!r}: a name is missing; write NAME or NAME,NAME")
    for name, times in Counter(listed).items():
        if times > 1:
            raise argparse.ArgumentTypeError(f"{text!r} contains {name} {times} times; name it once")
    return listed


def place(text: str) -> tuple[int, int, int]:
    """Parse a PE, written SIP.CUBE.PE, and return the numbers of SIP, cube and PE."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a PE; write SIP.CUBE.PE, such as 0.3.0")
    return int(parts[0]), int(parts[1]), int(parts[2])


def size(text: str) -> int:
    """Parse a size, such as 64K; return the number of bytes, at least 1."""
    if text.startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r}: a size must be positive, such as {text.lstrip('-') or '64K'}")
    try:
        nbytes = parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if nbytes < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be at least 1 byte")
    return nbytes


def source(text: str) -> Path:
    """Return the path of a file to read."""
    return Path(text)


def output(text: str) -> Path:
    """Return the path of a file to write, or ``-`` for standard output."""
    return Path(text)


def mail(text: str) -> str:
    """Check the name of a kind of mail, and return the name."""
    try:
        check_mail(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def shape(text: str) -> tuple[int, int]:
    """Parse a grid, written WxH, and return width and height."""
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write WIDTHxHEIGHT, such as 3x2")
    return int(width), int(height)


def seconds(text: str) -> float:
    """Parse a span of wall time, in seconds above 0."""
    try:
        span = float(text)
    except ValueError:
        span = 0.0
    if not 0 < span < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return span


def simulated_time(text: str) -> int:
    """Parse a simulated time above 0, such as 30us, and return the time in ps."""
    try:
        time_ps = parse_time_ps(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not time_ps:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time above 0, such as 30us")
    return time_ps


class HeartbeatTimeout:
    """Flag type: a span of wall time in seconds, at least two heartbeat periods of ``period_s`` seconds."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s

    def __call__(self, text: str) -> float:
        span = seconds(text)
        if span < 2 * self._period_s:
            reason = f"is too short: heartbeats are sent every {self._period_s:g} s, and one may be late"
            raise argparse.ArgumentTypeError(f"{text!r} {reason}; give at least {2 * self._period_s:g} s")
        return span


def hosts(text: str) -> Hosts:
    """Parse ``a:2,b:2``, ``a,b``, or ``@FILE`` with one host per line and comments after ``#``."""
    entries = _entries_of_file(Path(text[1:])) if text.startswith("@") else text.split(",")
    found = tuple(_host(entry.strip()) for entry in entries)
    for name, times in Counter(name for name, _ in found).items():
        if times > 1:
            # A name without a number counts as one SIP, as in MPI host files.
            sips = sum(number or 1 for other, number in found if other == name)
            raise argparse.ArgumentTypeError(
                f"host {name!r} is named {times} times; write {name}:{sips} for {sips} SIPs on it"
            )
    return found


def _entries_of_file(path: Path) -> list[str]:
    try:
        data = read_limited(path, MAX_HOSTS_BYTES)
        text = "" if data is None else data.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise argparse.ArgumentTypeError(f"file {str(path)!r} cannot be read: {reason}") from None
    if data is None:
        raise argparse.ArgumentTypeError(
            f"file {str(path)!r}: larger than {MAX_HOSTS_BYTES} bytes; name a list of hosts"
        )
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    entries = [line for line in lines if line]
    if not entries:
        raise argparse.ArgumentTypeError(f"file {str(path)!r} names no host; write one HOST or HOST:SIPS per line")
    return entries


def _host(entry: str) -> tuple[str, int | None]:
    # An IPv6 address contains colons and therefore needs brackets.
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::(.*))?", entry, re.ASCII)
    name = found[1] if found else ""
    if _is_address(entry) and ":" in entry:
        raise argparse.ArgumentTypeError(f"{entry!r} is not a host; write an IPv6 address as [{entry}]:2")
    if found is None or not (_HOST.fullmatch(name) or (name.startswith("[") and _is_address(name[1:-1]))):
        raise argparse.ArgumentTypeError(f"{entry!r} is not a host; write HOST or HOST:SIPS, such as a:2,b:2, or @FILE")
    if found[2] is None:
        return name.strip("[]"), None
    if not re.fullmatch("[0-9]{1,9}", found[2], re.ASCII) or not 1 <= int(found[2]) <= MOST_SLOTS:
        allowed = f"a whole number of SIPs from 1 to {MOST_SLOTS}"
        raise argparse.ArgumentTypeError(f"{entry!r}: {found[2]!r} must be {allowed}, such as {name}:2")
    return name.strip("[]"), int(found[2])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def bind(text: str) -> str:
    """Parse a numeric IP address of one machine, and return the address as text."""
    allowed = "IP address of this machine, such as 10.0.0.1"
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be an {allowed}") from None
    if address.is_unspecified or address.is_multicast:
        raise argparse.ArgumentTypeError(f"{text!r} is not one address; give one {allowed}")
    return str(address)


def ranks(text: str) -> tuple[int, ...] | None:
    """Parse ``all`` (returned as None), ``none`` (no rank), or ranks that are separated by commas."""
    if text in ("all", "none"):
        return None if text == "all" else ()
    if not re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} must be all, none or ranks, such as 0,1")
    return tuple(sorted({int(rank) for rank in text.split(",")}))
