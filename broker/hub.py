"""The broker's decisions: who joins, who may run, when the run ends and what a failure does. Pure.

``Hub.handle(sender, message)`` answers with the messages to send. The shells around it carry bytes
(``broker.process`` over some mail, the ``inproc`` engine by function calls); both use this one code path. A SIP is
sent to, and heard, under the address of its present incarnation; what an earlier one has said and comes late is
passed over.
"""

from collections.abc import Iterable
from enum import Enum

from broker.ids import LAUNCHER, Channel, split_address
from broker.membership import Membership
from broker.sync.explain import explain
from broker.sync.timesync import ProtocolError, Quiescent, TimeSync, least
from broker.wire import (
    Abort,
    ConnectionLost,
    Deadlock,
    Dump,
    DumpRequest,
    End,
    Failed,
    Finished,
    Join,
    Leave,
    Lost,
    Message,
    PeerLost,
    Progress,
    RankFailed,
    RankResult,
    Refused,
    Rejoined,
    Report,
    Restart,
    Result,
    RevokeGrant,
    RunStarted,
    Start,
    Status,
    StatusRequest,
    Stop,
    Sync,
    ToBroker,
)

Out = list[tuple[int, Message]]


class Phase(Enum):
    """Where a run stands; it only moves down this list, but for a SIP that is started again: then it runs once more."""

    JOINING = "joining"
    RUNNING = "running"
    DUMPING = "dumping"
    ENDING = "ending"
    ABORTING = "aborting"
    DONE = "done"


