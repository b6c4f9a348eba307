"""Channel of the ERISC data mover: a state machine with one table per end of the link, and the channel's operations.

A *fact* is an event that the data mover of an Ethernet core sees on one channel; a *command* is a step of the reaction.
Both modes of termination share a table: the last message is the fact ``WRITTEN_LAST`` or ``READ_LAST``, which the data
mover finds by count with ``MESSAGE_COUNT_REACHED``, and the worker signals with ``WORKER_INITIATED``. A fact that the
table does not list violates the protocol and raises an error.

A channel has one buffer at each end. The sender's buffer, the *source*, belongs to the worker until a message is
written, then to the data mover until the receiver has acknowledged the payload (ack 1), then to the worker again. The
receiver's buffer, the *slot*, is taken from the send until the second acknowledgement (ack 2), which is the credit.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.edm.layout import ChannelSpec, Layout, WorkerSignal
from sipsim.chips.tensix.eth_dataflow import FREE, SYNC, SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.core.errors import KernelMisuse


class State(Enum):
    """State of a channel. At a sender: the source's holder, and whether the slot is free. At a receiver: the slot's."""

    STARTING = "before the handshake"
    EMPTY = "source with the worker, slot free"
    EMPTY_AHEAD = "source with the worker, slot taken"
    FULL_AHEAD = "source full, slot taken"
    LAST_AHEAD = "source full with the last message, slot taken"
    SENT = "sent, no ack yet"
    LAST_SENT = "last message sent, no ack yet"
    DRAINING = "last message received, slot taken"
    LISTENING = "slot free, nothing has arrived"
    READING = "payload with the worker"
    ENDED = "ended"


class Fact(Enum):
    """Event that a data mover sees on a channel."""

    HANDSHAKE_DONE = "both ends are ready"
    WRITTEN = "the worker has written a payload"
    WRITTEN_LAST = "the worker has written the last payload"
    ACK_1 = "the receiver has the payload"
    ACK_2 = "the receiver's buffer is free"
    ARRIVED = "a payload has arrived over the link"
    READ = "the worker has read the payload"
    READ_LAST = "the worker has read the last payload"
    TERMINATE = "the worker ends the channel without a message"


class Command(Enum):
    """Reaction of a data mover to a fact."""

    CLEAR_SEMAPHORE = "set the channel's semaphore to 0"
    NOTIFY_WORKER = "increment the worker's semaphore"
    SEND = "send the payload, and then bytes_sent"
    SEND_ACK_1 = "send the word with receiver_ack, from an address of its own"
    SEND_ACK_2 = "clear bytes_sent and receiver_ack, and send them"


class Step(NamedTuple):
    """Reaction of a state to a fact: the next state, and commands in the order of their execution."""

    state: State
    commands: tuple[Command, ...] = ()


Table = Mapping[State, Mapping[Fact, Step]]

_CLEAR, _NOTIFY, _SEND = Command.CLEAR_SEMAPHORE, Command.NOTIFY_WORKER, Command.SEND

SENDER: Table = {
    State.STARTING: {Fact.HANDSHAKE_DONE: Step(State.EMPTY, (_CLEAR, _NOTIFY))},
    State.EMPTY: {
        Fact.WRITTEN: Step(State.SENT, (_CLEAR, _SEND)),
        Fact.WRITTEN_LAST: Step(State.LAST_SENT, (_CLEAR, _SEND)),
        Fact.TERMINATE: Step(State.ENDED, (_CLEAR,)),
    },
    State.SENT: {
        Fact.ACK_1: Step(State.EMPTY_AHEAD, (_NOTIFY,)),
        # Both acknowledgements arrived between two polls.
        Fact.ACK_2: Step(State.EMPTY, (_NOTIFY,)),
    },
    State.EMPTY_AHEAD: {
        Fact.ACK_2: Step(State.EMPTY),
        Fact.WRITTEN: Step(State.FULL_AHEAD, (_CLEAR,)),
        Fact.WRITTEN_LAST: Step(State.LAST_AHEAD, (_CLEAR,)),
        Fact.TERMINATE: Step(State.DRAINING, (_CLEAR,)),
    },
    State.FULL_AHEAD: {Fact.ACK_2: Step(State.SENT, (_SEND,))},
    State.LAST_AHEAD: {Fact.ACK_2: Step(State.LAST_SENT, (_SEND,))},
    State.LAST_SENT: {Fact.ACK_1: Step(State.DRAINING), Fact.ACK_2: Step(State.ENDED)},
    State.DRAINING: {Fact.ACK_2: Step(State.ENDED)},
    State.ENDED: {},
}
"""State machine of a channel that sends over the link."""

RECEIVER: Table = {
    State.STARTING: {Fact.HANDSHAKE_DONE: Step(State.LISTENING)},
    State.LISTENING: {
        Fact.ARRIVED: Step(State.READING, (Command.SEND_ACK_1, _NOTIFY)),
        Fact.TERMINATE: Step(State.ENDED, (_CLEAR,)),
    },
    State.READING: {
        Fact.READ: Step(State.LISTENING, (_CLEAR, Command.SEND_ACK_2)),
        Fact.READ_LAST: Step(State.ENDED, (_CLEAR, Command.SEND_ACK_2)),
    },
    State.ENDED: {},
}
"""State machine of a channel that receives over the link. Its semaphore is cleared before the handshake."""


def step(table: Table, state: State, fact: Fact, channel: str) -> Step:
    """Return the reaction to a fact. ``channel``: the channel's name, for the message.

    Raises:
        KernelMisuse: for a fact that the table does not list for this state.
    """
    reaction = table[state].get(fact)
    if reaction is None:
        raise KernelMisuse(
            f"{channel} is in state {state.name} ({state.value}), and {fact.name} ({fact.value}) is not allowed; "
            f"{_allowed(table[state])}"
        )
    return reaction


def _allowed(row: Mapping[Fact, Step]) -> str:
    return f"the channel waits for {' or '.join(fact.name for fact in row)}" if row else "the channel has ended"


TAG: Final = 0x0EDA7A00
"""Reserved fourth word of a channel's words of flow control, as a data mover sends it."""
ACK_1 = SYNC.pack(1, 1, 0, 0)
SENT, RECEIVED, FREED = range(3)
"""State of the sender's last message, in order."""
FACT_OF_SIGNAL: Final = {
    True: {WorkerSignal.MESSAGE: Fact.WRITTEN, WorkerSignal.LAST_MESSAGE: Fact.WRITTEN_LAST},
    False: {WorkerSignal.MESSAGE: Fact.READ, WorkerSignal.LAST_MESSAGE: Fact.READ_LAST},
}
SIGNALS: Final = (
    "1 (message), 2 (last message) or 3 (end); signals that the data mover has not read add up, so end with a last "
    "message"
)


