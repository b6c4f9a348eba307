"""Worker's ends of a data mover's channels, for kernels: the sequences of the CCL developer guide."""

from sipsim.chips.tensix.dataflow import Dataflow, NocAddress
from sipsim.chips.tensix.edm.layout import ChannelBufferInterface, WorkerSignal
from sipsim.chips.tensix.noc import Core

AVAILABLE = 1
"""Value of a worker's semaphore when the buffer is the worker's."""


class _WorkerEnd:
    """Worker's end of a channel. ``core``: the Ethernet core; ``channel``: from the builder; ``semaphore``: address of
    the worker's semaphore of the channel. ``hint``: text after the name of a wait, for the report of a deadlock.
    """

    def __init__(
        self, core: Core, channel: ChannelBufferInterface, semaphore: int, df: Dataflow, hint: str = ""
    ) -> None:
        self._df = df
        self._core = core
        self._hint = hint
        self._local_semaphore = semaphore
        self._buffer = NocAddress(core, channel.eth_buffer_l1_address)
        self._semaphore = NocAddress(core, channel.eth_semaphore_l1_address)

    def _take_buffer(self, what: str) -> None:
        """Wait until the buffer is the worker's, and clear the worker's semaphore."""
        df, semaphore = self._df, self._local_semaphore
        df.wait_until(
            lambda: df.peek_word(semaphore) == AVAILABLE, f"{what} the data mover on {self._core}{self._hint}"
        )
        # The data mover may answer the increment at once, so the worker's semaphore is cleared before.
        df.noc_semaphore_set(semaphore, 0)


class EdmSender(_WorkerEnd):
    """Sender worker's end of a channel, made in the kernel. For arguments see :class:`_WorkerEnd`."""

    def send(self, source: int, nbytes: int, signal: int = WorkerSignal.MESSAGE) -> None:
        """Wait for room, then start to write ``nbytes`` from ``source`` in this L1 into the channel's buffer, and
        signal. ``source`` may be written again after ``noc_async_writes_flushed``.
        """
        self._take_buffer("room in")
        self._df.noc_async_write(source, self._buffer, nbytes)
        # The increment uses the write's NoC and arrives after the write.
        self._df.noc_semaphore_inc(self._semaphore, signal)


class EdmReceiver(_WorkerEnd):
    """Receiver worker's end of a channel, made in the kernel. For arguments see :class:`_WorkerEnd`."""

    def receive(self, destination: int, nbytes: int, signal: int = WorkerSignal.MESSAGE) -> None:
        """Wait for a payload, read its first ``nbytes`` to ``destination`` in this L1, and signal. Waits for earlier
        reads, too.
        """
        self._take_buffer("a payload in")
        self._df.noc_async_read(self._buffer, destination, nbytes)
        self._df.noc_async_read_barrier()
        self._df.noc_semaphore_inc(self._semaphore, signal)
