"""The broker's decisions: joining, grants, the end of the run, and what a failure causes. Pure.

``Hub.handle(sender, message)`` returns the messages to send. ``broker.process`` calls a hub for mail between processes,
the ``inproc`` engine for mail within one process. A SIP is addressed by the mail address of its present incarnation;
messages of stale incarnations are dropped.
"""

from collections.abc import Iterable
from enum import Enum

from broker.ids import LAUNCHER, MAX_RANK, Channel, split_address
from broker.membership import Membership
from broker.sync.timesync import ProtocolError, Quiescent, TimeSync, least
from broker.sync.waits import explain
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
    RankRecord,
    RankResult,
    Record,
    Refused,
    Rejoined,
    Report,
    Restart,
    Result,
    RevokeGrant,
    RunStarted,
    SimTimeReached,
    Start,
    Status,
    StatusRequest,
    Stop,
    Sync,
    ToBroker,
)

BAD_MESSAGE = "bad_message"
"""The failure kind of ``sipsim.core.errors.BadMessage``."""
Out = list[tuple[int, Message]]


class Phase(Enum):
    """The phase of a run. Phases follow in this order, except that the restart of a SIP returns to ``RUNNING``."""

    JOINING = "joining"
    RUNNING = "running"
    DUMPING = "dumping"
    ENDING = "ending"
    ABORTING = "aborting"
    DONE = "done"


