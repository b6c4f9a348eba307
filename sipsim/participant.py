"""A member of a run: it joins, obeys the broker, runs the windows it is granted, and answers. No sockets, no hardware.

The engines hand it letters and a ``Mail`` to answer with; that is the whole difference between one process for all
SIPs and one for each. What it simulates is its subclass's business.
"""

from collections.abc import Callable
from time import perf_counter_ns

from broker.mail import Mail
from broker.terms import BROKER
from broker.wire import (
    Abort,
    AskDump,
    Dump,
    End,
    Failed,
    Grant,
    Join,
    Message,
    Parcel,
    Refused,
    Result,
    Start,
    decode_for_sip,
    encode,
)
from sipsim.session import Session


class Participant:
    """One side of the protocol. ``interrupted`` is asked between batches of events whether an ``Abort`` has come.

    ``gather`` is called when the broker's advice on placement changes. A subclass sets ``session`` and says what is
    simulated: ``identity``, ``start_program``, ``outcome``, ``dump_waiting``, ``failure``. ``lacks_packets``: it was
    granted a window and waits for packets of its peers.
    """

    session: Session

    def __init__(
        self,
        rank: int,
        mail: Mail,
        interrupted: Callable[[], bool] = lambda: False,
        gather: Callable[[bool], None] = lambda _together: None,
    ) -> None:
        self.rank = rank
        self.done = False
        self.lacks_packets = False
        self.run_ns = 0
        self.send_ns = 0
        self._mail = mail
        self._interrupted = interrupted
        self._gather = gather
        self._gathered = False
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
        self._send(self.identity())

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

    def post_parcel(self, dst: int, parcel: Parcel) -> None:
        """Send packets to a peer; what a session posts with."""
        self._send_to(dst, parcel)

    def _obey(self, frame: bytes) -> None:
        message = decode_for_sip(frame)
        session = self.session
        match message:
            case Grant():
                session.grant(message)
                if message.gather is not self._gathered:
                    self._gathered = message.gather
                    self._gather(message.gather)
            case Parcel():
                session.take(message)
            case Start():
                self._mail.meet(message.endpoints)
                self._open_window()
                session.costs = self._costs
                self.start_program()
                self._send(session.report())
                return
            case AskDump():
                self._send(Dump(self.dump_waiting()))
            case End():
                self._answer(partial=False)
            case Abort() | Refused():
                self._answer(partial=True)
        ready = session.is_ready()
        self.lacks_packets = session.is_granted and not ready and not self.done
        if ready and not self.done:
            self._run_window()

    def _run_window(self) -> None:
        self._open_window()
        session = self.session
        session.begin()
        while (report := session.advance()) is None:
            if self._gathered:
                # A window this long had better run beside others.
                self._gathered = False
                self._gather(False)
            if self._interrupted():
                return
        self._send(report)

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
        if not self.done:
            self.done, self.lacks_packets = True, False
            self._send(Result(self.outcome(), partial))

    def _send(self, message: Message) -> None:
        self._send_to(BROKER, message)

    def _send_to(self, to: int, message: Message) -> None:
        began_ns = perf_counter_ns()
        self._mail.send(to, encode(message))
        self._sending_ns += perf_counter_ns() - began_ns
