"""What the second pass of a SIP has found, as plain data."""

import msgspec


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference that no race explains. ``number``: of the record in its rank's log, from 1; 0 where it is of
    no record. ``record``: its text, shortened. ``time_ps``: its end. ``message``: all of it in one line.
    """

    number: int
    record: str
    cube: int
    pe: int
    time_ps: int
    message: str


class QueueCheck(msgspec.Struct, frozen=True):
    """The messages of a queue pair between SIPs as one end saw them: ``sender`` (SIP, cube, PE) and its ``direction``.

    ``peer``: the PE at the other end, as sip.cube.pe. ``count`` messages; ``checks``: the CRC-32 of all messages so far
    after each ``stride`` of them and after the last, 4 bytes each, little endian. With ``stride`` 0 it is the sum of
    all queue pairs from the sender to one SIP that were made while time ran.
    """

    sender: tuple[int, int, int]
    direction: str
    peer: str
    count: int
    stride: int
    checks: bytes


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``records``: how many were performed again. ``stopped``: why no more were, empty for all.

    ``difference``: the first one, of ``differences`` records. ``races``: reads and writes that met unordered writes, so
    that their values could not be compared; ``first_race``: one of them. ``sent`` and ``arrived``: by queue pair.
    """

    records: int
    stopped: str = ""
    differences: int = 0
    difference: Difference | None = None
    races: int = 0
    first_race: str = ""
    sent: tuple[QueueCheck, ...] = ()
    arrived: tuple[QueueCheck, ...] = ()
