"""Faults that the launcher makes: when they are due, and what is done about a host."""

import os
from pathlib import Path

import pytest

from launcher.supervise.fault_injector import CUT_PROGRAM, FaultInjector

US = 10**6


def timetable(*specs: str) -> FaultInjector:
    return FaultInjector(specs, lambda _kind, _host: False, 100.0)


class TestTimetable:
    def test_each_once_and_in_order(self) -> None:
        seen = timetable("cut:b@2s", "agent:a@500ms", "launcher@2s", "kill:1@1us")
        assert seen.due(100.4) == []
        assert list(map(str, seen.due(100.5))) == ["agent:a@500ms"]
        assert seen.due(101.9) == []
        assert list(map(str, seen.due(103.0))) == ["cut:b@2s", "launcher@2s"]
        assert seen.due(200.0) == []

    def test_until_when_nobody_need_look(self) -> None:
        seen = timetable("cut:b@2s")
        assert seen.seconds_left(100.5, 9.0) == pytest.approx(1.5)
        assert seen.seconds_left(100.5, 0.2) == 0.2
        assert seen.seconds_left(105.0, 9.0) == 0.0
        seen.due(105.0)
        assert seen.seconds_left(105.0, 9.0) == 9.0

    def test_the_broker_by_simulated_time(self) -> None:
        seen = timetable("broker@30us")
        assert (seen.needs_status, seen.due(200.0), seen.seconds_left(100.0, 9.0)) == (True, [], 9.0)
        assert not seen.broker_dies(30 * US - 1)
        assert seen.broker_dies(30 * US)
        assert not seen.broker_dies(31 * US)
        assert not seen.needs_status

    def test_nothing_is_asked_for(self) -> None:
        seen = timetable("kill:1@1us")
        assert (seen.needs_status, seen.due(200.0), seen.broker_dies(99 * US)) == (False, [], False)

    @pytest.mark.parametrize(
        ("specs", "end_ps", "lines"),
        [
            (["kill:1@9s"], 0, []),
            (["launcher@9s"], 0, ["launcher@9s was not injected: the run ended after 5.0 s"]),
            (["agent:a@1s", "cut:b@6s"], 0, ["cut:b@6s was not injected: the run ended after 5.0 s"]),
            (["broker@30us"], 3 * US, ["broker@30us was not injected: the run ended at 3.000 us"]),
            (
                ["broker@3us"],
                4 * US,
                [
                    "broker@3us was not injected: the run ended at 4.000 us, "
                    "before every SIP had reported the time of the fault",
                ],
            ),
        ],
    )
    def test_what_came_too_late(self, specs: list[str], end_ps: int, lines: list[str]) -> None:
        """In a run of 5 s."""
        seen = timetable(*specs)
        seen.due(105.0)
        assert seen.unfired(105.0, end_ps) == [f"fault {line}" for line in lines]

    def test_a_broker_that_was_killed_was_not_late(self) -> None:
        seen = timetable("broker@30us")
        assert seen.broker_dies(30 * US)
        assert seen.unfired(105.0, 30 * US) == []


class TestHosts:
    """What is due at 0 is injected by the first call."""

    def disturbed(self, *specs: str) -> list[tuple[str, str]]:
        asked: list[tuple[str, str]] = []

        def on_host(kind: str, host: str) -> bool:
            asked.append((kind, host))
            return host != "gone"

        made = FaultInjector(specs, on_host, 100.0)
        made.inject_due(100.0)
        made.inject_due(100.1)
        made.close()
        return asked

    def test_by_the_host_pool(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv(CUT_PROGRAM, raising=False)
        assert self.disturbed("cut:a@0", "agent:b@0", "agent:gone@0") == [
            ("cut", "a"),
            ("agent", "b"),
            ("agent", "gone"),
        ]
        assert capfd.readouterr().err.splitlines() == [
            "ahbm-launch: fault cut:a@0 is injected",
            "ahbm-launch: fault agent:b@0 is injected",
            "ahbm-launch: fault agent:gone@0 is injected",
            "ahbm-launch: fault agent:gone@0: the agent of gone cannot be reached",
        ]

    def test_by_the_users_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        program = tmp_path / "cut"
        program.write_text('#!/bin/sh\necho "cuts $*"\n')
        program.chmod(0o755)
        monkeypatch.setenv(CUT_PROGRAM, str(program))
        assert self.disturbed("cut:a@0", "agent:b@0") == [("agent", "b")]
        assert "cuts a" in capfd.readouterr().err.splitlines()

    def test_a_program_that_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(CUT_PROGRAM, os.devnull)
        assert self.disturbed("cut:a@0") == [("cut", "a")]
        assert f"{CUT_PROGRAM}={os.devnull}: the program cannot be started: Permission denied" in capfd.readouterr().err
