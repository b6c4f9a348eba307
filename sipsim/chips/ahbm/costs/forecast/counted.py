"""What stands for values, queues and completions while the commands of kernels are counted (:mod:`.kernels`)."""

from collections import deque
from typing import TYPE_CHECKING, NoReturn

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.costs.forecast.times import CommandTimes
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqInitEntry
from sipsim.core.errors import Halt

if TYPE_CHECKING:
    from sipsim.chips.ahbm.costs.forecast.kernels import CountingPe

Ps = int


class Uncountable(Halt):
    """The commands of a kernel cannot be known before it runs; the text gives the reason.

    No ``Exception``, which a kernel could catch: it would go on, and be counted wrong.
    """


def refuse(*_arguments: object) -> NoReturn:
    """A kernel asks for what is not known before it runs."""
    raise Uncountable("a kernel looks at values, or at what depends on time")


class NoValues:
    """In place of the values of a handle: only their size is known. ``fetch_ps``: to bring them to the PE."""

    def __init__(self, shape: tuple[int, ...], nbytes: int, fetch_ps: Ps = 0) -> None:
        self.shape = shape
        self.nbytes = nbytes
        self.fetch_ps = fetch_ps

    __getattr__ = __getitem__ = __array__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = refuse
    __index__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __add__ = __radd__ = __mul__ = refuse
    __hash__ = None  # type: ignore[assignment]


class Queue:
    """One direction of one PE. ``arrivals_ps``: of messages to it, not received yet; ``credits_ps``: of its own sends.

    ``receiver``: the queue that its messages come to; ``sender``: the one whose messages come here. ``waiter``: its PE,
    while it waits for a message or a credit.
    """

    def __init__(self, entry: IpcqInitEntry, place: PePlace, times: CommandTimes) -> None:
        self.entry = entry
        self.can_send = entry.can_send
        self.peer = entry.peer
        self.credit_ps = times.credit_ps(place, entry)
        self.receiver: Queue | None = None
        self.sender: Queue | None = None
        self.is_remote = entry.peer.sip != place.sip
        self.arrivals_ps: deque[Ps] = deque()
        self.pending: deque[CountedReceive] = deque()
        self.credits_ps: deque[Ps] = deque()
        self.free_slots = entry.peer.n_slots
        self.last_ps: Ps = 0
        self.sent_ps: Ps = 0
        self.waiter: CountingPe | None = None


class CountedReceive:
    """The completion of a receive: its end is known once its message is."""

    error = None

    def __init__(self, pe: "CountingPe", queue: Queue, latch_ps: Ps) -> None:
        self._pe = pe
        self.latch_ps = latch_ps
        self._queue = queue
        self.start_ps = pe.now_ps
        self.end_ps: Ps | None = None

    ended = has_ended = value = property(refuse)

    def wait(self, _task: object) -> None:
        """Run the other PEs until the message has arrived."""
        while self.end_ps is None:
            self._queue.waiter = self._pe
            self._pe.give_way()
        self._pe.advance(max(self._pe.now_ps, self.end_ps))


class CountedTransfer:
    """The completion of a load or a store."""

    ended = False
    error = None

    def __init__(self, pe: "CountingPe", end_ps: Ps) -> None:
        self._pe = pe
        self._end_ps = end_ps
        pe.ended(end_ps)

    has_ended = value = property(refuse)

    def wait(self, _task: object) -> None:
        """Let its time pass."""
        self._pe.now_ps = max(self._pe.now_ps, self._end_ps)
