"""The crew of many hosts: an agent on each, which a starter has got there, at the ends of one guarded socket.

It relays: orders to agents, their news to the loop, what their processes print and leave into the run's folder. Of
its own it knows who has joined and who has gone: an agent that is silent for as long as heartbeats allow, or whose
connection has ended.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from broker.mail.connection_warnings import ConnectionWarnings
from broker.mail.sockets import SocketFactory, member_of
from broker.security.keys import JobKeys
from launcher.engines.base import Request
from launcher.hosts.agent_registry import HEARTBEAT_S, AgentRegistry, AgentSlot, RejectedAgent
from launcher.hosts.bootstrap import Bootstrap, launcher_address, tcp
from launcher.hosts.run_loop import run_processes
from launcher.hosts.starters import Starter
from launcher.hosts.wire import (
    BadMessage,
    File,
    Finish,
    Heartbeat,
    Hello,
    KillSelf,
    Leaving,
    Log,
    Order,
    ProcessStates,
    ServerNews,
    ToAgent,
    decode_from_agent,
    encode,
)
from launcher.processes.fork_server import Ready, SetupFailed
from launcher.processes.process_state import ProcessState
from launcher.processes.ticket import Ticket
from launcher.report.outcome import Outcome
from launcher.supervise.facts import Fact, HostGone, HostJoined, HostSpec, ProcessNews
from launcher.supervise.placement import place_blockwise
from launcher.supervise.signals import StopSignals
from launcher.supervise.watchdog import log
from sipsim.errors import ConfigError

FINISH_S = 1.0
"""For the processes of a run that has ended well to end by themselves."""
LEFT_S = 5.0
"""For agents to leave once they have been told to; longer while they send what their processes have left."""


class AgentHosts:
    """A crew, see ``launcher.hosts.base.HostPool``."""

    def __init__(self, request: Request, starter: Starter) -> None:
        self._request = request
        self._starter = starter
        self.specs: Sequence[HostSpec] = starter.specs
        self.shared_cpu_seed = None
        self.is_here = False
        self._states: list[dict[str, ProcessState]] = [{} for _ in self.specs]
        self._address = launcher_address([spec.name for spec in starter.specs if spec.is_named], request.bind)
        self.keys: JobKeys | None = JobKeys.fresh(request.plan.system.n_sips, len(self.specs))
        self.broker_endpoint = tcp(self._address)
        members = {pair.public: str(number) for number, pair in enumerate(self.keys.agents)}
        self._sockets = SocketFactory(self.keys.for_launcher(), members, request.silence_s)
        self._listening = self._sockets.listen(zmq.ROUTER, tcp(self._address))
        self._listening.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._registry = AgentRegistry(self.specs, request.silence_s, by_name=bool(starter.rank_names))
        self._folder = Path(request.scratch_dir)
        self._next_beat_s = 0.0
        self.trouble = ""
        self._warnings = ConnectionWarnings("ahbm-launch")
        self._starter.begin(self._boot)

    def _boot(self, node_rank: int | None) -> str:
        assert self.keys is not None
        hosts = range(len(self.specs)) if node_rank is None else (node_rank,)
        return Bootstrap(
            launcher=self._listening.endpoint,
            n_hosts=len(self.specs),
            node_rank=node_rank,
            keys=tuple(self.keys.for_agent(host) for host in hosts),
            rank_names=self._starter.rank_names,
            silence_s=self._request.silence_s,
        ).text()

    @property
    def process_states(self) -> dict[str, ProcessState]:
        """As agents have told. Of a host that is gone nothing is known."""
        agent_slots = zip(self._registry.agent_slots, self._states, strict=True)
        return {
            name: look for slot, process_states in agent_slots if slot.is_up for name, look in process_states.items()
        }

    @property
    def pollables(self) -> list[Any]:
        """The socket and what happens to its connections."""
        return [self._listening.socket, self._listening.monitor]

    @property
    def unsent(self) -> bool:
        """ZeroMQ keeps and sends what cannot be sent yet."""
        return False

    def seat_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """On the address that the agent told; the system there chooses a port."""
        return tcp(self._registry.agent_slots[host].address)

    def folder(self, host: int) -> str:
        """The agent's."""
        return self._registry.agent_slots[host].folder

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """By the agent's server."""
        self._tell(host, Order.of(["start", name, incarnation, order]))

    def kill(self, host: int, name: str) -> None:
        """By the agent's server."""
        self._tell(host, Order.of(["kill", name, 9]))

    def revive(self, host: int) -> None:
        """By the starter."""
        self._registry.expect_again(host)
        self._starter.revive(host)

    def inject_fault(self, kind: str, host: str) -> bool:
        """An agent can be told to kill itself. Who is to cut a host off is another program."""
        names = [slot.name for slot in self._registry.agent_slots]
        return kind == "agent" and host in names and self._tell(names.index(host), KillSelf())

    def on_missing(self, ranks: list[int]) -> None:
        """They will come."""

    def facts(self) -> list[Fact]:
        """From agents, from their connections, and from the starter."""
        now_s = time.monotonic()
        found = self._take_all(now_s)
        notices = self._listening.look()
        self._warnings.write([*notices, *self._sockets.notices()])
        if any(notice.kind == "lost" for notice in notices):
            # Whose connection it was, it does not tell.
            found += self._probe(now_s)
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + HEARTBEAT_S
            found += self._probe(now_s)
        for ending in self._starter.ended():
            self._registry.starter_ended(ending.host, ending.why, now_s, ending.speechless)
        return found + self._registry.overdue(now_s, self._starter.can_revive)

    def close(self, well: bool) -> None:
        """Tell agents to finish, take what they still have, and end the starter."""
        if well:
            self._registry.be_patient(LEFT_S)
        asked = [host for host, slot in enumerate(self._registry.agent_slots) if slot.is_up]
        for host in asked:
            self._tell(host, Finish(FINISH_S if well else 0.0))
        until_s = time.monotonic() + LEFT_S
        while any(self._registry.agent_slots[host].is_up for host in asked) and time.monotonic() < until_s:
            if self._listening.socket.poll(100):
                until_s = time.monotonic() + LEFT_S
            now_s = time.monotonic()
            self._take_all(now_s)
            self._probe(now_s)
            self._registry.overdue(now_s, False)
        try:
            self._starter.close()
        finally:
            self._sockets.close(0)

    # --- what agents say ---

    def _take_all(self, now_s: float) -> list[Fact]:
        found: list[Fact] = []
        while True:
            try:
                parts = self._listening.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return found
            if len(parts) == 2:
                found += self._take(parts[0].bytes, member_of(parts[1]), parts[1].bytes, now_s)

    def _take(self, name: bytes, member: str | None, frame: bytes, now_s: float) -> list[Fact]:
        try:
            message = decode_from_agent(frame)
            if isinstance(message, Hello):
                return self._hello(name, member, message, now_s)
            host = self._registry.host_of(name)
            if host is None:
                # Of a host that was given up, or of an agent that another one has replaced.
                self._send(name, Finish(0.0))
                return []
            return self._from(host, message, now_s)
        except (BadMessage, msgspec.ValidationError):
            # Nobody without a key of this run gets this far; what one with a key says wrongly is not obeyed.
            return []

    def _hello(self, name: bytes, member: str | None, hello: Hello, now_s: float) -> list[Fact]:
        host = self._registry.seat(name, member, hello, now_s)
        if isinstance(host, RejectedAgent):
            self._send(name, Finish(0.0))
            if host.host is None:
                log(f"{host.why}; it was turned away")
                return []
            return [HostGone(host.host, "agent_failed", host.why)]
        plan, job = self._request.plan, self._request.job
        theirs = {name: hello.folder for name in ("recorded_io_dir", "trace_dir") if getattr(job, name)}
        ticket = Ticket.of(plan, msgspec.structs.replace(job, **theirs))
        self._tell(host, Order.of(["setup", ticket.text()]))
        return []

    def _from(self, host: int, message: Any, now_s: float) -> list[Fact]:
        slot = self._registry.agent_slots[host]
        slot.heard_s = now_s
        match message:
            case ServerNews():
                return self._passed(host, slot, message)
            case Log():
                self._append(f"{message.name}.log", message.data)
            case File():
                self._append(message.name, message.data)
            case ProcessStates():
                self._states[host] = {name: ProcessState(*look) for name, look in message.process_states.items()}
            case Leaving():
                slot.leave(message.why)
        return []

    def _passed(self, host: int, slot: AgentSlot, passed: ServerNews) -> list[Fact]:
        news = passed.news()
        match news:
            case Ready():
                return [HostJoined(host, slot.name)]
            case SetupFailed():
                slot.leave("")
                return [HostGone(host, "refused", f"{slot.name}: {news.line}")]
        return [ProcessNews(host, news)]

    def _append(self, name: str, data: bytes) -> None:
        if self.trouble:
            return
        path = self._folder / name
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as error:
            hint = "make room there, or set TMPDIR to another folder"
            self.trouble = f"{path}: what came from other hosts cannot be kept: {error.strerror}; {hint}"

    # --- what is said to them ---

    def _probe(self, now_s: float) -> list[Fact]:
        """A sign of life to everybody; who is not connected any more is found out by that."""
        for host, slot in enumerate(self._registry.agent_slots):
            if slot.is_up and not self._tell(host, Heartbeat()):
                slot.cut_off(now_s)
        return []

    def _tell(self, host: int, message: ToAgent) -> bool:
        slot = self._registry.agent_slots[host]
        return slot.routing_id is not None and self._send(slot.routing_id, message)

    def _send(self, name: bytes, message: ToAgent) -> bool:
        try:
            self._listening.socket.send_multipart([name, encode(message)])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return error.errno == zmq.EAGAIN
        return True


def run_on_agents(request: Request, signals: StopSignals, starter: Starter) -> Outcome:
    """Run it with the agents that ``starter`` gets onto its hosts.

    Raises:
        ConfigError: when it cannot even be tried.
    """
    if request.mail != "zmq":
        raise ConfigError(f"--mail {request.mail} is for one host; leave it out, or use --engine local")
    try:
        place_blockwise(request.plan.system.n_sips, [spec.slots for spec in starter.specs])
    except ValueError as error:
        raise ConfigError(f"--hosts: {error}") from None
    return run_processes(request, signals, lambda request, _here: AgentHosts(request, starter))
