"""A member of a run: it joins, obeys the broker, runs the windows it is granted, and answers. No sockets, no hardware.

The engines hand it letters and a ``Mail`` to answer with; that is the whole difference between one process for all
SIPs and one for each. What it simulates is its subclass's business.
"""

from collections.abc import Callable
from time import perf_counter_ns

from msgspec.structs import replace

from broker.ids import BROKER
from broker.mail.base import Mail
from broker.wire import (
    Abort,
    BadFrame,
    Dump,
    DumpRequest,
    End,
    Failed,
    Grant,
    Join,
    Leave,
    Message,
    PacketBatch,
    Ping,
    Progress,
    Refused,
    Rejoined,
    Report,
    Result,
    RevokeGrant,
    Start,
    decode_for_sip,
    encode,
)
from sipsim.errors import NondeterministicReplay
from sipsim.recovery.packet_log import PacketLog
from sipsim.sync.session import Session

PROGRESS_NS = 1_000_000_000
LOOK_NS = 250_000_000
"""Host time between two looks at what has come, at most, unless a single event takes longer."""


class SyncClient:
    """One side of the protocol. ``interrupted`` is asked between batches of events whether an ``Abort`` has come.

    ``colocate`` is called when the broker's advice on placement changes. A subclass sets ``session`` and says what is
    simulated: ``identity``, ``start_program``, ``outcome``, ``dump_waiting``, ``failure``. ``lacks_packets``: it was
    granted a window and waits for packets of its peers. ``log``: what it sends, where it may have to be brought back
    or to bring others back; set it before :meth:`join`.
    """

    session: Session
    log: PacketLog | None = None

    def __init__(
        self,
        rank: int,
        mail: Mail,
        interrupted: Callable[[], bool] = lambda: False,
        colocate: Callable[[bool], None] = lambda _together: None,
    ) -> None:
        self.rank = rank
        self.done = False
        self.lacks_packets = False
        self.run_ns = 0
        self.send_ns = 0
        self._mail = mail
        self._interrupted = interrupted
        self._gather = colocate
        self._gathered = False
        self._answered = False
        self._ended_well = False
        self._absent: set[int] = set()
        self._shorter = 1
        self._steps = 0
        self._told_ns = 0
        self._began_ns = perf_counter_ns()
        self._window_ns = self._began_ns
        self._sending_ns = 0

    def identity(self) -> Join:
        """What this SIP says of itself when it joins."""
        raise NotImplementedError

    def start_program(self) -> None:
        """Run the program until it first waits, at time 0."""
        raise NotImplementedError

    def outcome(self) -> bytes:
        """What is known at the end."""
        raise NotImplementedError

    def dump_waiting(self) -> bytes:
        """Who waits, where and for what."""
        raise NotImplementedError

    def failure(self, error: Exception) -> Failed:
        """What to tell of an exception."""
        raise NotImplementedError

    def join(self) -> None:
        """Tell the broker that this SIP is ready."""
        me = self.identity()
        if self.log is not None:
            self.session.remember(self.log.logged)
            me = replace(me, logged=self.log.told_logged(), logged_ps=self.log.logged_ps)
        self._send(me)

    @property
    def wait_ns(self) -> int:
        """Host time since the start that went neither into running nor into sending."""
        return max(perf_counter_ns() - self._began_ns - self.run_ns - self.send_ns, 0)

    def handle(self, frame: bytes) -> None:
        """Take one letter and do all that it makes possible. A failure is told to the broker, never raised."""
        try:
            self._obey(frame)
        except Exception as error:
            self._send(self.failure(error))
            self._answer(partial=True)

    def handle_within_window(self, frame: bytes) -> bool:
        """Whether this is a letter that can be obeyed within a window, and was: a peer must be fed while we compute."""
        try:
            message = decode_for_sip(frame)
        except BadFrame:
            return False
        if not isinstance(message, Rejoined):
            return False
        self._rejoined(message)
        return True

    def post_parcel(self, dst: int, parcel: PacketBatch) -> None:
        """Send packets to a peer; what a session posts with. One that is being started again is fed from the log."""
        frame = encode(parcel)
        if self.log is not None:
            self.log.append(dst, frame)
        if dst not in self._absent:
            self._post(dst, frame)

    def note_step(self) -> None:
        """Something has been got done: some events, or a call of host code. Tells the broker once a second, and looks
        for letters then: nobody is to wait for us who need not.
        """
        self._steps += 1
        now_ns = perf_counter_ns()
        if now_ns - max(self._told_ns, self._window_ns) >= PROGRESS_NS:
            self._told_ns = now_ns
            self._send(Progress(self.session.engine.now_ps, self._steps))
            self._interrupted()

    def _obey(self, frame: bytes) -> None:
        message = decode_for_sip(frame)
        session = self.session
        match message:
            case Grant():
                session.grant(message)
                if message.colocate is not self._gathered:
                    self._gathered = message.colocate
                    self._gather(message.colocate)
            case PacketBatch():
                session.take(message)
            case RevokeGrant():
                if session.is_granted and not session.is_ready():
                    self._report(session.withdraw())
            case Start():
                self._take_part(message)
                return
            case Rejoined():
                self._rejoined(message)
            case DumpRequest():
                self._send(Dump(self.dump_waiting()))
            case End():
                if self.log is not None:
                    # What cannot be kept is told while there is somebody to tell.
                    self.log.flush()
                self._answer(partial=False)
            case Abort():
                self._answer(partial=True)
            case Refused():
                self._answer(partial=True)
                self.done = True
            case Leave():
                self.done = True
            case Ping():
                return
        ready = session.is_ready()
        if ready and self._ended_well and isinstance(message, Grant) and not self.done:
            raise NondeterministicReplay(f"SIP {self.rank} had ended when a SIP that was started again sent it more")
        self.lacks_packets = session.is_granted and not ready and not self._answered
        if ready and not self._answered:
            self._run_window()

    def _take_part(self, start: Start) -> None:
        self._mail.connect_peers(start.endpoints)
        self._open_window()
        self.session.costs = self._costs
        for rank, endpoint in enumerate(start.endpoints):
            if not endpoint and rank != self.rank:
                self._absent.add(rank)
            elif self.log is not None and rank in self.log.logged:
                self._feed(rank, start.taken[rank])
        self.start_program()
        self._report(self.session.report())

    def _rejoined(self, news: Rejoined) -> None:
        self._mail.reconnect_peer(news.rank, news.incarnation, news.endpoint)
        self._absent.discard(news.rank)
        self._feed(news.rank, 0)

    def _feed(self, rank: int, first: int) -> None:
        """Send a peer what it may lack; what it has it drops."""
        for frame in self.log.parcels(rank, first) if self.log is not None else ():
            self._post(rank, frame)

    def _run_window(self) -> None:
        self._open_window()
        session = self.session
        session.begin()
        while (report := self._advance()) is None:
            if self._gathered:
                # A window this long had better run beside others.
                self._gathered = False
                self._gather(False)
            if self._interrupted():
                return
            self.note_step()
        self._report(report)

    def _advance(self) -> Report | None:
        """Some events more, so many that looks are not far apart in host time."""
        began_ns = perf_counter_ns()
        report = self.session.advance(self._shorter)
        if report is None:
            took_ns = perf_counter_ns() - began_ns
            if took_ns > LOOK_NS:
                self._shorter *= 8
            elif took_ns < LOOK_NS // 16:
                self._shorter = max(self._shorter // 2, 1)
        return report

    def _report(self, report: Report) -> None:
        self._send(report)
        if self.log is not None:
            self.log.mark(self.session.reached_ps)

    def _open_window(self) -> None:
        self._window_ns = perf_counter_ns()
        self.send_ns += self._sending_ns
        self._sending_ns = 0

    def _costs(self) -> tuple[int, int]:
        """Host time of this window so far: simulating, and sending parcels."""
        spent_ns, sending_ns = perf_counter_ns() - self._window_ns, self._sending_ns
        self._sending_ns = 0
        self.run_ns += spent_ns - sending_ns
        self.send_ns += sending_ns
        return spent_ns - sending_ns, sending_ns

    def _answer(self, partial: bool) -> None:
        if not self._answered:
            self._answered, self.lacks_packets = True, False
            self._ended_well = not partial
            self._send(Result(self.outcome(), partial))

    def _send(self, message: Message) -> None:
        self._post(BROKER, encode(message))

    def _post(self, to: int, frame: bytes) -> None:
        began_ns = perf_counter_ns()
        self._mail.send(to, frame)
        self._sending_ns += perf_counter_ns() - began_ns
