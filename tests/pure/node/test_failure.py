"""From an exception in a SIP to the line and the traceback that a user reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from sipsim.chips.ahbm.collectives.queue_pairs import pair_rings
from sipsim.core.errors import ERROR_KINDS, ConfigError, IpcqInvalidDirection, MemoryAccessError
from sipsim.core.streams import LostPacket
from sipsim.core.task import TaskFailed
from sipsim.node.failure import Failure, describe


def in_task(error: BaseException, place: str = "cube 3, PE 0") -> TaskFailed:
    """As a task raises it."""
    try:
        try:
            raise error
        except BaseException as cause:
            raise TaskFailed(place) from cause
    except TaskFailed as failed:
        return failed


class TestNamedErrors:
    @pytest.mark.parametrize("cls", [IpcqInvalidDirection, MemoryAccessError, ConfigError])
    def test_one_line_with_the_place(self, cls: type[Exception]) -> None:
        """And the line of the user's code: here the test's."""
        found = describe(in_task(cls("it cannot be")), 2, 1_234_000)
        assert found[:2] == (cls.kind, "it cannot be (rank 2, cube 3, PE 0, at 1.234 us)")
        assert "test_failure.py:" in found.detail
        assert found.detail.endswith(": raise error")

    def test_outside_of_a_task(self) -> None:
        found = describe(MemoryAccessError("nothing there"), 0, 0)
        assert found == Failure("MemoryAccessError", "nothing there (rank 0, at 0 ps)", "")

    def test_a_lost_packet(self) -> None:
        found = describe(LostPacket("packet 3 came, 2 was next"), 1, 999)
        assert found == Failure("lost_packet", "packet 3 came, 2 was next (rank 1, at 999 ps)", "")


def refuses(*_: object) -> Any:
    raise SystemExit("nothing is told")


HOSTILE: dict[str, dict[str, Any]] = {
    "its text": {"__str__": refuses, "__repr__": refuses},
    "its text is none": {"__str__": lambda _: 3},
    "its text is of a class of its own": {"__str__": lambda _: Text("told")},
    "its class": {"__class__": property(refuses)},
    "its traceback": {
        "__traceback__": property(refuses),
        "__cause__": property(refuses),
        "__notes__": property(refuses),
    },
    "all": dict.fromkeys(("__str__", "__repr__", "__format__", "__eq__", "__hash__", "__getattribute__"), refuses),
}
"""Methods and attributes of an exception that fail."""


class Text(str):
    __str__ = __repr__ = __format__ = encode = __len__ = refuses
    __slots__ = ()


class Nameless(type):
    """The classes that it makes have no name."""

    __name__ = __module__ = property(refuses)  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [type, Nameless])
@pytest.mark.parametrize("base", [Exception, BaseException, ConfigError, SystemExit, MemoryError])
@pytest.mark.parametrize("attributes", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_exception_that_cannot_be_told_is_still_a_failure_with_its_place(
    kind: type, base: type[BaseException], attributes: dict[str, Any]
) -> None:
    hostile = kind("Hostile", (base,), attributes)
    found = describe(in_task(hostile("told")), 2, 1_234_000)
    assert found.kind in {getattr(base, "kind", "exception"), "host_memory" if base is MemoryError else "exception"}
    assert found.message.endswith("(rank 2, cube 3, PE 0, at 1.234 us)")
    assert re.match(r"Hostile|told|sys\.exit", found.message)


class TestTracebacks:
    def test_an_exception_in_a_task(self) -> None:
        found = describe(in_task(ValueError("no")), 1, 5000)
        assert (found.kind, found.message) == ("exception", "ValueError: no (rank 1, cube 3, PE 0, at 5.000 ns)")
        lines = found.detail.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1] == "ValueError: no"
        assert f'File "{__file__}"' in lines[1]

    def test_an_exception_without_a_message(self) -> None:
        assert describe(in_task(KeyboardInterrupt()), 1, 0).message.startswith("KeyboardInterrupt (rank 1, ")

    @pytest.mark.parametrize("code", [3, "no licence", None])
    def test_an_exit_says_its_code_and_place(self, code: object) -> None:
        found = describe(in_task(SystemExit(code)), 0, 0)
        assert found.kind == "exception"
        assert f"sys.exit({code!r})" in found.message
        assert re.search(r"test_failure\.py:[0-9]+ ", found.message)

    def test_a_host_without_memory_is_no_error_of_the_code(self) -> None:
        found = describe(in_task(MemoryError("64 GiB")), 0, 0)
        assert (found.kind, ERROR_KINDS[found.kind]) == ("host_memory", 4)
        assert "64 GiB" in found.message
        assert "test_failure.py" in found.detail

    def test_frames_of_the_simulator_are_left_out(self) -> None:
        """The user's code calls the simulator, which calls the user's, where it fails."""

        def broken_hash() -> int:
            return [][1]

        class Table(dict):
            def __iter__(self):
                broken_hash()

        try:
            pair_rings(Table())
        except IndexError as error:
            found = describe(in_task(error), 0, 0)
        frames = [line for line in found.detail.splitlines() if line.startswith("  File")]
        assert all(Path(frame.split('"')[1]) == Path(__file__) for frame in frames)
        assert [frame.rpartition(" in ")[2] for frame in frames][-2:] == ["__iter__", "broken_hash"]
        assert "queue_pairs.py" not in found.detail

    def test_frames_of_the_simulator_are_kept_if_there_are_no_others(self) -> None:
        """A bug of the simulator keeps its traceback."""
        try:
            pair_rings(None)  # type: ignore[arg-type]
        except TypeError as error:
            error.__traceback__ = error.__traceback__.tb_next
            found = describe(error, 0, 0)
        assert found.kind == "internal"
        assert "queue_pairs.py" in found.detail
