"""Where user code is, from frames; dumps as text; and how places are shown."""

import contextlib
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import sipsim.records.code_place
from broker.wire import BadFrame
from sipsim.chips.ahbm.collectives.algorithms import intercube_allreduce
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.tl import language
from sipsim.core import task
from sipsim.node import sip_node
from sipsim.records.code_place import INSTALLED, CodePlace, code_place, raised_at, shown
from sipsim.records.dump import SipDump, TaskState, dump_as_text, dump_from_text

ROOT = Path(sipsim.__file__).parents[1]
KERNEL = TaskState((3, 0, 0), "cube 0, PE 0", "recv W", "recv", ("W",), "/a/\u00e9.py", 7, "recv")
DUMP = SipDump(3, 1500, (), (KERNEL,), {0: 2})


def frame_through(*calls: tuple[str, str]) -> FrameType:
    """The innermost frame of a call from file to file, each (file, function); all are at line 1."""
    found: list[FrameType] = []

    def innermost() -> None:
        found.append(sys._getframe(1))

    call = innermost
    for file, name in reversed(calls):
        scope: dict[str, object] = {"call": call}
        exec(compile(f"def {name}(): call()", file, "exec"), scope)
        call = scope[name]  # type: ignore[assignment]
    call()
    return found[0]


MINE, HELPER, LIBRARY = "/home/a/mine.py", "/home/a/helper.py", f"{INSTALLED[0]}/contextlib.py"
TL, TASK, NODE = language.__file__, task.__file__, sip_node.__file__


@pytest.mark.parametrize(
    ("calls", "place"),
    {
        "a word of tl": ([(NODE, "run"), (MINE, "kernel"), (TL, "load"), (TASK, "wait")], (MINE, 1, "load")),
        "a helper": ([(NODE, "run"), (MINE, "kernel"), (HELPER, "help"), (TL, "recv")], (HELPER, 1, "recv")),
        "private parts of tl": ([(MINE, "kernel"), (TL, "recv"), (TL, "_task")], (MINE, 1, "recv")),
        "a library in between": ([(MINE, "kernel"), (LIBRARY, "enter")], (MINE, 1, "")),
        "no user code": ([(NODE, "run"), (TASK, "wait")], ("", 0, "")),
        "a built-in algorithm": (
            [(NODE, "run"), (intercube_allreduce.__file__, "kernel"), (TL, "send")],
            (intercube_allreduce.__file__, 1, "send"),
        ),
        "text": ([("<string>", "kernel"), (TL, "send")], ("<string>", 1, "send")),
    }.values(),
)  # fmt: skip
def test_the_innermost_user_code(calls: list[tuple[str, str]], place: tuple[str, int, str]) -> None:
    frame = frame_through((TASK, "_run"), *calls)
    # What called this test is user code too, and is further out.
    if place[0]:
        assert tuple(code_place(frame)) == place
    else:
        assert code_place(frame).file == __file__


def test_generated_code_belongs_to_the_module_that_asked_for_it() -> None:
    """The ``__init__`` of a dataclass and the ``__new__`` of a named tuple; both call their file ``<string>``."""
    found: list[FrameType] = []
    sys.setprofile(lambda frame, event, _: found.append(frame) if event == "call" else None)
    with contextlib.suppress(ValueError):
        CodePlace()
        DPPolicy("nowhere")
    sys.setprofile(None)
    generated = [frame for frame in found if frame.f_code.co_filename == "<string>"]
    assert [frame.f_code.co_name for frame in generated] == ["<lambda>", "__init__"]
    assert [code_place(frame).file for frame in generated] == [__file__, __file__]


def test_an_error_in_generated_code_is_raised_at_its_call() -> None:
    with pytest.raises(ValueError, match="nowhere") as caught:
        DPPolicy("nowhere")
    assert raised_at(caught.value).partition(":")[0].endswith(Path(__file__).name)


def test_an_installed_package_is_named_where_there_is_no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread, where nothing but the interpreter is further out, and with this file as machinery."""
    found: list[FrameType] = []
    thread = threading.Thread(target=lambda: found.append(frame_through((NODE, "run"), (LIBRARY, "enter"))))
    thread.start()
    thread.join()
    monkeypatch.setattr(sipsim.records.code_place, "_MACHINERY", (__file__, str(ROOT)))
    assert code_place(found[0])[:2] == (LIBRARY, 1)


def test_the_file_of_a_chip_is_machinery_unless_there_is_nothing_else() -> None:
    frame = frame_through((MINE, "worker"), (HELPER, "take"))
    assert code_place(frame, HELPER).file == MINE
    assert code_place(frame, "").file == HELPER
    assert code_place(None).file == ""


@pytest.mark.parametrize(
    ("file", "folder", "text"),
    [
        ("/home/a/lab/mine.py", "/home/a", "lab/mine.py:7"),
        ("/home/b/lab/mine.py", "/home/a", "lab/mine.py:7"),
        ("/home/b/lab/mine.py", "", "lab/mine.py:7"),
        ("/mine.py", "/home", "/mine.py:7"),
        ("<string>", "/home", "<string>:7"),
        ("", "/home", ""),
    ],
)
def test_paths_are_short(file: str, folder: str, text: str) -> None:
    assert shown(file, 7, folder) == text


def test_a_dump_as_text() -> None:
    assert dump_from_text(dump_as_text(DUMP)) == DUMP
    many = SipDump(0, 0, (), DUMP.tasks * 2000)
    assert len(dump_as_text(many)) < 16_000, "it fits a datagram"


@pytest.mark.parametrize("text", ["", "A", "!!!", "AAAA", "eJwDAAAAAAE=", "\u00e9"])
def test_text_that_is_no_dump(text: str) -> None:
    with pytest.raises(BadFrame, match=r"^not the dump of a SIP"):
        dump_from_text(text)
    with contextlib.suppress(BadFrame):
        dump_from_text(dump_as_text(DUMP)[:-9])
