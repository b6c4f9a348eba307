"""Host pool of many hosts: an agent on each host, connected to one authenticated socket.

The pool relays commands to agents, events of agents to the loop, and output and files of processes into the run's
folder. The pool reports a host as joined, or as lost if the agent is silent for too long or the connection has ended.
"""

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

from broker.mail.sockets import ConnectionWarnings, SocketFactory
from broker.security import JobKeys, member_of
from launcher.hosts.agent_registry import HEARTBEAT_S, AgentRegistry, RejectedAgent
from launcher.hosts.bootstrap import Bootstrap, launcher_address, tcp
from launcher.hosts.pool import HostPool
from launcher.hosts.run_loop import run_processes
from launcher.hosts.starters import Starter, StartPlan
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
    ToAgent,
    decode_from_agent,
    encode,
)
from launcher.processes.fork_server import Ready, ServerCommand, SetUp, SetupFailed, process_name
from launcher.processes.this_host import ProcessState
from launcher.processes.ticket import Ticket
from launcher.report.outcome import Outcome
from launcher.supervise.facts import Fact, HostGone, HostJoined, ProcessEvent
from launcher.supervise.ranks import place_blockwise
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from launcher.supervise.stall import log
from sipsim.core.errors import ConfigError
from sipsim.core.files import APPEND, open_file

FINISH_S = 1.0
"""Time for the processes of a successful run to exit by themselves."""
LEAVE_S = 5.0
"""Time for agents to exit after ``Finish``, counted again from each message that arrives."""


