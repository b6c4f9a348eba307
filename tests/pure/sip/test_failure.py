"""From an exception in a SIP to the line and the traceback that a user reads."""

from pathlib import Path

import pytest

from broker.mail.streams import LostPacket
from sipsim.ccl.install import pair_rings
from sipsim.errors import ConfigError, IpcqInvalidDirection, MemoryAccessError
from sipsim.node.failure import Failure, describe
from sipsim.task import TaskFailed


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
        assert "install.py" not in found.detail

    def test_frames_of_the_simulator_are_kept_if_there_are_no_others(self) -> None:
        """A bug of the simulator keeps its traceback."""
        try:
            pair_rings(None)  # type: ignore[arg-type]
        except TypeError as error:
            error.__traceback__ = error.__traceback__.tb_next
            found = describe(error, 0, 0)
        assert found.kind == "internal"
        assert "install.py" in found.detail