class Hub:
    """One run of ``size`` SIPs; the only writer of its phase, membership and time synchronisation.

    ``limit_ps``: the run stops when every SIP has run all events before that time; None means no limit.
    """

    def __init__(
        self,
        size: int,
        channels: list[Channel],
        reactions_ps: list[int] | None = None,
        limit_ps: int | None = None,
    ) -> None:
        self._size = size
        self.phase = Phase.JOINING
        self._membership = Membership(size)
        self.timesync = TimeSync(size, channels, reactions_ps, limit_ps)
        self._limit_ps = limit_ps
        self._reached_limit = False
        # Simulated time and host time of the last ``Progress`` of each SIP.
        self._progress_of = [(0, 0)] * size
        self._undecided = False
        self._now_ns = 0
        self._began_ns = 0
        # Failures that end the run once all SIPs have run up to the time of the failure.
        self._deferred: dict[int, Failed] = {}
        self._dumps: dict[int, bytes] = {}
        self._unanswered: set[int] = set()
        self._end_sent_to: set[int] = set()
        # Joins of incarnations that the launcher has not announced yet, by address.
        self._early: dict[int, Join] = {}

    def handle(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one message and return the messages to send: :meth:`take`, then :meth:`decide`."""
        return self.take(sender, message, now_ns) + self.decide()

    def take(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one message; return the messages to send at once, as (destination, message). ``now_ns``: host time.

        Never raises: a message that contradicts earlier messages ends the run with a failure that names the sender.
        """
        self._now_ns = now_ns
        self._began_ns = self._began_ns or now_ns
        rank, incarnation = split_address(sender) if sender > MAX_RANK else (sender, 0)
        if incarnation != self._membership.incarnation(rank):
            return self._stale_sender(sender, incarnation > self._membership.incarnation(rank), message)
        try:
            return self._dispatch(rank, message)
        except ProtocolError as error:
            return self._fail(rank, Failed(BAD_MESSAGE, str(error), error.detail, 0))

    def take_malformed(self, sender: int, why: str, now_ns: int = 0) -> Out:
        """Take bytes that are not a message, and end the run with a failure. ``why``: the reason, for the message."""
        rank = split_address(sender)[0]
        join = self._membership.joined.get(rank) if sender >= 0 else None
        who = "the launcher" if sender < 0 else f"rank {rank}" + (f" (pid {join.pid} on {join.host})" if join else "")
        return self.take(
            sender, Failed(BAD_MESSAGE, f"{who} has sent the broker a malformed message: {why}", "", 0), now_ns
        )

    def _stale_sender(self, sender: int, is_early: bool, message: ToBroker) -> Out:
        """Refuse a stale incarnation, or store the ``Join`` of an incarnation that no ``Restart`` has announced yet."""
        if not is_early:
            # The old process may have lost only its connection; it must neither continue nor write its log.
            return [(sender, Refused(f"another process simulates rank {split_address(sender)[0]} now"))]
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
                return self._progress(sender, message)
            case Record():
                return self._record(sender, message)
            case Dump():
                return self._dump(sender, message)
            case Result():
                return self._result(sender, message)
            case Failed():
                return self._fail(sender, message)
            case ConnectionLost():
                return self._connection_lost(sender, message)
            case _ if sender != LAUNCHER:
                raise ProtocolError(f"SIP {sender} sent {type(message).__name__}, which only the launcher may send")
            case _:
                return self._from_launcher(message)

    def _from_launcher(self, message: Message) -> Out:
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
            raise ProtocolError(f"rank {join.rank} joined from address {sender}, which is not the address of a SIP")
        if sender != join.rank:
            return [(sender, Refused(f"rank {join.rank} joined from the address of rank {sender}"))]
        reason = self._membership.join(join)
        if reason is not None:
            return [
                (self._address(sender), Refused(reason)),
                (LAUNCHER, RankFailed(join.rank, "refused", reason, "", 0)),
                *self._abort(reason),
            ]
        if self.phase is Phase.DONE:
            return [(self._address(sender), Refused("the run is over"))]
        self._unanswered.add(join.rank)
        if self.phase is Phase.ABORTING:
            return [(self._address(sender), Abort("the run is already ending"))]
        self.timesync.waits.since_ns[join.rank] = self._now_ns
        self.timesync.note_logged(join.rank, join.logged, join.logged_ps)
        if self.phase is Phase.JOINING:
            return self._start() if self._membership.complete else []
        return self._rejoin(join)

    def _start(self) -> Out:
        self.phase = Phase.RUNNING
        starts = [(self._address(rank), self._start_for(rank)) for rank in range(self._size)]
        return [(LAUNCHER, RunStarted()), *starts]

    def _rejoin(self, join: Join) -> Out:
        news = Rejoined(join.rank, join.endpoint, join.incarnation)
        others = [rank for rank in self._membership.joined if rank != join.rank]
        return [(self._address(join.rank), self._start_for(join.rank)), *self._to(others, news)]

    def _start_for(self, rank: int) -> Start:
        return Start(self._membership.endpoints(), self.timesync.taken_of(rank))

    def _report(self, sender: int, report: Report) -> Out:
        if self.phase is Phase.JOINING:
            raise ProtocolError(f"SIP {sender} sent a report before the run started")
        if self.phase is not Phase.RUNNING:
            return []
        self.timesync.note(sender, report, self._now_ns)
        self._undecided = True
        return []

    def _connection_lost(self, sender: int, news: ConnectionLost) -> Out:
        if not (0 <= sender < self._size and 0 <= news.peer < self._size):
            raise ProtocolError(f"SIP {sender} reports the loss of SIP {news.peer}, but SIPs are 0 to {self._size - 1}")
        if news.endpoint != self._membership.endpoints()[news.peer]:
            # The loss of an earlier incarnation, which a SIP in a long window reports late.
            return []
        incarnation = self._membership.incarnation
        return [(LAUNCHER, PeerLost(sender, news.peer, news.why, incarnation(sender), incarnation(news.peer)))]

    def live_addresses(self) -> list[tuple[int, int]]:
        """The (rank, mail address) of all SIPs that have joined and must still be connected."""
        if self.phase is Phase.DONE:
            return []
        return [(rank, self._membership.addresses[rank]) for rank in sorted(self._membership.joined)]

    def cannot_reach(self, rank: int) -> Out:
        """Report to the launcher that a rank is not connected; only the launcher knows whether its process runs."""
        incarnation = self._membership.incarnation(rank)
        why = "its connection to the broker is lost"
        return [(LAUNCHER, PeerLost(rank, rank, why, incarnation, incarnation))]

    def _progress(self, sender: int, progress: Progress) -> Out:
        if not 0 <= sender < self._size:
            raise ProtocolError(f"SIP {sender} reports progress, but SIPs are 0 to {self._size - 1}")
        self.timesync.waits.moved_ns[sender] = self._now_ns
        self._progress_of[sender] = (progress.now_ps, self._now_ns)
        return []

    def _record(self, sender: int, record: Record) -> Out:
        if not 0 <= sender < self._size:
            raise ProtocolError(f"SIP {sender} sent a record, but SIPs are 0 to {self._size - 1}")
        return [(LAUNCHER, RankRecord(sender, record.index, record.blob))]

    @property
    def expects_reports(self) -> bool:
        """Whether any SIP runs: a report may have arrived, which should be taken before :meth:`decide`."""
        return self.timesync.running > 0

    def decide(self) -> Out:
        """The messages to send after the reports since the last decision, as (destination, message)."""
        if not self._undecided or self.phase is not Phase.RUNNING:
            return []
        self._undecided = False
        decision = self.timesync.decide()
        if not isinstance(decision, Quiescent):
            addresses = self._membership.addresses
            return [(addresses[rank], grant) for rank, grant in decision]
        if self._deferred:
            return self._abort("a SIP failed")
        last_sync: Out = [(LAUNCHER, self.sync(self._now_ns, last=True))]
        self._reached_limit = decision.at_limit
        if any(decision.waiting) or decision.at_limit:
            self.phase = Phase.DUMPING
            return last_sync + self._to(range(self._size), DumpRequest())
        self.phase = Phase.ENDING
        self._end_sent_to |= self._unanswered
        return last_sync + self._to(self._unanswered, End())

    def _dump(self, sender: int, dump: Dump) -> Out:
        if self.phase is not Phase.DUMPING:
            return []
        if sender not in self._unanswered:
            raise ProtocolError(f"SIP {sender} sent a dump, but has not joined")
        self._dumps[sender] = dump.blob
        if len(self._dumps) < self._size:
            return []
        dumps = tuple(self._dumps[rank] for rank in range(self._size))
        if self._reached_limit and self._limit_ps is not None:
            return [(LAUNCHER, SimTimeReached(self._limit_ps, dumps)), *self._abort("simulated time is at its limit")]
        return [(LAUNCHER, Deadlock(dumps)), *self._abort("deadlock")]

    def _result(self, sender: int, result: Result) -> Out:
        if sender not in self._unanswered:
            return []
        self._unanswered.discard(sender)
        if sender not in self._end_sent_to and self.phase is not Phase.ABORTING:
            raise ProtocolError(f"SIP {sender} sent its result before End")
        return [(LAUNCHER, RankResult(sender, result.blob, result.partial)), *self._finish_if_all_answered()]

    def _fail(self, sender: int, failed: Failed) -> Out:
        is_member = sender < 0 or sender in self._membership.joined
        is_in_window = sender in self._membership.joined and self.timesync.is_running(sender)
        if failed.deferred and self.phase is Phase.RUNNING and is_in_window:
            self._deferred[sender] = failed
            self.timesync.stop_at(failed.now_ps + 1)
            return []
        out = [self._failure(sender, failed), *self._abort(f"SIP {sender} failed: {failed.message}")]
        refused = Refused("the run ends because this process has failed")
        return out if is_member else [*out, (self._address(sender), refused)]

    def _failure(self, sender: int, failed: Failed) -> tuple[int, Message]:
        rank = failed.blames if failed.blames is not None else sender if sender >= 0 else None
        join = self._membership.joined.get(rank) if rank is not None else None
        fields = failed.kind, failed.message, failed.detail, failed.now_ps, failed.where, join.host if join else ""
        return LAUNCHER, RankFailed(rank, *fields)

    def _first_deferred(self) -> Out:
        """The deferred failures at the earliest time. Later failures are dropped: their number depends on the mail."""
        first_ps = min([each.now_ps for each in self._deferred.values()], default=0)
        first = [(rank, each) for rank, each in sorted(self._deferred.items()) if each.now_ps == first_ps]
        return [self._failure(rank, each) for rank, each in first]

    def _lost(self, lost: Lost) -> Out:
        if lost.rank not in self._unanswered and self.phase is not Phase.JOINING:
            return []
        self._unanswered.discard(lost.rank)
        return [*self._abort(f"SIP {lost.rank} is lost: {lost.why}"), *self._finish_if_all_answered()]

    def _restart(self, restart: Restart) -> Out:
        """Replace the process of a SIP: discard its answers. SIPs that have answered still run, to resend packets."""
        self._membership.forget(restart.rank, restart.incarnation)
        self._unanswered.discard(restart.rank)
        self._end_sent_to.discard(restart.rank)
        self._progress_of[restart.rank] = (0, self._now_ns)
        self._deferred.pop(restart.rank, None)
        out = self._resume_with(restart.rank)
        early = self._early.pop(self._address(restart.rank), None)
        return out if early is None else out + self._join(restart.rank, early)

    def _resume_with(self, rank: int) -> Out:
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
        sent_last = self.phase in (Phase.DUMPING, Phase.ENDING)
        last_sync: Out = [] if sent_last else [(LAUNCHER, self.sync(self._now_ns, last=True))]
        end_sent = self.phase is Phase.ENDING
        self.phase = Phase.ABORTING
        aborts = [] if end_sent else self._to(self._unanswered, Abort(reason))
        return self._first_deferred() + last_sync + (aborts or self._finish_if_all_answered())

    def _finish_if_all_answered(self) -> Out:
        complete = self._membership.complete or self.phase is Phase.ABORTING
        if self._unanswered or self.phase not in (Phase.ENDING, Phase.ABORTING) or not complete:
            return []
        self.phase = Phase.DONE
        sync = self.timesync
        totals = Finished(sync.reports, sync.grants, sync.window_ps_sum, sync.windows)
        return [(LAUNCHER, totals), *self._to(self._membership.joined, Leave())]

    def status(self) -> Status:
        """The progress of the run."""
        sync = self.timesync
        now_ps = least(*(sync.next_event_bound_ps(rank) for rank in range(self._size))) or 0
        reported = self._progress_of
        reported_ps = sum(at_ps for at_ps, _ in reported) // self._size
        age_ns = self._now_ns - sum(at_ns or self._began_ns for _, at_ns in reported) // self._size
        return Status(len(self._membership.joined), now_ps, sync.grants, reported_ps, max(age_ns, 0))

    def sync(self, now_ns: int, last: bool = False) -> Sync:
        """The synchronisation state of every SIP at host time ``now_ns``: which SIP waits for which."""
        return explain(self.timesync, self._membership, self.phase.value, self._began_ns, now_ns, last)

    def _address(self, rank: int) -> int:
        return self._membership.addresses[rank] if 0 <= rank < self._size else rank

    def _to(self, ranks: Iterable[int], message: Message) -> Out:
        return [(self._membership.addresses[rank], message) for rank in sorted(ranks)]
