"""The broker's decisions: who joins, who may run, when the run ends and what a failure does. Pure.

``Hub.handle(sender, message)`` answers with the messages to send. The shells around it carry bytes
(``broker.process`` over some mail, the ``inproc`` engine by function calls); both use this one code path.
"""

from enum import Enum

from broker.explain import explain
from broker.membership import Membership
from broker.terms import LAUNCHER, Channel
from broker.timesync import ProtocolError, Quiet, TimeSync, least
from broker.wire import (
    Abort,
    AskDump,
    AskStatus,
    AskSync,
    CutOff,
    Deadlock,
    Dump,
    End,
    Failed,
    Finished,
    Join,
    Lost,
    Message,
    Progress,
    RankFailed,
    RankResult,
    Refused,
    Report,
    Restart,
    Result,
    Start,
    Started,
    Status,
    Stop,
    Sync,
    ToBroker,
)

Out = list[tuple[int, Message]]


class Phase(Enum):
    """Where a run stands; it only moves down this list."""

    JOINING = "joining"
    RUNNING = "running"
    DUMPING = "dumping"
    ENDING = "ending"
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

    def handle(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one fact and answer with what must be sent: :meth:`take`, then :meth:`decide`."""
        return self.take(sender, message, now_ns) + self.decide()

    def take(self, sender: int, message: ToBroker, now_ns: int = 0) -> Out:
        """Take one fact; what it demands at once, as (destination, message). ``now_ns`` is host time.

        A fact that cannot be true ends the run as an internal failure that names the sender; it never raises.
        """
        self._now_ns = now_ns
        self._began_ns = self._began_ns or now_ns
        try:
            return self._dispatch(sender, message)
        except ProtocolError as error:
            return self._fail(sender, Failed("internal", str(error), "", 0))

    def _dispatch(self, sender: int, message: ToBroker) -> Out:
        match message:
            case Report():
                return self._report(sender, message)
            case Join():
                return self._join(sender, message)
            case Dump():
                return self._dump(sender, message)
            case Result():
                return self._result(sender, message)
            case Failed():
                return self._fail(sender, message)
            case Lost():
                return self._lost(message)
            case Stop():
                return self._abort(message.reason)
            case Progress() | CutOff() | Restart():
                return []
            case AskStatus():
                return [(LAUNCHER, self.status())]
            case AskSync():
                return [(LAUNCHER, self.sync(self._now_ns))]

    def _join(self, sender: int, join: Join) -> Out:
        if sender != join.rank:
            return [(sender, Refused(f"rank {join.rank} joined under the name of rank {sender}"))]
        reason = self._membership.join(join)
        if reason is not None:
            return [
                (sender, Refused(reason)),
                (LAUNCHER, RankFailed(join.rank, "refused", reason, "", 0)),
                *self._abort(reason),
            ]
        self._owing.add(join.rank)
        if self.phase is not Phase.JOINING:
            return [(sender, Abort("the run is already ending"))]
        if not self._membership.complete:
            return []
        self.phase = Phase.RUNNING
        start = Start(self._membership.endpoints())
        return [(LAUNCHER, Started()), *((rank, start) for rank in range(self._size))]

    def _report(self, sender: int, report: Report) -> Out:
        if self.phase is Phase.JOINING:
            raise ProtocolError(f"SIP {sender} reported before the run was started")
        if self.phase is not Phase.RUNNING:
            return []
        self.timesync.note(sender, report, self._now_ns)
        self._undecided = True
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
        if not isinstance(decision, Quiet):
            return list[tuple[int, Message]](decision)
        last_words: Out = [(LAUNCHER, self.sync(self._now_ns, last=True))]
        if any(decision.waiting):
            self.phase = Phase.DUMPING
            return last_words + self._to_all(AskDump())
        self.phase = Phase.ENDING
        return last_words + self._to_all(End())

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
        if self.phase is not Phase.ENDING:
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

    def _abort(self, reason: str) -> Out:
        if self.phase in (Phase.ENDING, Phase.DONE):
            return []
        last_words: Out = [] if self.phase is Phase.DUMPING else [(LAUNCHER, self.sync(self._now_ns, last=True))]
        self.phase = Phase.ENDING
        aborts: Out = [(rank, Abort(reason)) for rank in sorted(self._owing)]
        return last_words + (aborts or self._finish_if_all_answered())

    def _finish_if_all_answered(self) -> Out:
        if self._owing or self.phase is not Phase.ENDING:
            return []
        self.phase = Phase.DONE
        sync = self.timesync
        return [(LAUNCHER, Finished(sync.reports, sync.grants, sync.window_ps_sum, sync.windows))]

    def status(self) -> Status:
        """How far the run is."""
        sync = self.timesync
        now_ps = least(*(sync.acts_ps(rank) for rank in range(self._size))) or 0
        return Status(len(self._membership.joined), now_ps, sync.grants)

    def sync(self, now_ns: int, last: bool = False) -> Sync:
        """Who waits for whom at ``now_ns``."""
        return explain(self.timesync, self._membership, self.phase.value, self._began_ns, now_ns, last)

    def _to_all(self, message: Message) -> Out:
        return [(rank, message) for rank in range(self._size)]
