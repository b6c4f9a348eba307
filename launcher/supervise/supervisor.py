"""What to do about what happens to the processes and hosts of a run. Pure: facts and times in, commands out.

Who died first is the cause. Within the budget of ``--max-restarts``, which is one for the whole run, a rank that dies
is started again as its next incarnation, where it was or on the emptiest living host; the broker is told before that.
Beyond it, and when the broker or the server beside it dies, the run fails. Whoever is silent for too long, in joining
or in getting on, counts as dead and is named. What simulations do wrong is the broker's to tell and no matter here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from broker import wire
from broker.hub import Phase
from broker.wire import Lost, PeerLost, RankResult, Restart, Sync, ToLauncher
from launcher.processes.fork_server import Ended, NotStarted, ProcessStarted
from launcher.processes.names import BROKER_NAME, rank_of, sip_name
from launcher.report.outcome import RunError
from launcher.supervise.facts import (
    HERE,
    BrokerListens,
    Command,
    Fact,
    Fail,
    HostGone,
    HostJoined,
    HostSpec,
    HostStates,
    Kill,
    ProcessNews,
    Revive,
    Say,
    ServerGone,
    Start,
    Tell,
    Tick,
    describe_exit,
    status_facts,
)
from launcher.supervise.placement import next_host, place_blockwise
from launcher.supervise.ranks import Host, Rank, Rules, missing
from sipsim.units import format_time_ps

GRACE_S = 1.0
"""For last words that are on their way: of who left without a word, and of everybody after a failure."""
EXPLAIN_S = 3.0
"""For a lost connection to be explained by a dead process or host."""
LONGEST_STEP_S = 1.0
"""The most by which time goes on from one fact to the next: a launcher that was suspended has missed nothing."""


class Supervisor:
    """One run's. ``over`` says when there is nothing left to wait for."""

    def __init__(self, rules: Rules, hosts: Sequence[HostSpec], now_s: float) -> None:
        self._rules = rules
        self.sites = [Host(index, spec.name, spec.slots) for index, spec in enumerate(hosts)]
        places = place_blockwise(rules.n_sips, [spec.slots for spec in hosts])
        self.ranks = [Rank(rank, self.sites[host]) for rank, host in enumerate(places)]
        self.restarts = 0
        self.finished = False
        self._last_s = now_s
        self._clock_s = 0.0
        self._broker_pid = 0
        self._broker_listens = False
        self._began = False
        self._failing = False
        self._give_up_s: float | None = None
        self._silent: dict[str, tuple[float, Ended]] = {}
        self._unexplained: dict[PeerLost, float] = {}
        self._sync: Sync | None = None
        self._sync_s = 0.0
        self._quiet: set[int] = set()
        self._ending_s: float | None = None
        self._words: dict[int, str] = {}

    # --- what others ask ---

    @property
    def over(self) -> bool:
        """The broker has finished, or somebody who should answer has had time enough."""
        return self.finished or (self._give_up_s is not None and self._clock_s >= self._give_up_s)

    def failed(self) -> list[Command]:
        """The run has failed for whatever reason: nobody is started again, and answers get a moment."""
        self._failing = True
        if self._give_up_s is None:
            self._give_up_s = self._clock_s + GRACE_S
        return []

    # --- facts ---

    def handle(self, fact: Fact, now_s: float) -> list[Command]:
        """Take one fact that is known at ``now_s``, on any clock that does not go back."""
        self._advance(now_s)
        match fact:
            case ProcessNews():
                return self._news(fact)
            case HostJoined():
                return self._host_joined(fact)
            case HostGone():
                return self._host_gone(fact)
            case BrokerListens():
                self._broker_listens = True
                return self._start_all()
            case ServerGone():
                told = f"the server that starts the processes (pid {fact.pid}) {describe_exit(fact.status)}"
                self._give_up_s = self._clock_s
                return self._fail("process_died", None, told, status_facts(fact.status))
            case HostStates():
                self._words = fact.words
                return []
            case Tick():
                return self._tick()

    def _advance(self, now_s: float) -> None:
        self._clock_s += min(max(now_s - self._last_s, 0.0), LONGEST_STEP_S)
        self._last_s = max(now_s, self._last_s)

    def note(self, message: ToLauncher, now_s: float) -> list[Command]:
        """Take one message of the broker; ``Outcome`` takes it too."""
        self._advance(now_s)
        match message:
            case wire.RunStarted():
                self._began = True
            case wire.Finished():
                self.finished = True
            case RankResult():
                self.ranks[message.rank].answered = True
                self._ending_s = self._clock_s
            case PeerLost():
                return self._peer_lost(message)
            case Sync():
                return self._note_sync(message)
        return []

    # --- processes ---

    def _news(self, at: ProcessNews) -> list[Command]:
        news = at.news
        if not self._may_tell(
            at.host, news.name if isinstance(news, ProcessStarted | Ended | NotStarted) else BROKER_NAME
        ):
            return []
        match news:
            case ProcessStarted():
                return self._started(news)
            case Ended():
                return self._ended(news)
            case NotStarted():
                rank = rank_of(news.name)
                what = "the broker" if rank is None else f"rank {rank}"
                where = self.ranks[rank].site.on if rank is not None else ""
                return self._fail("process_died", rank, f"{what} cannot be started{where}: {news.why}")
        return []

    def _may_tell(self, host: int, name: str) -> bool:
        """A host's agent tells of the ranks that run there now, and of nobody else."""
        return host == HERE or any(sip_name(r.number) == name for r in self.ranks if r.site.index == host)

    def _started(self, news: ProcessStarted) -> list[Command]:
        number = rank_of(news.name)
        if number is None:
            self._broker_pid = news.pid
        else:
            self.ranks[number].started(news.incarnation, news.pid)
        return []

    def _ended(self, news: Ended) -> list[Command]:
        number = rank_of(news.name)
        if number is not None and not self.ranks[number].is_now(news.incarnation, news.pid):
            return []
        if news.status == 0:
            # Its last words may still be on their way through the broker.
            self._silent[news.name] = (self._clock_s + GRACE_S, news)
            return []
        return self._died(news)

    def _died(self, news: Ended) -> list[Command]:
        number = rank_of(news.name)
        facts = {"pid": news.pid, **status_facts(news.status)}
        if number is None:
            told = f"the broker (pid {news.pid}) {describe_exit(news.status)}"
            return self._fail("process_died", None, told, facts, BROKER_NAME)
        rank = self.ranks[number]
        why = describe_exit(news.status)
        rank.is_dead, rank.pid = True, None
        facts |= {"host": rank.site.name, "incarnation": rank.incarnation}
        kind, told = rank.kill_reason or ("process_died", f"rank {number} (pid {news.pid}{rank.site.on}) {why}")
        if self._may_restart():
            self.restarts += 1
            return [self._say_again(told), *self._again([rank])]
        # Why a run fails that others of its kind would have survived.
        failed = self._fail(kind, number, told + self._used_up(), facts, news.name)
        return [*failed, Tell(Lost(number, why))]

    def _say_again(self, told: str) -> Command:
        return Say(f"{told}; started again ({self.restarts} of --max-restarts {self._rules.max_restarts})")

    def _may_restart(self) -> bool:
        return not self._failing and self.restarts < self._rules.max_restarts

    def _used_up(self) -> str:
        used = self.restarts and not self._failing
        return f"; --max-restarts {self._rules.max_restarts} is used up" if used else ""

    def _again(self, ranks: list[Rank]) -> list[Command]:
        """The next incarnation of each, the broker told of all of them first."""
        # It has the time that it takes, and then to answer.
        self._ending_s = None
        for rank in ranks:
            rank.next_incarnation(self._clock_s)
            self._silent.pop(sip_name(rank.number), None)
        told: list[Command] = [Tell(Restart(rank.number, rank.incarnation)) for rank in ranks]
        return told + [command for rank in ranks for command in self._start(rank)]

    def _start_all(self) -> list[Command]:
        return [command for rank in self.ranks for command in self._start(rank)]

    def _start(self, rank: Rank) -> list[Command]:
        if rank.ordered or not self._broker_listens or not rank.site.joined or self._failing:
            return []
        rank.ordered, rank.since_s = True, self._clock_s
        return [Start(rank.site.index, rank.number, rank.incarnation)]

    # --- hosts ---

    def _host_joined(self, fact: HostJoined) -> list[Command]:
        site = self.sites[fact.host]
        site.joined, site.gone, site.name = True, False, fact.name or site.name
        return self._start_all()

    def _host_gone(self, fact: HostGone) -> list[Command]:
        site = self.sites[fact.host]
        was_joined, was_awaited = site.joined, site.awaited
        site.joined, site.awaited = False, False
        hit = [rank for rank in self.ranks if rank.site is site and not (rank.answered and self.finished)]
        for rank in hit:
            rank.is_dead, rank.pid = True, None
        if not was_joined and not was_awaited:
            if fact.can_return and self._may_restart():
                self.restarts += 1
                site.awaited, site.since_s = True, self._clock_s
                return [self._say_again(fact.why), Revive(site.index)]
            site.gone = True
            return self._fail(fact.kind, None, fact.why, {"host": site.name})
        lost: list[Command] = [Tell(Lost(rank.number, fact.why)) for rank in hit]
        others = [other.index for other in self.sites if other.joined]
        can = was_awaited or self._may_restart()
        if not (can and (fact.can_return or others)) or self._failing:
            site.gone = True
            tail = self._used_up() if not can else "; no other host is left" if self._rules.max_restarts else ""
            ranks = ", ".join(str(rank.number) for rank in hit) or "none"
            facts = {"host": site.name, "ranks": [rank.number for rank in hit]}
            return [*self._fail(fact.kind, None, f"{fact.why}; ranks that ran there: {ranks}{tail}", facts), *lost]
        self.restarts += not was_awaited
        if fact.can_return and not was_awaited:
            site.awaited, site.since_s = True, self._clock_s
            return [self._say_again(fact.why), Revive(site.index), *self._again(hit)]
        site.gone = True
        moved = self._move(hit, others, told=was_awaited)
        return [*([] if was_awaited else [self._say_again(fact.why)]), *moved]

    def _move(self, ranks: list[Rank], others: list[int], told: bool) -> list[Command]:
        on = Counter(rank.site.index for rank in self.ranks if rank not in ranks)
        for rank in ranks:
            host = next_host(others, {site.index: site.slots for site in self.sites}, on)
            assert host is not None
            rank.site = self.sites[host]
            on[host] += 1
        if told:
            return [command for rank in ranks for command in self._start(rank)]
        return self._again(ranks)

    # --- deadlines ---

    def _tick(self) -> list[Command]:
        commands: list[Command] = []
        if self.finished:
            return commands
        for name, (until_s, news) in list(self._silent.items()):
            number = rank_of(name)
            answered = number is not None and self.ranks[number].answered
            if answered or self._clock_s >= until_s:
                del self._silent[name]
                commands += [] if answered else self._died(news)
        if self._rules.deadlines and not self._failing:
            commands += self._overdue()
        return commands

    def _overdue(self) -> list[Command]:
        found = self._not_joined()
        for lost, until_s in list(self._unexplained.items()):
            explained = self._is_explained(lost)
            if explained or self._clock_s >= until_s:
                del self._unexplained[lost]
                found = found or ([] if explained else self._peer_is_lost(lost.rank, lost.peer, lost.why))
        return found or self._stuck()

    def _not_joined(self) -> list[Command]:
        limit_s = self._rules.join_timeout_s
        returning = [rank for rank in self.ranks if rank.returning]
        waiting = returning if self._began else missing(self.ranks, self._sync)
        late = [rank for rank in waiting if self._clock_s - rank.since_s >= limit_s]
        if not late or not (self._began or self._clock_s >= limit_s):
            return []
        if self._broker_listens and self._sync is None:
            return self._broker_is_silent(limit_s)
        here = [str(rank.number) for rank in self.ranks if rank not in waiting]
        told = (
            f"joined {', '.join(here) or 'none'} of {len(self.ranks)}; "
            f"missing: {', '.join(f'{rank.number}{rank.site.on}' for rank in waiting)}"
        )
        facts = {"missing": [rank.number for rank in waiting]}
        why = f"{told} (after {limit_s:g} s, --join-timeout)"
        log = sip_name(late[0].number)
        return self._fail("not_joined", late[0].number, why, facts, log, "\n".join(r.absence for r in waiting))

    def _peer_lost(self, lost: PeerLost) -> list[Command]:
        if not self._is_explained(lost) and not self._failing:
            self._unexplained.setdefault(lost, self._clock_s + EXPLAIN_S)
        return []

    def _is_explained(self, lost: PeerLost) -> bool:
        """Whether one of the two processes whose connection it was is known to be gone."""
        rank, peer = self.ranks[lost.rank], self.ranks[lost.peer]
        ends = ((rank, lost.incarnation), (peer, lost.peer_incarnation))
        return any(end.incarnation != incarnation or end.is_dead for end, incarnation in ends)

    def _peer_is_lost(self, rank: int, peer: int, why: str) -> list[Command]:
        mine, other = self.ranks[rank], self.ranks[peer]
        what = f"rank {rank}{mine.site.on} has lost its connection to rank {peer}{other.site.on}"
        if rank == peer:
            told = f"{mine.who} is gone: {why}, and no end of its process or host is known"
            return self._fail("peer_lost", rank, told, {"host": mine.site.name}, sip_name(rank))
        told = f"{what}, and no end of a process or host is known that explains it: {why}"
        return self._fail("peer_lost", rank, told, {"peer": peer, "host": mine.site.name})

    def _note_sync(self, sync: Sync) -> list[Command]:
        self._sync, self._sync_s = sync, self._clock_s
        if (sync.last or sync.phase == Phase.ENDING.value) and self._ending_s is None:
            self._ending_s = self._clock_s
        for sip in sync.sips:
            self.ranks[sip.rank].note(sip)
        if not self._rules.deadlines or self._failing:
            return []
        limit_ns = self._rules.progress_timeout_s * 1e9
        quiet = {s.rank for s in sync.sips if s.state in ("starting", "running") and s.quiet_ns > limit_ns}
        quiet = {rank for rank in quiet if self.ranks[rank].runs_as_known(sync)}
        # Twice in a row, for it may be the broker who was asleep.
        hung, self._quiet = sorted(quiet & self._quiet), quiet
        return [command for rank in hung for command in self._hung(self.ranks[rank])]

    def _hung(self, rank: Rank) -> list[Command]:
        if rank.kill_reason is not None:
            return []
        sip = rank.last
        assert sip is not None
        granted = "never" if sip.horizon_ps is None else format_time_ps(sip.horizon_ps)
        doing = self._words.get(rank.number)
        told = (
            f"{rank.who} has not got on for {sip.quiet_ns / 1e9:.1f} s at "
            f"{format_time_ps(sip.now_ps)}, granted to {granted}" + (f"; its process {doing}" if doing else "")
        )
        facts = {"host": rank.site.name, "pid": rank.pid, "time_ps": sip.now_ps, "granted_ps": sip.horizon_ps}
        rank.kill_reason = ("hung", told)
        if self._may_restart():
            return [Kill(rank.site.index, rank.number)]
        failed = self._fail("hung", rank.number, told + self._used_up(), facts, sip_name(rank.number))
        return [*failed, Tell(Lost(rank.number, "hung"))]

    def _stuck(self) -> list[Command]:
        """The broker answers somebody else's questions every second; and to the last question a SIP answers soon."""
        limit_s = self._rules.progress_timeout_s
        if self._broker_listens and self._clock_s - max(self._sync_s, 0.0) >= limit_s + GRACE_S and self._began:
            return self._broker_is_silent(limit_s)
        if self._ending_s is not None and self._clock_s - self._ending_s >= limit_s:
            owing = [rank for rank in self.ranks if not rank.answered]
            if owing:
                rank = owing[0]
                told = f"{rank.who} has not answered at the end for {limit_s:g} s"
                return self._fail("hung", rank.number, told, {"host": rank.site.name, "pid": rank.pid})
        return []

    def _broker_is_silent(self, limit_s: float) -> list[Command]:
        told = f"the broker (pid {self._broker_pid}) has not answered for {limit_s:g} s"
        return self._fail("hung", None, told, {"pid": self._broker_pid}, BROKER_NAME)

    # --- the end ---

    def _fail(
        self,
        kind: str,
        rank: int | None,
        message: str,
        facts: Mapping[str, object] | None = None,
        log: str = "",
        detail: str = "",
    ) -> list[Command]:
        self.failed()
        return [Fail(RunError(kind, rank, message, detail, dict(facts or {})), log)]
