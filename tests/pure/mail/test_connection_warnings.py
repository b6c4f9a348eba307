"""Strangers are told to people, a line each; ordinary ends are not, and a crowd is cut short."""

import io

from broker.mail.base import Notice
from broker.mail.connection_warnings import MOST, ConnectionWarnings


def test_who_is_told_of() -> None:
    out = io.StringIO()
    strangers = [Notice("stranger", None, "tcp://a:1", f"somebody {number}") for number in range(2)]
    ConnectionWarnings("broker", out).tell([strangers[0], Notice("lost", 3, "tcp://b:1", "has ended"), strangers[1]])
    assert out.getvalue() == "broker: somebody 0\nbroker: somebody 1\n"


def test_a_crowd_fills_no_disk() -> None:
    """Planted: a line for each of them."""
    out = io.StringIO()
    gazette = ConnectionWarnings("broker", out)
    for _ in range(3 * MOST):
        gazette.tell([Notice("stranger", None, "tcp://a:1", "somebody")])
    lines = out.getvalue().splitlines()
    assert len(lines) == MOST + 1
    assert lines[-1] == f"broker: {MOST} were turned away; no more of them are told"