class Hub:
    """One run of ``size`` SIPs. The only writer of its phase, membership and time synchronisation."""

    def __init__(self, size: int, channels: list[Channel], reactions_ps: list[int] | None = None) -> None:
        self._size = size
        self.phase = Phase.JOINING
        self._membership = Membership(size)
        self.timesync = TimeSync(size, channels, reactions_ps)
        self._undecided = False
        self._now_ns = 0
        self._began_ns = 0
        self._dumps: dict[int, bytes] = {}
        self._owing: set[int] = set()
        self._asked: set[int] = set()
        self._early: dict[int, Join] = {}

    def handle(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one fact and answer with what must be sent: :meth:`take`, then :meth:`decide`."""
        return self.take(sender, message, now_ns) + self.decide()

    def take(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one fact; what it demands at once, as (destination, message). ``now_ns`` is host time.

        A fact that cannot be true ends the run as an internal failure that names the sender; it never raises.
        """
        self._now_ns = now_ns
        self._began_ns = self._began_ns or now_ns
        rank, incarnation = split_address(sender) if sender >= 0 else (sender, 0)
        if incarnation != self._membership.incarnation(rank):
            return self._stale_sender(sender, incarnation > self._membership.incarnation(rank), message)
        try:
            return self._dispatch(rank, message)
        except ProtocolError as error:
            return self._fail(rank, Failed("internal", str(error), "", 0))

    def _stale_sender(self, sender: int, is_early: bool, message: ToBroker) -> Out:
        """From a process that another one has replaced, or that will be told of: the launcher's word may come later."""
        if not is_early:
            # It may be well and only cut off from the launcher: it must not go on, nor write on in its log.
            return [(sender, Refused(f"rank {split_address(sender)[0]} is simulated by another process now"))]
        if isinstance(message, Join):
            self._early[sender] = message
        return []

    def _dispatch(self, sender: int, message: ToBroker) -> Out:
        match message:
            case Report():
                return self._report(sender, message)
            case Join():
                return self._join(sender, message)
            case Progress():
                return self._progress(sender)
            case Dump():
                return self._dump(sender, message)
            case Result():
                return self._result(sender, message)
            case Failed():
                return self._fail(sender, message)
            case ConnectionLost():
                return self._cut_off(sender, message)
            case _ if sender != LAUNCHER:
                raise ProtocolError(f"SIP {sender} said {type(message).__name__}, which is for the launcher to say")
            case _:
                return self._told_by_launcher(message)

    def _told_by_launcher(self, message: Message) -> Out:
        match message:
            case Lost():
                return self._lost(message)
            case Restart():
                return self._restart(message)
            case Stop():
                return self._abort(message.reason)
            case StatusRequest():
                return [(LAUNCHER, self.status())]
            case _:
                return [(LAUNCHER, self.sync(self._now_ns))]

    def _join(self, sender: int, join: Join) -> Out:
        if sender < 0:
            raise ProtocolError(f"rank {join.rank} joined under the name of {sender}, who is no SIP")
        if sender != join.rank:
            return [(sender, Refused(f"rank {join.rank} joined under the name of rank {sender}"))]
        reason = self._membership.join(join)
        if reason is not None:
            return [
                (self._at(sender), Refused(reason)),
                (LAUNCHER, RankFailed(join.rank, "refused", reason, "", 0)),
                *self._abort(reason),
            ]
        if self.phase is Phase.DONE:
            return [(self._at(sender), Refused("the run is over"))]
        self._owing.add(join.rank)
        if self.phase is Phase.ABORTING:
            return [(self._at(sender), Abort("the run is already ending"))]
        self.timesync.waits.since_ns[join.rank] = self._now_ns
        self.timesync.note_logged(join.rank, join.logged, join.logged_ps)
        if self.phase is Phase.JOINING:
            return self._start() if self._membership.complete else []
        return self._rejoin(join)

    def _start(self) -> Out:
        self.phase = Phase.RUNNING
        return [(LAUNCHER, RunStarted()), *((self._at(rank), self._start_for(rank)) for rank in range(self._size))]

    def _rejoin(self, join: Join) -> Out:
        news = Rejoined(join.rank, join.endpoint, join.incarnation)
        others = [rank for rank in self._membership.joined if rank != join.rank]
        return [(self._at(join.rank), self._start_for(join.rank)), *((self._at(rank), news) for rank in others)]

    def _start_for(self, rank: int) -> Start:
        return Start(self._membership.endpoints(), self.timesync.taken_of(rank))

    def _report(self, sender: int, report: Report) -> Out:
        if self.phase is Phase.JOINING:
            raise ProtocolError(f"SIP {sender} reported before the run was started")
        if self.phase is not Phase.RUNNING:
            return []
        self.timesync.note(sender, report, self._now_ns)
        self._undecided = True
        return []

    def _cut_off(self, sender: int, news: ConnectionLost) -> Out:
        if not (0 <= sender < self._size and 0 <= news.peer < self._size):
            raise ProtocolError(f"SIP {sender} has lost SIP {news.peer}; SIPs are 0 to {self._size - 1}")
        if news.endpoint != self._membership.endpoints()[news.peer]:
            # Of a predecessor: who computes for long tells of it late.
            return []
        now = self._membership.incarnation
        return [(LAUNCHER, PeerLost(sender, news.peer, news.why, now(sender), now(news.peer)))]

    def live_addresses(self) -> list[tuple[int, int]]:
        """(rank, address) of all that have joined and must still be there."""
        if self.phase is Phase.DONE:
            return []
        return [(rank, self._membership.addresses[rank]) for rank in sorted(self._membership.joined)]

    def cannot_reach(self, rank: int) -> Out:
        """The process of a rank is not connected to the broker any more; whether it lives is the launcher's to know."""
        now = self._membership.incarnation(rank)
        return [(LAUNCHER, PeerLost(rank, rank, "its connection to the broker is lost", now, now))]

    def _progress(self, sender: int) -> Out:
        if not 0 <= sender < self._size:
            raise ProtocolError(f"SIP {sender} has got on; SIPs are 0 to {self._size - 1}")
        self.timesync.waits.moved_ns[sender] = self._now_ns
        return []

    @property
    def expects_reports(self) -> bool:
        """Whether a SIP runs, whose report may be here already and had better be taken before :meth:`decide`."""
        return self.timesync.running > 0

    def decide(self) -> Out:
        """What the reports since the last decision lead to, as (destination, message)."""
        if not self._undecided or self.phase is not Phase.RUNNING:
            return []
        self._undecided = False
        decision = self.timesync.decide()
        if not isinstance(decision, Quiescent):
            at = self._membership.addresses
            return [(at[rank], grant) for rank, grant in decision]
        last_words: Out = [(LAUNCHER, self.sync(self._now_ns, last=True))]
        if any(decision.waiting):
            self.phase = Phase.DUMPING
            return last_words + self._to(range(self._size), DumpRequest())
        self.phase = Phase.ENDING
        self._asked |= self._owing
        return last_words + self._to(self._owing, End())

    def _dump(self, sender: int, dump: Dump) -> Out:
        if self.phase is not Phase.DUMPING:
            return []
        if sender not in self._owing:
            raise ProtocolError(f"a dump by {sender}, who takes no part")
        self._dumps[sender] = dump.blob
        if len(self._dumps) < self._size:
            return []
        dumps = tuple(self._dumps[rank] for rank in range(self._size))
        return [(LAUNCHER, Deadlock(dumps)), *self._abort("deadlock")]

    def _result(self, sender: int, result: Result) -> Out:
        if sender not in self._owing:
            return []
        self._owing.discard(sender)
        if sender not in self._asked and self.phase is not Phase.ABORTING:
            raise ProtocolError(f"SIP {sender} gave its result before it was asked to")
        return [(LAUNCHER, RankResult(sender, result.blob, result.partial)), *self._finish_if_all_answered()]

    def _fail(self, sender: int, failed: Failed) -> Out:
        told = RankFailed(max(sender, 0), failed.kind, failed.message, failed.detail, failed.now_ps, failed.where)
        return [(LAUNCHER, told), *self._abort(f"SIP {sender} failed: {failed.message}")]

    def _lost(self, lost: Lost) -> Out:
        if lost.rank not in self._owing and self.phase is not Phase.JOINING:
            return []
        self._owing.discard(lost.rank)
        return [*self._abort(f"SIP {lost.rank} is lost: {lost.why}"), *self._finish_if_all_answered()]

    def _restart(self, restart: Restart) -> Out:
        """Its predecessor's answers count no more. Whoever has answered stays, to feed it from its log."""
        self._membership.forget(restart.rank, restart.incarnation)
        self._owing.discard(restart.rank)
        self._asked.discard(restart.rank)
        out = self._bring_back(restart.rank)
        early = self._early.pop(self._at(restart.rank), None)
        return out if early is None else out + self._join(restart.rank, early)

    def _bring_back(self, rank: int) -> Out:
        if self.phase in (Phase.ABORTING, Phase.DONE):
            return self._finish_if_all_answered()
        running = self.timesync.restart(rank)
        self.timesync.waits.restarted(rank, self._now_ns)
        if self.phase is not Phase.JOINING:
            self.phase = Phase.RUNNING
            self._dumps.clear()
        return self._to(running, RevokeGrant())

    def _abort(self, reason: str) -> Out:
        if self.phase in (Phase.ABORTING, Phase.DONE):
            return []
        told_last = self.phase in (Phase.DUMPING, Phase.ENDING)
        last_words: Out = [] if told_last else [(LAUNCHER, self.sync(self._now_ns, last=True))]
        asked = self.phase is Phase.ENDING
        self.phase = Phase.ABORTING
        aborts = [] if asked else self._to(self._owing, Abort(reason))
        return last_words + (aborts or self._finish_if_all_answered())

    def _finish_if_all_answered(self) -> Out:
        complete = self._membership.complete or self.phase is Phase.ABORTING
        if self._owing or self.phase not in (Phase.ENDING, Phase.ABORTING) or not complete:
            return []
        self.phase = Phase.DONE
        sync = self.timesync
        totals = Finished(sync.reports, sync.grants, sync.window_ps_sum, sync.windows)
        return [(LAUNCHER, totals), *self._to(self._membership.joined, Leave())]

    def status(self) -> Status:
        """How far the run is."""
        sync = self.timesync
        now_ps = least(*(sync.next_event_bound_ps(rank) for rank in range(self._size))) or 0
        return Status(len(self._membership.joined), now_ps, sync.grants)

    def sync(self, now_ns: int, last: bool = False) -> Sync:
        """Who waits for whom at ``now_ns``."""
        return explain(self.timesync, self._membership, self.phase.value, self._began_ns, now_ns, last)

    def _at(self, rank: int) -> int:
        return self._membership.addresses[rank] if 0 <= rank < self._size else rank

    def _to(self, ranks: Iterable[int], message: Message) -> Out:
        return [(self._membership.addresses[rank], message) for rank in sorted(ranks)]
