"""Supervisor: decides on restarts and failures. Pure: facts and times are arguments, commands are returned.

The first exit is the cause of a failure. A lost rank is restarted as the next incarnation, on the same host or on the
emptiest living host, up to ``--max-restarts`` times per run; the broker is notified first. If no restart is left, or if
the broker or the launcher's fork server exits, the run fails. A process that does not join or progress in time counts
as hung. The broker reports errors of the simulation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from broker import wire
from broker.hub import Phase
from broker.wire import Lost, PeerLost, RankResult, Restart, Sync, ToLauncher
from launcher.options import Options
from launcher.processes.fork_server import NotStarted, ProcessExited, ProcessStarted
from launcher.processes.this_host import ProcessState
from launcher.report.outcome import FoundFacts, RunError
from launcher.supervise.facts import (
    LAUNCHER_HOST,
    BrokerListens,
    Command,
    Fact,
    Fail,
    HostGone,
    HostJoined,
    HostSpec,
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
    describe_exit,
    status_facts,
)
from launcher.supervise.positions import hang_of
from launcher.supervise.ranks import Host, LostConnections, Rank, join_status, missing, next_host, place_blockwise
from launcher.supervise.stall import IdleTimer, note_samples
from sipsim.node.process import LOST_BROKER_EXIT

GRACE_S = 1.0
"""Time for messages in flight: of a rank that exited without a result, and of all ranks after a failure."""
LONGEST_STEP_S = 1.0
"""Maximum advance of the clock between two facts, so that no deadline passes while the launcher is suspended."""


class Supervisor:
    """Supervisor of one run. ``hosts``: by node rank. ``folder``: working folder, to shorten paths in messages."""

    def __init__(
        self, n_sips: int, options: Options, hosts: Sequence[HostSpec], now_s: float, folder: str = ""
    ) -> None:
        self._options = options
        self._folder = folder
        self.hosts = [Host(index, spec.name, spec.slots) for index, spec in enumerate(hosts)]
        places = place_blockwise(n_sips, [spec.slots for spec in hosts])
        self.ranks = [Rank(rank, self.hosts[host]) for rank, host in enumerate(places)]
        self.restarts = 0
        self.finished = False
        self._last_s = now_s
        self._clock_s = 0.0
        self._broker_pid = 0
        self._broker_listens = False
        self._began = False
        self._failing = False
        self._give_up_s: float | None = None
        self._unconfirmed: dict[int | None, tuple[float, ProcessExited]] = {}
        self._lost_connections = LostConnections(self.ranks)
        self._sync: Sync | None = None
        self._broker_idle = IdleTimer()
        self._idle: set[int] = set()
        self._is_ending = False
        self._states: Mapping[int | None, ProcessState] = {}

    @property
    def over(self) -> bool:
        """Whether the broker has finished the run, or the time for the broker's last messages has passed."""
        return self.finished or (self._give_up_s is not None and self._clock_s >= self._give_up_s)

    def failed(self) -> None:
        """Record that the run has failed: restart nothing, and wait ``GRACE_S`` for messages in flight."""
        self._failing = True
        if self._give_up_s is None:
            self._give_up_s = self._clock_s + GRACE_S

    # --- facts ---

    def handle(self, fact: Fact, now_s: float) -> list[Command]:
        """Handle one fact, which is known since ``now_s`` (monotonic clock); return commands for the run loop."""
        self._advance(now_s)
        match fact:
            case ProcessEvent():
                return self._process_event(fact)
            case HostJoined():
                return self._host_joined(fact)
            case HostGone():
                return self._host_gone(fact)
            case BrokerListens():
                self._broker_listens = True
                return self._start_all()
            case ServerGone():
                message = f"the server that starts the processes (pid {fact.pid}) {describe_exit(fact.status)}"
                self._give_up_s = self._clock_s
                return self._fail("process_died", None, message, status_facts(fact.status))
            case Sampled():
                self._states = fact.states
                timers: dict[int | None, IdleTimer] = {rank.number: rank.idle for rank in self.ranks}
                note_samples(timers | {None: self._broker_idle}, fact.states, self._clock_s)
                return []
            case Position():
                return self._position(fact)
            case Tick():
                return self._tick()

    def _advance(self, now_s: float) -> None:
        self._clock_s += min(max(now_s - self._last_s, 0.0), LONGEST_STEP_S)
        self._last_s = max(now_s, self._last_s)

    def note(self, message: ToLauncher, now_s: float) -> list[Command]:
        """Handle one message of the broker; return commands. The caller also passes the message to ``Outcome``."""
        self._advance(now_s)
        match message:
            case wire.RunStarted():
                self._began = True
            case wire.Finished():
                self.finished = True
            case RankResult():
                self.ranks[message.rank].result_received = True
                self._ends()
            case PeerLost():
                if not self._failing:
                    self._lost_connections.note(message, self._clock_s)
            case Sync():
                return self._note_sync(message)
        return []

    # --- processes ---

    def _process_event(self, fact: ProcessEvent) -> list[Command]:
        event, host = fact.event, fact.host
        if not isinstance(event, ProcessStarted | ProcessExited | NotStarted) or not self._runs_on(host, event.rank):
            return []
        match event:
            case ProcessStarted():
                return self._started(event)
            case ProcessExited():
                return self._ended(event)
            case NotStarted(rank):
                what = "the broker" if rank is None else f"rank {rank}"
                where = self.ranks[rank].host.on if rank is not None else ""
                return self._fail("process_died", rank, f"{what} cannot be started{where}: {event.why}")

    def _runs_on(self, host: int, rank: int | None) -> bool:
        """Whether a rank runs on ``host``; the caller drops an agent's events of ranks that moved to another host."""
        return host == LAUNCHER_HOST or any(r.number == rank for r in self.ranks if r.host.index == host)

    def _started(self, event: ProcessStarted) -> list[Command]:
        if event.rank is None:
            self._broker_pid = event.pid
        else:
            self.ranks[event.rank].started(event.incarnation, event.pid)
        return []

    def _ended(self, event: ProcessExited) -> list[Command]:
        number = event.rank
        if number is not None and not self.ranks[number].is_now(event.incarnation, event.pid):
            return []
        # The result of the rank, or its reason, may still be in flight through the broker. If the rank has lost the
        # broker, the exit of the broker may be in flight.
        has_lost_broker = number is not None and event.status == LOST_BROKER_EXIT and not self._failing
        if has_lost_broker or self._may_have_reported(number, event.status):
            self._unconfirmed[number] = (self._clock_s + GRACE_S, event)
            return []
        return self._died(event)

    def _may_have_reported(self, number: int | None, status: int) -> bool:
        """Whether a process with exit code ``status`` may have sent a result or, before joining, the exit's reason."""
        has_joined = number is None or (self._began and not self.ranks[number].rejoining)
        return status == 0 or (status > 0 and not has_joined)

    def _died(self, event: ProcessExited) -> list[Command]:
        number = event.rank
        facts: FoundFacts = {"pid": event.pid, **status_facts(event.status)}
        if number is None:
            message = f"the broker (pid {event.pid}) {describe_exit(event.status)}"
            return self._fail("process_died", None, message, facts, with_log=True)
        rank = self.ranks[number]
        reason = describe_exit(event.status)
        is_known = event.status == LOST_BROKER_EXIT or self._may_have_reported(number, event.status)
        rank.is_dead, rank.pid = True, None
        if self._failing and is_known:
            return [Lost(number, reason)]
        facts |= {"host": rank.host.name, "incarnation": rank.incarnation}
        kind, message = rank.kill_reason or ("process_died", f"rank {number} (pid {event.pid}{rank.host.on}) {reason}")
        if self._may_restart():
            self.restarts += 1
            return [self._restart_notice(message), *self._restart([rank])]
        failed = self._fail(kind, number, message + self._budget_note(), facts, with_log=True)
        return [*failed, Lost(number, reason)]

    def _restart_notice(self, reason: str) -> Command:
        return LogLine(f"{reason}; started again ({self.restarts} of --max-restarts {self._options.max_restarts})")

    def _may_restart(self, count: int = 1) -> bool:
        return not self._failing and self.restarts + count <= self._options.max_restarts

    def _budget_note(self) -> str:
        is_used = self.restarts and not self._failing
        return f"; --max-restarts {self._options.max_restarts} is used up" if is_used else ""

    def _restart(self, ranks: list[Rank]) -> list[Command]:
        """Start the next incarnation of each rank; the broker is notified of all restarts first."""
        self._is_ending = False
        for rank in ranks:
            rank.next_incarnation(self._clock_s)
            self._unconfirmed.pop(rank.number, None)
        notices: list[Command] = [Restart(rank.number, rank.incarnation) for rank in ranks]
        return notices + [command for rank in ranks for command in self._start(rank)]

    def _start_all(self) -> list[Command]:
        return [command for rank in self.ranks for command in self._start(rank)]

    def _start(self, rank: Rank) -> list[Command]:
        if rank.start_sent or not self._broker_listens or not rank.host.joined or self._failing:
            return []
        rank.start_sent, rank.since_s = True, self._clock_s
        return [Start(rank.host.index, rank.number, rank.incarnation)]

    # --- hosts ---

    def _host_joined(self, fact: HostJoined) -> list[Command]:
        host = self.hosts[fact.host]
        host.joined, host.lost, host.name = True, False, fact.name or host.name
        return self._start_all()

    def _host_gone(self, fact: HostGone) -> list[Command]:
        host = self.hosts[fact.host]
        was_joined, was_restarting = host.joined, host.agent_restarting
        host.joined, host.agent_restarting = False, False
        affected = [rank for rank in self.ranks if rank.host is host and not (rank.result_received and self.finished)]
        for rank in affected:
            rank.is_dead, rank.pid = True, None
        if not was_joined and not was_restarting:
            if fact.can_return and self._may_restart():
                self.restarts += 1
                host.agent_restarting, host.since_s = True, self._clock_s
                return [self._restart_notice(fact.why), Revive(host.index)]
            host.lost = True
            return self._fail(fact.kind, None, fact.why, {"host": host.name})
        lost: list[Command] = [Lost(rank.number, fact.why) for rank in affected]
        others = [other.index for other in self.hosts if other.joined]
        can = was_restarting or self._may_restart()
        if not (can and (fact.can_return or others)) or self._failing:
            host.lost = True
            tail = self._budget_note() if not can else "; no other host is left" if self._options.max_restarts else ""
            ranks = ", ".join(str(rank.number) for rank in affected) or "none"
            facts: FoundFacts = {"host": host.name, "ranks": [rank.number for rank in affected]}
            return [*self._fail(fact.kind, None, f"{fact.why}; ranks that ran there: {ranks}{tail}", facts), *lost]
        self.restarts += not was_restarting
        if fact.can_return and not was_restarting:
            host.agent_restarting, host.since_s = True, self._clock_s
            return [self._restart_notice(fact.why), Revive(host.index), *self._restart(affected)]
        host.lost = True
        moved = self._move(affected, others, is_notified=was_restarting)
        return [*([] if was_restarting else [self._restart_notice(fact.why)]), *moved]

    def _move(self, ranks: list[Rank], others: list[int], is_notified: bool) -> list[Command]:
        ranks_on = Counter(rank.host.index for rank in self.ranks if rank not in ranks)
        for rank in ranks:
            index = next_host(others, {host.index: host.slots for host in self.hosts}, ranks_on)
            assert index is not None
            rank.host = self.hosts[index]
            ranks_on[index] += 1
        if is_notified:
            return [command for rank in ranks for command in self._start(rank)]
        return self._restart(ranks)

    # --- deadlines ---

    def _tick(self) -> list[Command]:
        commands: list[Command] = []
        if self.finished:
            return commands
        for number, (until_s, event) in list(self._unconfirmed.items()):
            answered = number is not None and self.ranks[number].result_received
            if answered or self._clock_s >= until_s:
                del self._unconfirmed[number]
                commands += [] if answered else self._died(event)
        if self._options.deadlines and not self._failing:
            commands += self._overdue()
        return commands

    def _overdue(self) -> list[Command]:
        found, lost = self._not_joined(), self._lost_connections.overdue(self._clock_s)
        if lost is not None and not found:
            found = self._lost_connection(lost)
        return found or self._stuck()

    def _not_joined(self) -> list[Command]:
        limit_s = self._options.join_timeout_s
        returning = [rank for rank in self.ranks if rank.rejoining]
        waiting = returning if self._began else missing(self.ranks, self._sync)
        late = [rank for rank in waiting if self._clock_s - rank.since_s >= limit_s and rank.kill_reason is None]
        if not late or not (self._began or self._clock_s >= limit_s):
            return []
        if self._broker_listens and self._sync is None:
            return self._broker_hung(limit_s)
        n_killed = sum(rank.kill_reason is not None for rank in self.ranks)
        if self._may_restart(n_killed + len(late)) and all(rank.pid is not None for rank in late):
            for rank in late:
                rank.kill_reason = ("not_joined", f"{rank.label} has not joined within {limit_s:g} s, --join-timeout")
            return [Kill(rank.host.index, rank.number) for rank in late]
        facts: FoundFacts = {"missing": [rank.number for rank in waiting]}
        reason = f"{join_status(self.ranks, waiting)} (after {limit_s:g} s, --join-timeout){self._budget_note()}"
        detail = "\n".join(rank.absence for rank in waiting)
        return self._fail("not_joined", late[0].number, reason, facts, True, detail)

    def _lost_connection(self, lost: PeerLost) -> list[Command]:
        """Handle an unexplained lost connection: restart a rank that has lost the broker, or let the run fail."""
        rank, has_lost_broker = self.ranks[lost.rank], lost.rank == lost.peer
        message, facts = self._lost_connections.describe(lost, self._states.get(lost.rank))
        if has_lost_broker and self._may_restart() and rank.pid is not None:
            rank.kill_reason = ("peer_lost", message)
            return [Kill(rank.host.index, rank.number)]
        return self._fail("peer_lost", lost.rank, message, facts, has_lost_broker)

    def _note_sync(self, sync: Sync) -> list[Command]:
        self._sync = sync
        self._broker_idle.moved()
        if (sync.last or sync.phase == Phase.ENDING.value) and not self._is_ending:
            self._ends()
        for sip in sync.sips:
            self.ranks[sip.rank].note(sip)
        if not self._options.deadlines or self._failing:
            return []
        limit_s = self._options.progress_timeout_s
        running = [self.ranks[sip.rank] for sip in sync.sips if sip.state in ("starting", "running")]
        quiet = {rank.number for rank in running if rank.idle.idle_s > limit_s and rank.runs_as_known(sync)}
        # A rank must be quiet in two answers in a row: a single quiet answer may mean that the broker was suspended.
        hung, self._idle = sorted(quiet & self._idle), quiet
        # The position of the code is requested first, since the process is killed afterwards.
        return [RequestPosition(rank) for rank in hung]

    def _position(self, fact: Position) -> list[Command]:
        rank, sip = self.ranks[fact.rank], self.ranks[fact.rank].last
        if fact.rank not in self._idle or self._failing or rank.kill_reason is not None or sip is None:
            return []
        state = self._states.get(rank.number)
        message, facts = hang_of(rank, sip, fact, state.description if state else None, self._folder)
        rank.kill_reason = ("hung", message)
        if self._may_restart():
            return [Kill(rank.host.index, rank.number)]
        failed = self._fail("hung", rank.number, message + self._budget_note(), facts, with_log=True)
        return [*failed, Lost(rank.number, "hung")]

    def _stuck(self) -> list[Command]:
        """Let the run fail if the broker answers no ``SyncRequest``, or a SIP sends no result at the end."""
        limit_s = self._options.progress_timeout_s
        if self._broker_listens and self._broker_idle.idle_s >= limit_s + GRACE_S and self._began:
            return self._broker_hung(limit_s)
        silent = [rank for rank in self.ranks if not rank.result_received and rank.idle.idle_s >= limit_s]
        if self._is_ending and silent:
            rank = silent[0]
            message = f"{rank.label} has sent no result for {limit_s:g} s at the end"
            return self._fail("hung", rank.number, message, {"host": rank.host.name, "pid": rank.pid})
        return []

    def _ends(self) -> None:
        """Restart the deadline for results, which runs from the last result or from the end of the simulation."""
        self._is_ending = True
        for rank in self.ranks:
            rank.idle.moved()

    def _broker_hung(self, limit_s: float) -> list[Command]:
        what = f"the broker (pid {self._broker_pid}) has not answered for {limit_s:g} s"
        return self._fail("hung", None, what, {"pid": self._broker_pid}, with_log=True)

    # --- the end ---

    def _fail(
        self,
        kind: str,
        rank: int | None,
        message: str,
        facts: FoundFacts | None = None,
        with_log: bool = False,
        detail: str = "",
    ) -> list[Command]:
        self.failed()
        return [Fail(RunError(kind, rank, message, detail, facts or {}), with_log)]
