"""Tickets: everything that a process elsewhere needs, as text; and files that only their owner can read."""

import os
import stat
from pathlib import Path

import pytest

from broker.security import JobKeys
from launcher.processes.ticket import Ticket, read_private, write_private
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.errors import ConfigError
from sipsim.node.sip_node import SipProcessSpec
from sipsim.records.job import Job


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(load(None, None, []))


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Preparing a ticket changes the folder and the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_ticket_makes_the_same_plan(plan: Plan, in_folder: Path):
    job = Job(n_elems=(8,), seed=3)
    ticket = Ticket.of(plan, job)
    (in_folder / "elsewhere").mkdir()
    os.chdir(in_folder / "elsewhere")
    prepared, told = Ticket.from_text(ticket.text()).prepare()
    assert (prepared.digest, told) == (plan.digest, job)
    assert Path.cwd() == in_folder


def test_a_ticket_knows_what_the_user_has_changed(in_folder: Path):
    plan = Plan(load(None, None, [Override("pe_gemm.rows", 64, "--set"), Override("router.overhead_ns", 2, "--set")]))
    prepared, _ = Ticket.from_text(Ticket.of(plan, Job(n_elems=(8,))).text()).prepare()
    reads = prepared.resolved.reads
    assert reads.paths == plan.resolved.reads.paths == (("router", "overhead_ns"), ("pe_gemm", "rows"))
    assert reads.seen == {("router", "overhead_ns")}


def test_launch_parameters_and_keys_are_included(plan: Plan):
    keys = JobKeys.fresh(4)
    spec = SipProcessSpec(rank=2, broker="tcp://10.0.0.1:5", endpoint="tcp://10.0.0.2:*", keys=keys.for_sip(2))
    ticket = Ticket.of(plan, Job(), spec)
    assert Ticket.from_text(ticket.text()).spec == spec
    assert keys.sips[2].secret in ticket.text()
    assert keys.sips[2].secret not in repr(ticket)
    assert keys.sips[1].secret not in ticket.text()


def test_a_missing_script_is_refused(plan: Plan, in_folder: Path):
    with pytest.raises(ConfigError, match=r"^mine\.py: no such file"):
        Ticket.of(plan, Job(script="mine.py")).prepare()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1}', "{" * 100_000, "\ud800"])
def test_an_invalid_ticket_is_one_line(text: str):
    with pytest.raises(ConfigError) as error:
        Ticket.from_text(text, "x.ticket")
    assert str(error.value).startswith("x.ticket is no ticket of ahbm-launch: ")
    assert "\n" not in str(error.value)


@pytest.mark.fault
def test_another_version_is_refused():
    with pytest.raises(ConfigError, match=r"^x is of version 0\.0, this host has .*; install one version$"):
        Ticket.from_text('{"version": "0.0", "new": 1}', "x")


def test_a_private_file_is_never_anybody_elses(tmp_path: Path):
    path = tmp_path / "t"
    old = os.umask(0)
    try:
        write_private(path, "secret")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (read_private(path), os.listdir(tmp_path)) == ("secret", ["t"])
    write_private(path, "other")
    assert read_private(path) == "other"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "t"
    path.write_text("secret")
    path.chmod(mode)
    with pytest.raises(ConfigError) as error:
        read_private(path)
    assert str(error.value) == f"{path} has mode {mode:04o} and can be read by others; run: chmod 600 {path}"


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read: "):
        read_private(tmp_path / "none")
