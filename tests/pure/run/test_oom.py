"""Counts of what the kernel killed for want of memory, wherever they stand."""

from pathlib import Path

import pytest

from launcher.processes.this_host import kills_since, oom_kills


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.fault
def test_the_kernels_own(tmp_path: Path) -> None:
    write(tmp_path, "proc/vmstat", "pgfault 5\noom_kill 3\noom_kill_other 9\n")
    assert oom_kills(tmp_path) == 3


@pytest.mark.fault
@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
        ("4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
        ("4:cpu,memory:/a\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
    ],
)
def test_a_control_groups(tmp_path: Path, cgroup: str, file: str) -> None:
    """In a container the kernel's counter may not be there."""
    write(tmp_path, "proc/self/cgroup", cgroup)
    write(tmp_path, file, "low 0\noom 2\noom_kill 2\n")
    assert oom_kills(tmp_path) == 2


def test_nothing_is_counted(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) is None
    write(tmp_path, "proc/vmstat", "oom_kill lots\n")
    assert oom_kills(tmp_path) is None


def test_in_between() -> None:
    assert (kills_since(2, 5), kills_since(2, 2), kills_since(None, 5), kills_since(2, None)) == (3, 0, 0, 0)


def test_this_machine_has_an_answer_or_none() -> None:
    count = oom_kills()
    assert count is None or count >= 0