class AgentHosts(HostPool):
    """Pool of many hosts, with an agent on each host."""

    def __init__(self, run: Run, plan: StartPlan) -> None:
        self._run = run
        self._folder = Path(run.scratch_dir)
        self._starter = Starter(plan, self._folder)
        self.specs = plan.specs
        self._states: list[dict[int, ProcessState]] = [{} for _ in self.specs]
        self._silence_s = run.options.silence_s
        named = [spec.name for spec in self.specs if spec.is_named]
        self._address = launcher_address(named, run.options.bind or "")
        self.keys = JobKeys.fresh(run.plan.system.n_sips, len(self.specs))
        self.broker_endpoint = tcp(self._address)
        members = {pair.public: str(number) for number, pair in enumerate(self.keys.agents)}
        self._sockets = SocketFactory(self.keys.for_launcher(), members, self._silence_s)
        self._listening = self._sockets.listen(zmq.ROUTER, tcp(self._address))
        self._listening.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._registry = AgentRegistry(self.specs, self._silence_s, by_name=bool(plan.rank_names))
        self._next_beat_s = 0.0
        self._warnings = ConnectionWarnings("ahbm-launch")
        self._starter.begin(self._bootstrap_text)

    def _bootstrap_text(self, node_rank: int | None) -> str:
        assert self.keys is not None
        hosts = range(len(self.specs)) if node_rank is None else (node_rank,)
        return Bootstrap(
            launcher=self._listening.endpoint,
            n_hosts=len(self.specs),
            node_rank=node_rank,
            keys=tuple(self.keys.for_agent(host) for host in hosts),
            rank_names=self._starter.plan.rank_names,
            silence_s=self._silence_s,
        ).text()

    @property
    def process_states(self) -> dict[int | None, ProcessState]:
        """The last reported state of each process, by rank; processes on lost hosts are left out."""
        by_host = zip(self._registry.slots, self._states, strict=True)
        return {rank: state for slot, states in by_host if slot.is_up for rank, state in states.items()}

    @property
    def silent_s(self) -> dict[str, float]:
        """Seconds of silence, by name of the host, for hosts whose agents are silent."""
        return self._registry.silent(time.monotonic())

    @property
    def pollables(self) -> list[Any]:
        """The socket to which agents connect, and the socket's monitor."""
        return [self._listening.socket, self._listening.monitor]

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Return the address that the host's agent reported, as an endpoint whose port the host's system chooses."""
        return tcp(self._registry.slots[host].address)

    def folder(self, host: int) -> str:
        return self._registry.slots[host].folder

    def order(self, host: int, command: ServerCommand) -> None:
        """Send a command to the agent's fork server."""
        self._send_to(host, command)

    def revive(self, host: int) -> None:
        """Make the starter start another agent on a host."""
        self._registry.await_restart(host)
        self._starter.revive(host)

    def inject_fault(self, kind: str, host: str) -> bool:
        """Make an agent kill itself, if ``kind`` is ``agent``; return whether the agent could be reached."""
        names = [slot.name for slot in self._registry.slots]
        return kind == "agent" and host in names and self._send_to(names.index(host), KillSelf())

    def facts(self) -> list[Fact]:
        """Return facts from agents, their connections, and the starter."""
        now_s = time.monotonic()
        found = self._receive_all(now_s)
        notices = self._listening.poll_events()
        self._warnings.write([*notices, *self._sockets.notices()])
        # The monitor does not report which connection was lost.
        if now_s >= self._next_beat_s or any(notice.kind == "lost" for notice in notices):
            self._next_beat_s = now_s + HEARTBEAT_S
            self._probe(now_s)
        for ending in self._starter.ended():
            self._registry.starter_ended(ending.host, ending.why, now_s, ending.silent)
        return found + self._registry.overdue(now_s, self._starter.can_revive)

    def close(self, well: bool) -> list[Fact]:
        """Send ``Finish`` to all agents, receive logs and files until the agents leave, and end the starter."""
        found: list[Fact] = []
        if well:
            self._registry.extend_silence(LEAVE_S)
        finishing = [host for host, slot in enumerate(self._registry.slots) if slot.is_up]
        for host in finishing:
            self._send_to(host, Finish(FINISH_S if well else 0.0))
        until_s = time.monotonic() + LEAVE_S
        while any(self._registry.slots[host].is_up for host in finishing) and time.monotonic() < until_s:
            if self._listening.socket.poll(100):
                until_s = time.monotonic() + LEAVE_S
            now_s = time.monotonic()
            found += self._receive_all(now_s)
            self._probe(now_s)
            self._registry.overdue(now_s, False)
        try:
            self._starter.close()
        finally:
            self._sockets.close(0)
        return found

    # --- from agents ---

    def _receive_all(self, now_s: float) -> list[Fact]:
        found: list[Fact] = []
        while True:
            try:
                parts = self._listening.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return found
            if len(parts) == 2:
                found += self._receive(parts[0].bytes, member_of(parts[1]), parts[1].bytes, now_s)

    def _receive(self, name: bytes, member: str | None, frame: bytes, now_s: float) -> list[Fact]:
        try:
            message = decode_from_agent(frame)
            if isinstance(message, Hello):
                return self._hello(name, member, message, now_s)
            host = self._registry.host_of(name)
            if host is None:
                # The host of this agent is lost, or another agent has replaced this agent.
                self._send(name, Finish(0.0))
                return []
            return self._from(host, message, now_s)
        except (BadMessage, msgspec.ValidationError) as error:
            # The sender has a key of this run; an agent that was not admitted has no host to lose.
            host = self._registry.host_of(name)
            if host is not None:
                self._registry.slots[host].leave(f"the agent has sent a malformed message: {error}")
                self._send(name, Finish(0.0))
            return []

    def _hello(self, name: bytes, member: str | None, hello: Hello, now_s: float) -> list[Fact]:
        host = self._registry.admit(name, member, hello, now_s)
        if isinstance(host, RejectedAgent):
            self._send(name, Finish(0.0))
            if host.host is None:
                log(f"{host.reason}; the launcher rejected this agent")
                return []
            return [HostGone(host.host, "agent_failed", host.reason)]
        ticket = Ticket.of(self._run.plan, self._run.job)
        self._send_to(host, SetUp(ticket.text()))
        return []

    def _from(self, host: int, message: Any, now_s: float) -> list[Fact]:
        slot = self._registry.slots[host]
        slot.last_seen_s = now_s
        match message:
            case Log():
                self._append(f"{process_name(message.rank)}.log", message.data)
            case File():
                self._append(message.name, message.data)
            case ProcessStates():
                self._states[host] = {rank: ProcessState(*state) for rank, state in message.states.items()}
            case Leaving():
                slot.leave(message.why)
            case Heartbeat():
                pass
            case Ready():
                return [HostJoined(host, slot.name)]
            case SetupFailed():
                slot.leave("")
                return [HostGone(host, "refused", f"{slot.name}: {message.line}")]
            case event:
                return [ProcessEvent(host, event)]
        return []

    def _append(self, name: str, data: bytes) -> None:
        if self.trouble:
            return
        path = self._folder / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(open_file(path, APPEND), "ab") as file:
                file.write(data)
        except OSError as error:
            hint = "make room there, or set TMPDIR to another folder"
            self.trouble = f"{path}: the launcher cannot store data from other hosts: {error.strerror}; {hint}"

    # --- to agents ---

    def _probe(self, now_s: float) -> None:
        """Send a heartbeat to each agent, to detect agents that are disconnected."""
        for host, slot in enumerate(self._registry.slots):
            if slot.is_up and not self._send_to(host, Heartbeat()):
                slot.connection_closed(now_s)

    def _send_to(self, host: int, message: ToAgent) -> bool:
        slot = self._registry.slots[host]
        return slot.routing_id is not None and self._send(slot.routing_id, message)

    def _send(self, name: bytes, message: ToAgent) -> bool:
        try:
            self._listening.socket.send_multipart([name, encode(message)])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return error.errno == zmq.EAGAIN
        return True


def run_on_agents(run: Run, signals: StopSignals, plan: StartPlan) -> Outcome:
    """Execute a run on the hosts of ``plan``, and return the outcome.

    Raises:
        ConfigError: if the kind of mail works on one host only, or the hosts have too few slots.
    """
    if run.options.mail != "zmq":
        raise ConfigError(f"--mail {run.options.mail} works on one host only; leave --mail out, or use --engine local")
    try:
        place_blockwise(run.plan.system.n_sips, [spec.slots for spec in plan.specs])
    except ValueError as error:
        raise ConfigError(f"--hosts: {error}") from None
    return run_processes(run, signals, lambda run, _: AgentHosts(run, plan))
