"""The one loop that runs processes, on this host or on many: facts to the supervisor, its commands to the hosts.

A thin shell. It reads clocks, sockets and logs; what follows from them is decided by ``Supervisor``, and what came of
the run is ``Outcome``'s.
"""

import contextlib
import os
import time
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
from launcher.engines.base import Request
from launcher.hosts.base import HostPool, PoolFactory
from launcher.processes.environment import RankEnvironment, rank_environment
from launcher.processes.fork_server import Ended, ForkServer, News, ProcessMessage, ProcessStarted
from launcher.processes.names import BROKER_NAME, sip_name
from launcher.processes.process_entry import SimProcessEntry, broker_order, sip_order
from launcher.report.outcome import Outcome, RunError
from launcher.supervise.facts import (
    HERE,
    BrokerListens,
    Command,
    Fact,
    Fail,
    HostStates,
    Kill,
    ProcessNews,
    Revive,
    Say,
    ServerGone,
    Start,
    Tell,
    Tick,
)
from launcher.supervise.fault_injector import FaultInjector
from launcher.supervise.logs import Logs
from launcher.supervise.ranks import Rules
from launcher.supervise.signals import StopSignals
from launcher.supervise.supervisor import Supervisor
from launcher.supervise.watchdog import Watchdog, log
from sipsim.node.process_spec import SipProcessSpec

LOOK_S = 0.2
SOON_S = 0.001


def run_processes(request: Request, signals: StopSignals, make_pool: PoolFactory) -> Outcome:
    """Run it with the crew that ``make_pool`` makes."""
    # Forked first: before any socket, thread or process of ours.
    server = ForkServer(SimProcessEntry(request.plan, request.job), request.scratch_dir)
    try:
        pool = make_pool(request, server)
        try:
            loop = _Loop(request, signals, server, pool)
        except BaseException:
            pool.close(well=False)
            raise
    except BaseException:
        server.close()
        raise
    return loop.run()


