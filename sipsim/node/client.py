"""The client side of the broker's protocol: joins, runs granted windows, reports. No sockets, no hardware.

The engine of a run passes received frames to the client, and a ``Mail`` by which the client sends. The client is the
same if one process simulates all SIPs or each SIP has a process. A subclass defines the simulated system.
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
    ToSip,
    decode_for_sip,
    encode,
    source_of,
)
from sipsim.core.errors import BadMessage, LinkLoss, NondeterministicReplay, OutputError, pass_on_halt
from sipsim.core.session import Session
from sipsim.node.packet_log import PacketLog

PROGRESS_NS = 250_000_000
POLL_NS = 250_000_000
"""Longest host time between two polls for messages, unless a single event takes longer."""


class SyncClient:
    """The protocol state of one rank. A subclass sets ``session`` and implements the methods that raise here.

    ``interrupted()`` polls the mail between batches of events; it returns whether the window must end, as at ``Abort``.
    ``colocate(together)`` is called when a grant changes whether to share a processor.

    ``run_ns``, ``send_ns``: sums of the host times in all reports. ``lacks_packets``: whether a granted window still
    waits for packets of peers. ``log``: the packet log if ranks can be restarted, else None; set it
    before :meth:`join`.
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
        self._colocate = colocate
        self._colocated = False
        self._answered = False
        self._is_complete = False
        self._absent: set[int] = set()
        self._batch_divisor = 1
        self._steps = 0
        self._began_ns = self._progress_ns = perf_counter_ns()
        self._window_ns = self._batch_ns = self._began_ns
        self._sending_ns = 0
        self._carried_ns = 0

    def identity(self) -> Join:
        """The ``Join`` of this SIP."""
        raise NotImplementedError

    def start_program(self) -> None:
        """Run the program at time 0 until the program first waits."""
        raise NotImplementedError

    def outcome(self) -> bytes:
        """The encoded outcome of this rank, at the end of the run."""
        raise NotImplementedError

    def dump_waiting(self) -> bytes:
        """The encoded dump of waiting kernels and scripts."""
        raise NotImplementedError

    def failure(self, error: BaseException) -> Failed:
        """The ``Failed`` message for an exception."""
        raise NotImplementedError

    def join(self) -> None:
        """Report to the broker that this SIP is ready."""
        me = self.identity()
        if self.log is not None:
            self.session.check_replay(self.log.logged)
            me = replace(me, logged=self.log.logged_counts(), logged_ps=self.log.logged_ps)
        self._send(me)

    @property
    def steps(self) -> int:
        """The number of batches of events and of host calls so far."""
        return self._steps

    @property
    def wait_ns(self) -> int:
        """Host time since the start that is in neither ``run_ns`` nor ``send_ns``."""
        return max(perf_counter_ns() - self._began_ns - self.run_ns - self.send_ns, 0)

    def close_log(self) -> None:
        """Write and close the packet log; errors are ignored if the run has failed already."""
        try:
            if self.log is not None:
                self.log.close()
        except OutputError:
            if self._is_complete:
                raise

    def handle(self, frame: bytes) -> None:
        """Process one message; run the window if it can begin. Failures are reported to the broker, never raised."""
        try:
            self._dispatch(self._decoded(frame))
        except BaseException as error:
            pass_on_halt(error)
            failed = self.failure(error)
            if type(error) is LinkLoss and self.session.is_granted:
                self._defer_failure(failed)
                return
            self._send(failed)
            self._answer(partial=True)

    def _defer_failure(self, failed: Failed) -> None:
        """Report a failure that another SIP may find earlier, and stop until all SIPs have run up to that time."""
        report = self.session.return_grant()
        self._send(replace(failed, deferred=True))
        self._send(replace(report, next_ps=failed.now_ps + 1))

    def handle_within_window(self, frame: bytes) -> bool:
        """Handle a message that need not wait for the window's end; return whether it was handled.

        Only ``Rejoined`` is handled within a window: a restarted peer needs packets of this SIP before the window ends.
        """
        try:
            message = decode_for_sip(frame)
        except BadFrame:
            return False
        if not isinstance(message, Rejoined):
            return False
        self._rejoined(message)
        return True

    def send_batch(self, dst: int, batch: PacketBatch) -> None:
        """Send packets to a peer, and log them. A peer that is being restarted receives them later, from the log."""
        frame = encode(batch)
        if self.log is not None:
            self.log.append(dst, frame)
        if dst not in self._absent:
            self._post(dst, frame)

    def note_progress(self) -> None:
        """Count a batch of events or a host call. Every ``PROGRESS_NS``, report progress and poll for messages."""
        self._steps += 1
        if self._report_progress():
            self._interrupted()

    def _report_progress(self) -> bool:
        """Report progress to the broker if a progress report is due; return whether one was due."""
        now_ns = perf_counter_ns()
        is_due = now_ns - max(self._progress_ns, self._window_ns) >= PROGRESS_NS
        if is_due:
            self._send_progress(now_ns)
        return is_due

    def _send_progress(self, now_ns: int) -> None:
        self._progress_ns = now_ns
        self._send(Progress(self.session.engine.now_ps, self._steps))

    def _decoded(self, frame: bytes) -> ToSip:
        try:
            return decode_for_sip(frame)
        except BadFrame as error:
            source = source_of(frame)
            sender = "the broker, or a process without a key," if source is None else f"rank {source}"
            raise BadMessage(f"{sender} has sent a malformed message: {error}", rank=source) from None

    def _dispatch(self, message: ToSip) -> None:
        session = self.session
        match message:
            case Grant():
                session.grant(message)
                if message.colocate is not self._colocated:
                    self._colocated = message.colocate
                    self._colocate(message.colocate)
            case PacketBatch():
                session.take(message)
                self._report_progress()
            case RevokeGrant():
                if session.is_granted and not session.is_ready():
                    self._report(session.return_grant())
            case Start():
                self._start(message)
                return
            case Rejoined():
                self._rejoined(message)
            case DumpRequest():
                self._send(Dump(self.dump_waiting()))
            case End():
                if self.log is not None:
                    # A write error must be raised while the broker can still be informed.
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
        if ready and self._is_complete and isinstance(message, Grant) and not self.done:
            raise NondeterministicReplay(f"a restarted SIP sent new packets to SIP {self.rank}, which had finished")
        self.lacks_packets = session.is_granted and not ready and not self._answered
        if ready and not self._answered:
            self._run_window()

    def _start(self, start: Start) -> None:
        self._mail.connect_peers(start.endpoints)
        self._begin_window()
        self.session.costs = self._costs
        for rank, endpoint in enumerate(start.endpoints):
            if not endpoint and rank != self.rank:
                self._absent.add(rank)
            elif self.log is not None and rank in self.log.logged:
                self._resend(rank, start.taken[rank])
        self.start_program()
        self._report(self.session.report())

    def _rejoined(self, rejoined: Rejoined) -> None:
        self._mail.reconnect_peer(rejoined.rank, rejoined.incarnation, rejoined.endpoint)
        self._absent.discard(rejoined.rank)
        self._resend(rejoined.rank, 0)

    def _resend(self, rank: int, first: int) -> None:
        """Send a peer all logged batches from packet ``first`` on; the peer drops duplicates."""
        for frame in self.log.batches(rank, first) if self.log is not None else ():
            self._post(rank, frame)
            self._report_progress()

    def _run_window(self) -> None:
        self._begin_window()
        session = self.session
        session.begin()
        while (report := self._advance()) is None:
            if self._colocated:
                # A long window runs faster on a processor that is not shared.
                self._colocated = False
                self._colocate(False)
            if self._interrupted():
                return
            self.note_progress()
        self._report(report)

    def _advance(self) -> Report | None:
        """Run a batch of events, sized so that polls are at most about ``POLL_NS`` of host time apart."""
        report = self.session.advance(self._batch_divisor)
        if report is None:
            began_ns, self._batch_ns = self._batch_ns, perf_counter_ns()
            took_ns = self._batch_ns - began_ns
            if took_ns > POLL_NS:
                self._batch_divisor *= 8
            elif took_ns < POLL_NS // 16:
                self._batch_divisor = max(self._batch_divisor // 2, 1)
        return report

    def _report(self, report: Report) -> None:
        if self._window_ns - self._progress_ns >= PROGRESS_NS:
            # Short windows report no progress by themselves.
            self._send_progress(self._window_ns)
        self._send(report)
        if self.log is not None:
            self.log.mark(self.session.reached_ps)

    def _begin_window(self) -> None:
        self._window_ns = self._batch_ns = perf_counter_ns()
        self._carried_ns += self._sending_ns
        self._sending_ns = 0

    def _costs(self) -> tuple[int, int]:
        """Host time in ns since the last report: (simulating, sending). Sending a report counts in the next report."""
        in_window_ns = self._sending_ns
        run_ns, send_ns = perf_counter_ns() - self._window_ns - in_window_ns, self._carried_ns + in_window_ns
        self._carried_ns = self._sending_ns = 0
        self.run_ns += run_ns
        self.send_ns += send_ns
        return run_ns, send_ns

    def _answer(self, partial: bool) -> None:
        if self._answered:
            return
        self._answered, self.lacks_packets = True, False
        try:
            blob = self.outcome()
        except BaseException as error:
            # For example out of memory, perhaps the cause of the failure. The broker must still receive an answer.
            pass_on_halt(error)
            if not partial:
                self._send(self.failure(error))
            blob, partial = b"", True
        self._is_complete = not partial
        self._send(Result(blob, partial))

    def _send(self, message: Message) -> None:
        self._post(BROKER, encode(message))

    def _post(self, to: int, frame: bytes) -> None:
        began_ns = perf_counter_ns()
        self._mail.send(to, frame)
        self._sending_ns += perf_counter_ns() - began_ns