class EdmChannel:
    """Channel ``number`` of a data mover. ``table``: state machine; the default, ``SENDER`` or ``RECEIVER``, fits."""

    def __init__(self, number: int, spec: ChannelSpec, layout: Layout, df: EthDataflow, table: Table | None = None):
        self.number = number
        self.spec = spec
        self.is_sender = spec.is_sender
        self.table = table or (SENDER if spec.is_sender else RECEIVER)
        self.state = State.STARTING
        self.name = f"channel {number} of the data mover on {df.core} ({'sender' if spec.is_sender else 'receiver'})"
        self._df = df
        self._is_merged = layout.is_merged
        self.buffer = layout.buffer(number)
        self.semaphore = layout.semaphore(number)
        self.sync = self.buffer + spec.message_bytes if layout.is_merged else df.sync_address(number)
        self.arrival = self.buffer if layout.is_merged and not spec.is_sender else self.sync
        """The first address to which the link writes for this channel."""
        self._words = SYNC.pack(spec.message_bytes, 0, number, TAG)
        self._worker_semaphores = [NocAddress(worker, spec.worker_semaphore) for worker in spec.workers]
        self._signals = FACT_OF_SIGNAL[spec.is_sender]
        self._credit = FREED
        self._messages = 0

    # --- facts ----------------------------------------------------------------------------------------------------

    def fact(self) -> Fact | None:
        """Return the next fact, or None. Arrivals over the link precede changes of the worker's semaphore.

        Raises:
            KernelMisuse: for a semaphore value that no worker may set.
        """
        if not self.is_sender or self._credit != FREED:
            sent, ack, _, _ = SYNC.unpack(self._df.peek(self.sync, SYNC_BYTES))
            if not self.is_sender:
                if sent and not ack:
                    return Fact.ARRIVED
            else:
                credit = FREED if not sent else RECEIVED if ack else SENT
                if credit > self._credit:
                    return Fact.ACK_2 if credit == FREED else Fact.ACK_1
        value = int.from_bytes(self._df.peek(self.semaphore, ATOMIC_BYTES), "little")
        return self._signalled(value) if value else None

    def take(self, fact: Fact) -> tuple[Command, ...]:
        """Change the state and execute the commands for a fact; return the commands.

        Raises:
            KernelMisuse: for a fact that the table does not list for this state.
        """
        next_state, commands = step(self.table, self.state, fact, self.name)
        if fact is Fact.ACK_1:
            self._credit = RECEIVED
        elif fact is Fact.ACK_2:
            self._credit = FREED
        elif fact in self._signals.values():
            self._messages += 1
        self.state = next_state
        for command in commands:
            self._do(command)
        return commands

    def clear(self) -> None:
        """Clear the words of flow control before the handshake, as earlier programs may have left bytes there."""
        if self._df.peek(self.sync, SYNC_BYTES) != FREE:
            self._df.store(self.sync, FREE)

    def __str__(self) -> str:
        facts = " or ".join(f"{fact.name} ({fact.value})" for fact in self.table[self.state])
        kind = "sender" if self.is_sender else "receiver"
        return f"channel {self.number} ({kind}) after {self._messages} messages, in {self.state.name}: {facts}"

    def _signalled(self, value: int) -> Fact | None:
        """Return the fact for a semaphore's ``value`` other than 0; None until all workers have signalled."""
        spec, workers = self.spec, len(self.spec.workers)
        if not spec.num_messages:
            if value == WorkerSignal.TERMINATE:
                return Fact.TERMINATE
            fact = self._signals.get(value)
        elif value <= workers:
            if value < workers:
                return None
            is_last = self._messages + 1 >= spec.num_messages
            fact = self._signals[WorkerSignal.LAST_MESSAGE if is_last else WorkerSignal.MESSAGE]
        else:
            fact = None
        if fact is None:
            allowed = f"up to {workers} with {workers} workers" if spec.num_messages else SIGNALS
            raise KernelMisuse(f"{self.name}: the worker set the channel's semaphore to {value}; allowed: {allowed}")
        return fact

    # --- commands -------------------------------------------------------------------------------------------------

    def _do(self, command: Command) -> None:
        match command:
            case Command.CLEAR_SEMAPHORE:
                self._clear_semaphore()
            case Command.NOTIFY_WORKER:
                self._notify_worker()
            case Command.SEND:
                self._send_message()
            case Command.SEND_ACK_1:
                self._send_ack_1()
            case Command.SEND_ACK_2:
                self._send_ack_2()

    def _clear_semaphore(self) -> None:
        self._df.store(self.semaphore, bytes(ATOMIC_BYTES))

    def _notify_worker(self) -> None:
        for worker in self._worker_semaphores:
            self._df.noc_semaphore_inc(worker, 1)

    def _send_message(self) -> None:
        self._credit = SENT
        if self._is_merged:
            self._df.store(self.sync, self._words)
            self._send(self.buffer, self.spec.message_bytes + SYNC_BYTES)
            return
        self._send(self.buffer, self.spec.message_bytes)
        self._df.store(self.sync, self._words)
        self._send(self.sync, SYNC_BYTES)

    def _send_ack_1(self) -> None:
        df = self._df
        df.store(self.sync + ATOMIC_BYTES, ACK_1[ATOMIC_BYTES : 2 * ATOMIC_BYTES])
        df.eth_send_packet(0, df.ack_address // WORD_BYTES, self.sync // WORD_BYTES, 1)

    def _send_ack_2(self) -> None:
        self._df.store(self.sync, FREE)
        self._send(self.sync, SYNC_BYTES)

    def _send(self, address: int, nbytes: int) -> None:
        """Send bytes to the same address of the far core."""
        word = address // WORD_BYTES
        self._df.eth_send_packet(0, word, word, nbytes // WORD_BYTES)


def too_early(name: str) -> KernelMisuse:
    """Return the error for an arrival over the link before the channel is open."""
    return KernelMisuse(
        f"{name}: a payload or credit arrived before the end of the handshake; the far end sends too early, or an "
        "earlier program ended without its credits"
    )