class _Loop:
    def __init__(self, request: Request, signals: StopSignals, server: ForkServer, pool: HostPool) -> None:
        self._request = request
        self._signals = signals
        self._server = server
        self._pool = pool
        self.outcome = Outcome(request.plan.system.n_sips)
        self._began_s: float | None = None
        self._shared_cpu = os.getpid()
        self._end: LauncherMail | None = None
        self._poller = zmq.Poller()
        self._watch = Watchdog(request.explain, min(request.join_timeout_s, request.progress_timeout_s))
        self._fault_injector = FaultInjector(request.faults, pool.inject_fault)
        self._output = Logs(request, [spec.name for spec in pool.specs])
        rules = Rules(
            request.plan.system.n_sips,
            request.max_restarts,
            request.join_timeout_s,
            request.progress_timeout_s,
            request.deadlines,
        )
        self._supervisor = Supervisor(rules, pool.specs, time.monotonic())

    def run(self) -> Outcome:
        """From the first process to the end of the last."""
        try:
            self._begin()
            while not self._supervisor.over:
                self._turn()
        finally:
            with contextlib.ExitStack() as at_last:
                if self._end is not None:
                    at_last.callback(self._end.close)
                at_last.callback(self._fault_injector.close)
                at_last.callback(self._server.close)
                self._pool.close(well=self.outcome.finished and self.outcome.error is None)
        self._output.pass_on(to_the_end=True)
        self._watch.close()
        if self.outcome.cut_short and self.outcome.error is None:
            self.outcome.fail(RunError("internal", None, "the run was stopped, and nobody has said why"))
        if not self.outcome.finished and self.outcome.error is None:
            facts = {"process": BROKER_NAME, **self._output.end_of(BROKER_NAME)}
            self.outcome.fail(RunError("internal", None, "the broker ended before the run did", facts=facts))
        self.outcome.troubles += filter(None, [self._output.trouble, self._pool.trouble])
        return self.outcome

    def _begin(self) -> None:
        for source in (self._server.fileno(), self._signals.fileno, *self._pool.pollables):
            self._poller.register(source, zmq.POLLIN)
        endpoint = self._pool.broker_endpoint
        keys = self._pool.keys
        order = broker_order(endpoint, self._shared_cpu, keys.for_broker() if keys else None, self._request.silence_s)
        self._server.start(BROKER_NAME, 0, order)
        if not endpoint.startswith("tcp:"):
            self._broker_listens(endpoint)

    def _broker_listens(self, endpoint: str) -> None:
        """A path is known before anybody listens there, a port is not."""
        self._broker_endpoint = endpoint
        keys = self._pool.keys.for_launcher() if self._pool.keys else None
        self._end = mail_for(endpoint).launcher(endpoint, keys, MailOptions(self._request.silence_s))
        self._poller.register(self._end.pollable, zmq.POLLIN)
        self._send(StatusRequest())
        self._take(BrokerListens())

    def _turn(self) -> None:
        unsent = self._server.unsent or self._pool.unsent or (self._end is not None and self._end.unsent)
        patience_s = self._fault_injector.patience_s(SOON_S if unsent else LOOK_S)
        self._poller.poll(int(1000 * self._signals.seconds_left(patience_s)) + 1)
        if self._end is not None:
            for frame in self._end.receive_waiting():
                self._hear(frame)
        for news in self._server.news():
            self._note_news(news)
        for fact in self._pool.facts():
            self._take(fact)
        if self._server.gone and self._server.fileno() in self._poller:
            self._poller.unregister(self._server.fileno())
            self._take(ServerGone(self._server.pid, self._server.status))
        self._take(Tick())
        self._heed_attention()
        self._fault_injector.look()
        self._output.pass_on()
        self._ask()

    def _ask(self) -> None:
        if self._request.progress.due() or self._fault_injector.asks_status:
            self._send(StatusRequest())
        if self._signals.asked():
            self._watch.asked()
        if not self._supervisor.over and self._watch.look(self._pool.process_states):
            self._take(HostStates(self._watch.words()))
            self._send(SyncRequest())

    def _hear(self, frame: bytes) -> None:
        try:
            message = decode_for_launcher(frame)
        except BadFrame as error:
            self.outcome.fail(RunError("internal", None, f"what the broker said is {error}"))
            self._supervisor.failed()
            return
        self._note(message)

    def _note(self, message: Any) -> None:
        now = time.monotonic()
        if isinstance(message, RunStarted):
            self._began_s = now
            self.outcome.startup_s = now - self._request.started_s
        if isinstance(message, Sync):
            self._watch.note(message)
            if self._began_s is None:
                self._pool.on_missing([sip.rank for sip in message.sips if sip.state == "joining"])
        if isinstance(message, Status):
            self._request.progress.show(message.now_ps, message.grants)
            if self._fault_injector.broker_dies(message.now_ps):
                self._server.kill(BROKER_NAME)
        self.outcome.note(message)
        if self.outcome.finished and self._began_s is not None:
            self.outcome.simulate_s = now - self._began_s
        self._do(self._supervisor.note(message, now))
        if self.outcome.error is not None:
            self._supervisor.failed()

    def _note_news(self, news: News) -> None:
        """Of this host's server."""
        if isinstance(news, ProcessMessage):
            if self._end is None:
                self._broker_listens(news.text)
        else:
            self._take(ProcessNews(HERE, news))

    def _take(self, fact: Fact) -> None:
        if isinstance(fact, ProcessNews):
            if isinstance(fact.news, ProcessStarted):
                self._watch.started(fact.news.name, fact.news.pid, fact.host == HERE or self._pool.is_here)
            elif isinstance(fact.news, Ended):
                self._watch.ended(fact.news.name, fact.news.pid)
        self._do(self._supervisor.handle(fact, time.monotonic()))

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Start():
                    self._start(command)
                case Kill():
                    self._pool.kill(command.host, sip_name(command.rank))
                case Revive():
                    self._pool.revive(command.host)
                case Tell():
                    self._send(command.message)
                case Say():
                    log(command.text)
                case Fail():
                    self._fail(command)

    def _start(self, start: Start) -> None:
        supervisor, request = self._supervisor, self._request
        beside = [rank.number for rank in supervisor.ranks if rank.site.index == start.host]
        rank_info = RankEnvironment(
            rank=start.rank,
            world_size=len(supervisor.ranks),
            local_rank=beside.index(start.rank),
            local_size=len(beside),
            node_rank=start.host,
            run_id=os.path.basename(request.scratch_dir),
            incarnation=start.incarnation,
        )
        spec = SipProcessSpec(
            rank=start.rank,
            incarnation=start.incarnation,
            broker=self._broker_endpoint,
            endpoint=self._pool.seat_endpoint(start.host, start.rank, start.incarnation),
            shared_cpu_seed=self._pool.shared_cpu_seed,
            keys=self._pool.keys.for_sip(start.rank) if self._pool.keys else None,
            packet_log_dir=self._packets_in(start.host),
            faults=request.faults,
            silence_s=request.silence_s,
            join_timeout_s=request.join_timeout_s,
        )
        order = sip_order(spec, rank_environment(rank_info))
        self._output.placed(sip_name(start.rank), supervisor.ranks[start.rank].site.name)
        self._pool.start(start.host, sip_name(start.rank), start.incarnation, order)

    def _packets_in(self, host: int) -> str:
        """Nobody can be brought back without what the others have sent it."""
        if self._request.keep_dir:
            return self._request.keep_dir
        return self._pool.folder(host) if self._request.max_restarts else ""

    def _fail(self, command: Fail) -> None:
        error = command.error
        facts = {**error.facts, **(self._output.end_of(command.log) if command.log else {})}
        self.outcome.fail(RunError(error.kind, error.rank, error.message, error.detail, facts))

    def _heed_attention(self) -> None:
        reason = self._signals.reason()
        if reason is not None and self.outcome.error is None:
            self.outcome.fail(RunError(reason, None, self._signals.words(reason)))
            self._send(Stop(reason))
            self._supervisor.failed()

    def _send(self, message: Message) -> None:
        if self._end is not None:
            self._end.send(BROKER, encode(message))
