"""Which agents are there: who may take a post, who has left it, and as what that is told. And what they may say.

Seen to fail with these bugs planted: a key that may speak for any host, an agent of a host that was given up let back
in, silence of an agent while nobody listened, a fresh connection's end taken for a lost host, a dead agent's starter
asked twice, a file's name with a folder in it.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.mail.base import SILENCE_S
from launcher.hosts.agent import _Agent
from launcher.hosts.agent_registry import FRESH, HEARTBEAT_S, LATER_S, WORDS_S, AgentRegistry, RejectedAgent
from launcher.hosts.wire import (
    BadMessage,
    File,
    Finish,
    Heartbeat,
    Hello,
    Leaving,
    Log,
    Order,
    ProcessStates,
    ServerNews,
    decode_from_agent,
    decode_to_agent,
    encode,
)
from launcher.processes.fork_server import Ended, ProcessStarted
from launcher.supervise.facts import HostGone, HostSpec
from sipsim import VERSION

SPECS = [HostSpec("a"), HostSpec("b")]


def hello(node_rank: int, name: str = "x", version: str = VERSION) -> Hello:
    return Hello(node_rank, name, 7, version, "10.0.0.1", "/tmp/ahbm-agent-x")


def mustered(**settings: bool) -> AgentRegistry:
    """Both agents are there, at time 0."""
    registry = AgentRegistry(SPECS, **{"silence_s": SILENCE_S, **settings})
    for host in range(2):
        assert registry.seat(b"id-%d" % host, str(host), hello(host), 0.0) == host
    registry.overdue(0.0, True)
    return registry


def gone(
    registry: AgentRegistry, until_s: float, can_revive: bool = True, alive: tuple[int, ...] = ()
) -> list[HostGone]:
    """What is told up to then, by looks as often as the loop's; ``alive``: who goes on to beat."""
    found, now_s = [], registry._looked_s or 0.0
    while now_s < until_s - 1e-9:
        now_s = min(now_s + HEARTBEAT_S, until_s)
        for host in alive:
            registry.agent_slots[host].heard_s = now_s
        found += registry.overdue(now_s, can_revive)
    return found


# --- taking posts ---------------------------------------------------------------------------------------------


def test_who_says_hello_has_the_post_of_its_node_rank():
    registry = mustered()
    assert (registry.host_of(b"id-1"), registry.host_of(b"id-9")) == (1, None)


@pytest.mark.parametrize(
    ("member", "said", "host", "why"),
    [
        ("1", hello(0), None, "a: an agent with the key of node 1 says that it is node 0"),
        ("0", hello(0, version="0.0"), 0, f"a: its agent is of version 0.0, this is {VERSION}; install one version"),
        ("2", hello(2), None, "an agent on x says that it is node 2 of 2"),
    ],
)
def test_who_may_not(member: str, said: Hello, host: int | None, why: str):
    assert AgentRegistry(SPECS, silence_s=SILENCE_S).seat(b"id", member, said, 0.0) == RejectedAgent(host, why)


def test_a_post_is_taken_once():
    """Planted: the host of the first counted as gone, so that one key could end another's host."""
    registry = mustered()
    why = "a: a second agent says that it is node 0 (pid 7 on x)"
    assert registry.seat(b"other", "0", hello(0), 1.0) == RejectedAgent(None, why)
    assert registry.host_of(b"id-0") == 0


def test_where_others_number_the_hosts_names_decide():
    registry = AgentRegistry([HostSpec("b.site"), HostSpec("a")], silence_s=SILENCE_S, by_name=True)
    assert registry.seat(b"id", "0", hello(0, "a"), 0.0) == 1
    assert registry.seat(b"id2", "1", hello(1, "b"), 0.0) == 0


def test_a_host_without_a_name_gets_that_of_its_agent():
    registry = AgentRegistry([HostSpec("node 0", is_named=False)], silence_s=SILENCE_S)
    registry.seat(b"id", "0", hello(0, "n17"), 0.0)
    assert registry.agent_slots[0].name == "n17"


# --- leaving them ---------------------------------------------------------------------------------------------


def test_silence_is_the_loss_of_the_host():
    registry = mustered()
    assert gone(registry, SILENCE_S + LATER_S - 0.01, alive=(0,)) == []
    (fact,) = gone(registry, SILENCE_S + LATER_S + HEARTBEAT_S, alive=(0,))
    assert (fact.host, fact.kind, fact.can_return) == (1, "host_lost", False)
    assert fact.why.startswith("host b is lost: its agent (pid 7) has been silent for 2.")
    assert gone(registry, 20.0, alive=(0,)) == []


def test_how_much_silence_is_the_users_choice():
    registry = mustered(silence_s=5.0)
    assert gone(registry, 5.0 + LATER_S - 0.01, alive=(0,)) == []
    assert [fact.kind for fact in gone(registry, 5.0 + LATER_S + HEARTBEAT_S, alive=(0,))] == ["host_lost"]


def test_at_the_end_there_is_more_patience():
    registry = mustered()
    registry.be_patient(5.0)
    assert gone(registry, 5.0, alive=(0,)) == []
    assert [fact.kind for fact in gone(registry, 5.0 + LATER_S + HEARTBEAT_S, alive=(0,))] == ["host_lost"]


def test_whoever_was_killed_before_it_could_start_an_agent_may_be_started_again():
    registry = AgentRegistry(SPECS, silence_s=SILENCE_S)
    registry.starter_ended(0, "ssh: connect to host a port 22: Connection refused", 0.1)
    registry.starter_ended(1, "what started it was killed by SIGKILL", 0.1, speechless=True)
    facts = registry.overdue(0.1, can_revive=True)
    assert [fact.can_return for fact in facts] == [False, True]


