"""Run loop: passes facts about processes and hosts to the supervisor, and the supervisor's commands to the hosts.

The loop reads clocks, sockets and logs; ``Supervisor`` decides, and ``Outcome`` collects the results.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import zmq

from broker.ids import BROKER
from broker.mail.base import LauncherMail, MailOptions
from broker.mail.kinds import mail_for
from broker.wire import (
    BadFrame,
    Message,
    RunStarted,
    Status,
    StatusRequest,
    Stop,
    Sync,
    SyncRequest,
    decode_for_launcher,
    encode,
)
from launcher.hosts.pool import HostPool, PoolFactory
from launcher.processes.descendants import left_line
from launcher.processes.entry import SimProcessEntry, broker_order, rank_environment, sip_order
from launcher.processes.fork_server import (
    ForkServer,
    ProcessesLeft,
    ProcessExited,
    ProcessMessage,
    ProcessStarted,
    ServerEvent,
    SignalProcess,
    StartProcess,
    process_name,
)
from launcher.report.outcome import FoundFacts, Outcome, RunError
from launcher.supervise.facts import (
    LAUNCHER_HOST,
    BrokerListens,
    Command,
    Fact,
    Fail,
    Kill,
    LogLine,
    Position,
    ProcessEvent,
    RequestPosition,
    Revive,
    Sampled,
    ServerGone,
    Start,
    Tick,
)
from launcher.supervise.fault_injector import FaultInjector
from launcher.supervise.logs import Logs
from launcher.supervise.positions import CANNOT_REPORT, NO_ANSWER, Answers, PositionRequests, positions_of
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from launcher.supervise.stall import Watchdog, log
from launcher.supervise.supervisor import Supervisor
from sipsim.core.errors import BadMessage
from sipsim.insight.hangs.positions import Positions
from sipsim.node.process import POSITION_SIGNAL
from sipsim.node.sip_node import SipProcessSpec
from sipsim.records.artifacts import rank_folder
from sipsim.records.code_place import shown

POLL_S = 0.2
RETRY_S = 0.001


def run_processes(run: Run, signals: StopSignals, make_pool: PoolFactory) -> Outcome:
    """Execute a run on the hosts that ``make_pool`` creates, and return the outcome."""
    # The fork server starts first, before any socket, thread or other process exists.
    server = ForkServer(SimProcessEntry(run.plan, run.job), run.scratch_dir)
    try:
        pool = make_pool(run, server)
        try:
            loop = _Loop(run, signals, server, pool)
        except BaseException:
            pool.close(well=False)
            raise
    except BaseException:
        server.close()
        raise
    return loop.run()


class _Loop:
    def __init__(self, run: Run, signals: StopSignals, server: ForkServer, pool: HostPool) -> None:
        self._run = run
        self._signals = signals
        self._server = server
        self._pool = pool
        self._folder = os.getcwd()
        self.outcome = Outcome(run.plan.system.n_sips, self._folder)
        self._began_s: float | None = None
        self._shared_cpu = os.getpid()
        self._mail: LauncherMail | None = None
        self._poller = zmq.Poller()
        self._options = options = run.options
        now_s = time.monotonic()
        deadline_s = min(options.join_timeout_s, options.progress_timeout_s)
        self._watchdog = Watchdog(now_s, options.explain_sync, deadline_s)
        self._fault_injector = FaultInjector(options.faults, pool.inject_fault, now_s)
        self._logs = Logs(run, [spec.name for spec in pool.specs])
        self._supervisor = Supervisor(run.plan.system.n_sips, options, pool.specs, now_s, self._folder)
        self._positions = PositionRequests()
        self._stop_reason: str | None = None

    def run(self) -> Outcome:
        """Start the broker, run the loop until the supervisor ends the run, close all hosts, and return the outcome."""
        try:
            self._begin()
            while not self._supervisor.over:
                self._turn()
        finally:
            with contextlib.ExitStack() as cleanup:
                if self._mail is not None:
                    cleanup.callback(self._mail.close)
                cleanup.callback(self._fault_injector.close)
                cleanup.callback(self._close_server)
                last_facts = self._pool.close(well=self.outcome.finished and self.outcome.error is None)
                for fact in last_facts:
                    self._note_left(fact)
        self._logs.forward(to_the_end=True)
        self._watchdog.close()
        if self._stop_reason is not None:
            self._stop(self._stop_reason, [], {})
        if self.outcome.cut_short and self.outcome.error is None:
            self.outcome.fail(RunError("internal", None, "the run was stopped for an unknown reason"))
        if not self.outcome.finished and self.outcome.error is None:
            facts: FoundFacts = {"process": process_name(None), **self._logs.tail_of(None)}
            self.outcome.fail(RunError("internal", None, "the broker ended before the run did", facts=facts))
        if self.outcome.error is None:
            end_ps = max((rank.sim_end_ps for rank in self.outcome.ranks.values()), default=0)
            self.outcome.notices += self._fault_injector.unfired(time.monotonic(), end_ps)
        self.outcome.troubles += filter(None, [self._logs.trouble, self._pool.trouble])
        return self.outcome

    def _close_server(self) -> None:
        for event in self._server.close():
            self._note_left(ProcessEvent(LAUNCHER_HOST, event))

    def _note_left(self, fact: Fact) -> bool:
        """Return whether ``fact`` reports that user code left processes running; if so, add a notice to the outcome."""
        if not isinstance(fact, ProcessEvent) or not isinstance(fact.event, ProcessesLeft):
            return False
        on = "" if fact.host == LAUNCHER_HOST else self._supervisor.hosts[fact.host].on
        event = fact.event
        owner = f"rank {event.rank} (pid {event.pid}{on})" if event.rank is not None else f"a rank{on}"
        self.outcome.notices.append(left_line(owner, event.left))
        return True

    def _begin(self) -> None:
        for pollable in (self._server.fileno(), self._signals.fileno, *self._pool.pollables):
            self._poller.register(pollable, zmq.POLLIN)
        endpoint = self._pool.broker_endpoint
        keys = self._pool.keys
        options = self._options
        broker_keys = keys.for_broker() if keys else None
        order = broker_order(endpoint, self._shared_cpu, broker_keys, options.silence_s, options.max_sim_ps)
        self._server.order(StartProcess(None, 0, order))
        if not endpoint.startswith("tcp:"):
            self._connect_to_broker(endpoint)

    def _connect_to_broker(self, endpoint: str) -> None:
        """Connect to the broker at its endpoint: a known path, or a TCP port that the broker has reported."""
        self._broker_endpoint = endpoint
        keys = self._pool.keys.for_launcher() if self._pool.keys else None
        self._mail = mail_for(endpoint).launcher(endpoint, keys, MailOptions(self._options.silence_s))
        self._poller.register(self._mail.pollable, zmq.POLLIN)
        self._send(StatusRequest())
        self._handle(BrokerListens())

    def _turn(self) -> None:
        unsent = self._server.unsent or (self._mail is not None and self._mail.unsent)
        sleep_s = self._fault_injector.seconds_left(time.monotonic(), RETRY_S if unsent else POLL_S)
        self._poller.poll(int(1000 * self._signals.seconds_left(sleep_s)) + 1)
        if self._mail is not None:
            for frame in self._mail.receive_waiting():
                self._receive(frame)
        for event in self._server.events():
            self._note_event(event)
        for fact in self._pool.facts():
            self._handle(fact)
        if self._server.gone and self._server.fileno() in self._poller:
            self._poller.unregister(self._server.fileno())
            self._handle(ServerGone(self._server.pid, self._server.status))
        self._handle(Tick())
        self._check_signals()
        self._positions.finish_due(time.monotonic())
        self._fault_injector.inject_due(time.monotonic())
        self._logs.forward()
        self._request_state()

    def _request_state(self) -> None:
        if self._run.progress.due() or self._fault_injector.needs_status:
            self._send(StatusRequest())
        if self._signals.status_requested:
            self._signals.status_requested = False
            self._watchdog.request()
            self._request_positions(self._running_ranks(), self._print_positions)
        if not self._supervisor.over and self._watchdog.check(self._pool.process_states, self._pool.silent_s):
            self._handle(Sampled(self._watchdog.states))
            self._send(SyncRequest())

    def _receive(self, frame: bytes) -> None:
        try:
            message = decode_for_launcher(frame)
        except BadFrame as error:
            what = f"the broker has sent the launcher a malformed message: {error}"
            self.outcome.fail(RunError(BadMessage.kind, None, what))
            self._supervisor.failed()
            return
        self._note(message)

    def _note(self, message: Any) -> None:
        now_s = time.monotonic()
        if isinstance(message, RunStarted):
            self._began_s = now_s
            self.outcome.startup_s = now_s - self._run.started_s
        if isinstance(message, Sync):
            self._watchdog.note(message)
            if self._began_s is None:
                self._pool.on_missing([sip.rank for sip in message.sips if sip.state == "joining"])
        if isinstance(message, Status) and self._fault_injector.broker_dies(message.now_ps):
            self._server.order(SignalProcess(None))
        self.outcome.note(message)
        self._run.progress.note(message, self.outcome)
        if self.outcome.finished and self._began_s is not None:
            self.outcome.simulate_s = now_s - self._began_s
        self._do(self._supervisor.note(message, now_s))
        if self.outcome.error is not None:
            self._supervisor.failed()

    def _note_event(self, event: ServerEvent) -> None:
        """Handle an event of this host's server."""
        if isinstance(event, ProcessMessage) and event.rank is None:
            if self._mail is None:
                self._connect_to_broker(event.text)
        else:
            self._handle(ProcessEvent(LAUNCHER_HOST, event))

    def _handle(self, fact: Fact) -> None:
        if self._note_left(fact):
            return
        if isinstance(fact, ProcessEvent):
            if isinstance(fact.event, ProcessMessage):
                self._note_position(fact.event)
                return
            if isinstance(fact.event, ProcessStarted):
                is_local = fact.host == LAUNCHER_HOST or self._pool.is_local
                self._watchdog.started(fact.event.rank, fact.event.pid, is_local)
            elif isinstance(fact.event, ProcessExited):
                self._watchdog.ended(fact.event.rank, fact.event.pid)
        self._do(self._supervisor.handle(fact, time.monotonic()))

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Start():
                    self._start(command)
                case Kill():
                    self._pool.order(command.host, SignalProcess(command.rank))
                case RequestPosition():
                    self._request_hung_position(command.rank)
                case Revive():
                    self._pool.revive(command.host)
                case Message():
                    self._send(command)
                case LogLine():
                    log(command.text)
                case Fail():
                    self._fail(command)

    def _start(self, start: Start) -> None:
        supervisor, options = self._supervisor, self._options
        on_host = [rank.number for rank in supervisor.ranks if rank.host.index == start.host]
        folder = self._pool.folder(start.host)
        spec = SipProcessSpec(
            rank=start.rank,
            incarnation=start.incarnation,
            broker=self._broker_endpoint,
            endpoint=self._pool.sip_endpoint(start.host, start.rank, start.incarnation),
            shared_cpu_seed=self._pool.shared_cpu_seed,
            keys=self._pool.keys.for_sip(start.rank) if self._pool.keys else None,
            packet_log_dir=self._packet_log_dir(start.host),
            artifact_dir=rank_folder(folder, start.rank) if folder else "",
            faults=options.faults,
            silence_s=options.silence_s,
            join_timeout_s=options.join_timeout_s,
        )
        run_id = os.path.basename(self._run.scratch_dir)
        order = sip_order(spec, rank_environment(spec, len(supervisor.ranks), start.host, run_id, on_host))
        self.outcome.hosts[start.rank] = supervisor.ranks[start.rank].host.name
        self._logs.set_host(start.rank, supervisor.ranks[start.rank].host.name)
        self._pool.order(start.host, StartProcess(start.rank, start.incarnation, order))

    def _packet_log_dir(self, host: int) -> str:
        """Return the folder of packet logs, which a restart needs; empty if the run allows no restarts."""
        folder = self._options.packet_log_dir
        if folder is not None:
            return str(folder)
        return self._pool.folder(host) if self._options.max_restarts else ""

    def _fail(self, command: Fail) -> None:
        error = command.error
        facts, message, file, line = error.facts, error.message, "", 0
        if command.with_log:
            facts = {**facts, **self._logs.tail_of(error.rank)}
            file, line = self._logs.crash_of(error.rank)
        if file and "signal" in facts:
            facts["file"], facts["line"] = file, line
            message = f"{message}, in code at {shown(file, line, self._folder)}"
        self.outcome.fail(RunError(error.kind, error.rank, message, error.detail, facts))

    # --- positions of the code in SIPs ---

    def _running_ranks(self) -> list[int]:
        """Return the ranks with a running process; none before the run begins, when no user code runs."""
        ranks = self._supervisor.ranks if self._began_s is not None else []
        return [rank.number for rank in ranks if rank.pid is not None and not rank.result_received]

    def _request_positions(self, ranks: list[int], on_answers: Callable[[Answers], None]) -> None:
        can_signal = self._pool.can_signal
        for rank in ranks if can_signal else ():
            host = self._supervisor.ranks[rank].host.index
            self._pool.order(host, SignalProcess(rank, POSITION_SIGNAL))
        if not can_signal:
            on_answers({})
        else:
            self._positions.add(ranks, on_answers, time.monotonic())

    def _request_hung_position(self, rank: int) -> None:
        reason = "" if self._pool.can_signal else CANNOT_REPORT
        self._request_positions([rank], lambda answers: self._handle(Position(rank, answers.get(rank), reason)))

    def _note_position(self, answer: ProcessMessage) -> None:
        rank = answer.rank
        ranks = self._supervisor.ranks
        if rank is not None and rank < len(ranks) and ranks[rank].incarnation == answer.incarnation:
            self._positions.note(rank, answer.text)

    def _positions_of(self, ranks: list[int], answers: Answers) -> Positions:
        reason = NO_ANSWER if self._pool.can_signal else CANNOT_REPORT
        return positions_of(ranks, answers, self._watchdog.rank_states(), reason, self._folder)

    def _print_positions(self, answers: Answers) -> None:
        ranks = sorted({*self._running_ranks(), *answers})
        if ranks:
            print(self._positions_of(ranks, answers).text, file=sys.stderr, flush=True)

    def _check_signals(self) -> None:
        """Stop the run after a signal or timeout; the positions of the code in SIPs are requested first."""
        self._signals.drain()
        reason = self._signals.reason()
        if reason is not None and self.outcome.error is None and self._stop_reason is None:
            self._stop_reason = reason
            ranks = self._running_ranks()
            self._request_positions(ranks, lambda answers: self._stop(reason, ranks, answers))

    def _stop(self, reason: str, ranks: list[int], answers: Answers) -> None:
        if self.outcome.error is not None:
            return
        found = self._positions_of(ranks, answers) if ranks else Positions("", [])
        error = RunError(reason, None, self._signals.describe(reason), found.text, {"positions": found.facts})
        self.outcome.fail(error)
        self._send(Stop(reason))
        self._supervisor.failed()

    def _send(self, message: Message) -> None:
        if self._mail is not None:
            self._mail.send(BROKER, encode(message))
