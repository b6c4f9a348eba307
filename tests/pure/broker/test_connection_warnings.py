"""Rejected connections make one line each, up to a limit; connections that end make none."""

import io

from broker.mail.base import Notice
from broker.mail.sockets import MAX_WARNINGS, ConnectionWarnings


def test_only_rejections_are_written() -> None:
    out = io.StringIO()
    rejected = [Notice("rejected", None, "tcp://a:1", f"rejection {number}") for number in range(2)]
    ConnectionWarnings("broker", out).write([rejected[0], Notice("lost", 3, "tcp://b:1", "has ended"), rejected[1]])
    assert out.getvalue() == "broker: rejection 0\nbroker: rejection 1\n"


def test_the_number_of_lines_is_limited() -> None:
    out = io.StringIO()
    warnings = ConnectionWarnings("broker", out)
    for number in range(3 * MAX_WARNINGS):
        warnings.write([Notice("rejected", None, "tcp://a:1", f"rejection {number}")])
    lines = out.getvalue().splitlines()
    assert len(lines) == MAX_WARNINGS + 1
    assert lines[-1] == f"broker: after {MAX_WARNINGS} warnings, further rejections are not reported"


def test_what_comes_again_and_again_is_counted() -> None:
    out = io.StringIO()
    warnings = ConnectionWarnings("broker", out)
    for _ in range(200):
        warnings.write([Notice("rejected", None, "tcp://a:1", "rejection")])
    lines = out.getvalue().splitlines()
    assert lines == ["broker: rejection", "broker: rejection (10 times)", "broker: rejection (100 times)"]
