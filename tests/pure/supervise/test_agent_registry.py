"""The registry of agents: which are admitted, which are lost and why. And their messages."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from broker.mail.base import SILENCE_S
from launcher.hosts.agent import _Agent
from launcher.hosts.agent_registry import FRESH, HEARTBEAT_S, LATER_S, STARTER_OUTPUT_S, AgentRegistry, RejectedAgent
from launcher.hosts.wire import (
    BadMessage,
    File,
    Finish,
    Heartbeat,
    Hello,
    KillSelf,
    Leaving,
    Log,
    ProcessStates,
    decode_from_agent,
    decode_to_agent,
    encode,
)
from launcher.processes.fork_server import (
    KillAll,
    Leave,
    NotStarted,
    ProcessesLeft,
    ProcessExited,
    ProcessMessage,
    ProcessStarted,
    Ready,
    SetUp,
    SetupFailed,
    SignalProcess,
    StartProcess,
)
from launcher.supervise.facts import HostGone, HostSpec
from sipsim import VERSION

SPECS = [HostSpec("a"), HostSpec("b")]


def hello(node_rank: int, name: str = "x", version: str = VERSION) -> Hello:
    return Hello(node_rank, name, 7, version, "10.0.0.1", "/tmp/ahbm-agent-x")


def with_both(**settings: Any) -> AgentRegistry:
    """A registry with both agents, at time 0."""
    registry = AgentRegistry(SPECS, **{"silence_s": SILENCE_S, **settings})
    for host in range(2):
        assert registry.admit(b"id-%d" % host, str(host), hello(host), 0.0) == host
    registry.overdue(0.0, True)
    return registry


def gone(
    registry: AgentRegistry, until_s: float, can_revive: bool = True, alive: tuple[int, ...] = ()
) -> list[HostGone]:
    """The facts up to then, checked as often as by the loop; ``alive``: hosts whose agents send heartbeats."""
    found, now_s = [], registry._checked_s or 0.0
    while now_s < until_s - 1e-9:
        now_s = min(now_s + HEARTBEAT_S, until_s)
        for host in alive:
            registry.slots[host].last_seen_s = now_s
        found += registry.overdue(now_s, can_revive)
    return found


# --- admission ------------------------------------------------------------------------------------------------


def test_an_agent_serves_the_host_of_its_node_rank():
    registry = with_both()
    assert (registry.host_of(b"id-1"), registry.host_of(b"id-9")) == (1, None)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("member", "message", "host", "why"),
    [
        ("1", hello(0), None, "a: an agent with the key of node rank 1 reports node rank 0"),
        (
            "0",
            hello(0, version="0.0"),
            0,
            f"a: the agent has version 0.0, the launcher {VERSION}; install one version",
        ),
        ("2", hello(2), None, "an agent on x has node rank 2, not below 2"),
    ],
)
def test_rejected_agents(member: str, message: Hello, host: int | None, why: str):
    assert AgentRegistry(SPECS, silence_s=SILENCE_S).admit(b"id", member, message, 0.0) == RejectedAgent(host, why)


def test_a_second_agent_of_a_host_is_rejected_and_the_first_stays():
    registry = with_both()
    why = "a: a second agent reports node rank 0 (pid 7 on x)"
    assert registry.admit(b"other", "0", hello(0), 1.0) == RejectedAgent(None, why)
    assert registry.host_of(b"id-0") == 0


def test_by_name_the_host_name_decides():
    registry = AgentRegistry([HostSpec("b.site"), HostSpec("a")], silence_s=SILENCE_S, by_name=True)
    assert registry.admit(b"id", "0", hello(0, "a"), 0.0) == 1
    assert registry.admit(b"id2", "1", hello(1, "b"), 0.0) == 0


def test_a_host_without_a_name_gets_that_of_its_agent():
    registry = AgentRegistry([HostSpec("node 0", is_named=False)], silence_s=SILENCE_S)
    registry.admit(b"id", "0", hello(0, "n17"), 0.0)
    assert registry.slots[0].name == "n17"


# --- loss -----------------------------------------------------------------------------------------------------


def test_silence_is_the_loss_of_the_host():
    registry = with_both()
    assert gone(registry, SILENCE_S + LATER_S - 0.01, alive=(0,)) == []
    (fact,) = gone(registry, SILENCE_S + LATER_S + HEARTBEAT_S, alive=(0,))
    assert (fact.host, fact.kind, fact.can_return) == (1, "host_lost", False)
    assert fact.why.startswith("host b is lost: the agent (pid 7) has been silent for 2.")
    assert gone(registry, 20.0, alive=(0,)) == []


@pytest.mark.parametrize("silence_s", [SILENCE_S, 60.0, None])
def test_a_host_is_silent_before_it_is_lost(silence_s: float | None):
    registry = with_both(silence_s=silence_s)
    registry.slots[0].last_seen_s = 1.0
    assert registry.silent(FRESH * SILENCE_S) == {}
    assert registry.silent(1.5) == {"b": 1.5}
    registry.slots[1].leave("")
    assert registry.silent(1.5) == {}


def test_the_allowed_silence_is_a_setting():
    registry = with_both(silence_s=5.0)
    assert gone(registry, 5.0 + LATER_S - 0.01, alive=(0,)) == []
    assert [fact.kind for fact in gone(registry, 5.0 + LATER_S + HEARTBEAT_S, alive=(0,))] == ["host_lost"]


def test_longer_silence_is_allowed_at_the_end():
    registry = with_both()
    registry.extend_silence(5.0)
    assert gone(registry, 5.0, alive=(0,)) == []
    assert [fact.kind for fact in gone(registry, 5.0 + LATER_S + HEARTBEAT_S, alive=(0,))] == ["host_lost"]


def test_a_starter_that_was_killed_without_output_can_be_retried():
    registry = AgentRegistry(SPECS, silence_s=SILENCE_S)
    registry.starter_ended(0, "ssh: connect to host a port 22: Connection refused", 0.1)
    registry.starter_ended(1, "the process that starts the agent was killed by SIGKILL", 0.1, silent=True)
    facts = registry.overdue(0.1, can_revive=True)
    assert [fact.can_return for fact in facts] == [False, True]


def test_a_lost_host_is_reported_within_2500_ms():
    assert SILENCE_S + LATER_S + HEARTBEAT_S <= 2.5


def test_without_deadlines_silence_is_no_loss():
    assert gone(with_both(silence_s=None), 60.0) == []


def test_after_a_suspension_of_the_launcher_no_agent_is_lost():
    registry = with_both()
    assert registry.overdue(3600.0, True) == []
    assert registry.overdue(3600.2, True) == []


def test_a_connection_that_ends_soon_after_a_sign_of_life_is_a_failed_agent():
    registry = with_both()
    registry.slots[1].connection_closed(0.1)
    assert gone(registry, 0.1 + STARTER_OUTPUT_S - 0.05, alive=(0,)) == []
    (fact,) = gone(registry, 0.8, alive=(0,))
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has ended", True)


def test_the_output_of_the_starter_is_the_reason():
    registry = with_both()
    registry.slots[1].connection_closed(0.1)
    registry.starter_ended(1, "Killed", 0.2)
    (fact,) = registry.overdue(0.2, False)
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has ended: Killed", False)


def test_a_connection_that_ends_after_silence_is_a_lost_host():
    registry = with_both()
    registry.slots[1].connection_closed(FRESH * SILENCE_S + 0.1)
    (fact,) = gone(registry, FRESH * SILENCE_S + 0.1, alive=(0,))
    assert fact == HostGone(1, "host_lost", "host b is lost: the connection to its agent (pid 7) has ended")


def test_an_agent_that_leaves_gives_the_reason():
    registry = with_both()
    registry.slots[1].leave("its server is gone")
    (fact,) = registry.overdue(0.1, True)
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has left: its server is gone", True)


def test_an_agent_that_never_connected():
    registry = AgentRegistry(SPECS, silence_s=SILENCE_S)
    registry.starter_ended(0, "ssh: connect to host a port 22: Connection refused", 0.1)
    (fact,) = registry.overdue(0.1, True)
    assert fact == HostGone(
        0, "agent_failed", "a: no agent has started: ssh: connect to host a port 22: Connection refused"
    )


def test_the_exit_of_a_common_starter_ends_all_agents():
    registry = with_both()
    registry.starter_ended(None, "", 0.1)
    found = registry.overdue(0.1, False)
    assert [(fact.host, fact.kind) for fact in found] == [(0, "agent_failed"), (1, "agent_failed")]


def test_an_agent_that_was_given_up_is_rejected_but_its_successor_is_not():
    registry = with_both()
    gone(registry, 3.0, alive=(0,))
    assert registry.host_of(b"id-1") is None
    assert isinstance(registry.admit(b"id-1", "1", hello(1), 3.0), RejectedAgent)
    registry.await_restart(1)
    assert registry.admit(b"new", "1", hello(1), 4.0) == 1


# --- messages -------------------------------------------------------------------------------------------------

FROM_AGENT = [
    hello(1),
    ProcessStarted(1, 0, 17),
    NotStarted(1, 0, "why"),
    ProcessMessage(1, 0, "words"),
    ProcessesLeft(1, 17, [18, 19]),
    ProcessesLeft(None, 0, [18]),
    ProcessExited(1, 0, 17, -9),
    Ready(),
    SetupFailed("why"),
    Log(1, b"words\n"),
    File("rank-1/recorded_io/0-1-in.npy", b"\0"),
    ProcessStates({1: ("sleeping", 1.2, 0.1, 3.5)}),
    Heartbeat(),
    Leaving("because"),
]
TO_AGENT = [
    SetUp("ticket"),
    StartProcess(1, 0, {"spec": {}}),
    SignalProcess(1, 12),
    KillAll(),
    Leave(),
    Finish(1.0),
    KillSelf(),
    Heartbeat(),
]


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: type(message).__name__)
def test_messages_from_agents_round_trip(message: object):
    assert decode_from_agent(encode(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize("message", TO_AGENT, ids=lambda message: type(message).__name__)
def test_messages_to_agents_round_trip(message: object):
    assert decode_to_agent(encode(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "", ".hidden", "x\n", "x" * 200])
def test_a_name_is_never_a_path(name: str):
    with pytest.raises(BadMessage):
        decode_from_agent(encode(replace(hello(1), name=name)))


@pytest.mark.parametrize("frame", [b"", b"\x90", b"\xc1", b"\x91\xa5hello", encode(Finish(1.0)), b"\xdd" + b"\xff" * 4])
def test_other_bytes_are_refused(frame: bytes):
    with pytest.raises(BadMessage):
        decode_from_agent(frame)


def test_an_agent_has_news_of_no_process_but_its_sips():
    for news in (
        ProcessStarted(None, 0, 1),
        ProcessExited(None, 0, 1, -9),
        NotStarted(None, 0, ""),
        ProcessMessage(None, 0, ""),
    ):
        with pytest.raises(BadMessage):
            decode_from_agent(encode(news))


BAD_FIELDS = [
    ["started", "sip-1", 0, 1], ["started", -1, 0, 1], ["started", 4096, 0, 1], ["started"], ["ended", 0, 1, 1, "x"],
    ["ended", 0, 1, 1, 0, 0], ["log", -1, b""], ["log", None, b""],
    ["process_states", {"sip-1": ["sleeping", 0, 0, 0]}], ["nothing"], [], [5], 5, "", {},
]  # fmt: skip


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=str)
def test_fields_are_checked_too(fields: object):
    with pytest.raises(BadMessage):
        decode_from_agent(msgspec.msgpack.encode(fields))


BAD_COMMANDS = [
    "", 5, [], [5], {}, ["order", "x"], ["start", "sip-1", 0, {}], ["signal", 1, 9, 9], ["signal", 1, -9], ["set_up"],
]  # fmt: skip
DEEP = b"\x94\xa5start\x01\x00" + b"\x91" * 100_000


@pytest.mark.parametrize("frame", [*map(msgspec.msgpack.encode, BAD_COMMANDS), DEEP], ids=lambda frame: repr(frame[:9]))
def test_an_agent_exits_with_a_reason_on_an_invalid_command(frame: bytes):
    frames = iter([frame, None])
    connection = SimpleNamespace(poll_events=lambda: None)
    agent: Any = SimpleNamespace(_socket=connection, _receive=lambda: next(frames), _server=SimpleNamespace(order=None))
    agent._handle = lambda frame: _Agent._handle(agent, frame)
    assert _Agent._turn(agent, stdin_is_ready=False).startswith("the launcher sent an invalid command: ")