def test_it_is_told_soon_enough():
    assert SILENCE_S + LATER_S + HEARTBEAT_S <= 2.5


def test_without_deadlines_silence_is_nothing():
    assert gone(mustered(silence_s=None), 60.0) == []


def test_who_was_suspended_himself_has_heard_nobody():
    registry = mustered()
    assert registry.overdue(3600.0, True) == []
    assert registry.overdue(3600.2, True) == []


def test_a_connection_that_ends_while_signs_of_life_are_fresh_is_the_agents_end():
    registry = mustered()
    registry.agent_slots[1].cut_off(0.1)
    assert gone(registry, 0.1 + WORDS_S - 0.05, alive=(0,)) == []
    (fact,) = gone(registry, 0.8, alive=(0,))
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has ended", True)


def test_its_starter_may_say_how():
    registry = mustered()
    registry.agent_slots[1].cut_off(0.1)
    registry.starter_ended(1, "Killed", 0.2)
    (fact,) = registry.overdue(0.2, False)
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has ended: Killed", False)


def test_a_connection_that_ends_for_silence_is_the_hosts():
    registry = mustered()
    registry.agent_slots[1].cut_off(FRESH * SILENCE_S + 0.1)
    (fact,) = gone(registry, FRESH * SILENCE_S + 0.1, alive=(0,))
    assert fact == HostGone(1, "host_lost", "host b is lost: the connection to its agent (pid 7) has ended")


def test_who_says_goodbye_says_why():
    registry = mustered()
    registry.agent_slots[1].leave("its server is gone")
    (fact,) = registry.overdue(0.1, True)
    assert fact == HostGone(1, "agent_failed", "the agent on b (pid 7) has left: its server is gone", True)


def test_an_agent_that_never_came():
    registry = AgentRegistry(SPECS, silence_s=SILENCE_S)
    registry.starter_ended(0, "ssh: connect to host a port 22: Connection refused", 0.1)
    (fact,) = registry.overdue(0.1, True)
    assert fact == HostGone(0, "agent_failed", "a: no agent: ssh: connect to host a port 22: Connection refused")


def test_one_starter_for_all():
    registry = mustered()
    registry.starter_ended(None, "", 0.1)
    found = registry.overdue(0.1, False)
    assert [(fact.host, fact.kind) for fact in found] == [(0, "agent_failed"), (1, "agent_failed")]


def test_who_was_given_up_is_not_let_back_in_but_its_successor_is():
    registry = mustered()
    gone(registry, 3.0, alive=(0,))
    assert registry.host_of(b"id-1") is None
    assert isinstance(registry.seat(b"id-1", "1", hello(1), 3.0), RejectedAgent)
    registry.expect_again(1)
    assert registry.seat(b"new", "1", hello(1), 4.0) == 1


# --- words ----------------------------------------------------------------------------------------------------

UP = [
    hello(1),
    ServerNews.of(["started", "sip-1", 0, 17]),
    Log("sip-1", b"words\n"),
    File("0-1-in.npy", b"\0"),
    ProcessStates({"sip-1": ("S", 12)}),
    Heartbeat(),
    Leaving("because"),
]
DOWN = [Order.of(["start", "sip-1", 0, {"spec": {}}]), Finish(1.0), Heartbeat()]


@pytest.mark.parametrize("message", UP, ids=lambda message: type(message).__name__)
def test_what_agents_say_comes_back(message: object):
    assert decode_from_agent(encode(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize("message", DOWN, ids=lambda message: type(message).__name__)
def test_what_the_launcher_says_comes_back(message: object):
    assert decode_to_agent(encode(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "", ".hidden", "x\n", "x" * 200])
def test_a_name_is_never_a_path(name: str):
    with pytest.raises(BadMessage):
        decode_from_agent(encode(File(name, b"")))


@pytest.mark.parametrize("frame", [b"", b"\x90", b"\xc1", b"\x91\xa5hello", encode(Finish(1.0)), b"\xdd" + b"\xff" * 4])
def test_other_bytes_are_refused(frame: bytes):
    with pytest.raises(BadMessage):
        decode_from_agent(frame)


def test_news_are_checked_too():
    assert ServerNews.of(["started", "sip-4", 0, 1]).news() == ProcessStarted("sip-4", 0, 1)
    assert ServerNews.of(["ended", "sip-4", 1, 1, -9]).news() == Ended("sip-4", 1, 1, -9)
    lines = ['["ended", "broker", 0, 1, -9]', '["started", "sip-x", 0, 1]', '["ended", "sip-0", 1, 1, "x"]']
    for line in (*lines, "", "[]", '["started"]', '["started", 1, 0, 1]', '["nothing"]', "5"):
        with pytest.raises(BadMessage):
            ServerNews(line).news()


@pytest.mark.parametrize("line", ["", "5", "[]", "[5]", "{}", "[" * 100_000], ids=lambda line: line[:9])
def test_an_agent_leaves_when_the_launcher_orders_nonsense(line: str):
    """Planted: the error let through; the agent ended in a traceback, and nobody was told why."""
    frames = iter([encode(Order(line)), None])
    way = SimpleNamespace(look=lambda: None)
    agent: Any = SimpleNamespace(_way=way, _receive=lambda: next(frames), _server=SimpleNamespace(order=None))
    agent._obey = lambda frame: _Agent._obey(agent, frame)
    assert _Agent._turn(agent, stdin_is_ready=False).startswith("the launcher said what is no order: no order: ")
