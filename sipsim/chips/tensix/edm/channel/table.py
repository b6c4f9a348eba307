"""The state machine of a channel of the ERISC data mover: pure, a table for each end.

A *fact* is what the data mover of an Ethernet core sees of one channel; a *command* is what it does about it. Both
modes of termination have one table: with ``MESSAGE_COUNT_REACHED`` the data mover counts, and tells the last message as
``WRITTEN_LAST`` or ``READ_LAST``; with ``WORKER_INITIATED`` the worker says so. What the table does not have is against
the protocol, and refused by name.

A channel has one buffer at each end. The *source*, at the sender, is the worker's until it has written; the data
mover's until the receiver has acknowledged the payload (ack 1); then the worker's again. The *slot*, at the receiver,
is taken from the send until the second acknowledgement (ack 2), which is the only credit there is.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from sipsim.core.errors import KernelMisuse


class State(Enum):
    """Of a channel. The first part says whose the source is and where the slot stands, or who has the slot."""

    STARTING = "before the handshake"
    EMPTY = "source with the worker, slot free"
    EMPTY_AHEAD = "source with the worker, slot taken"
    FULL_AHEAD = "source full, slot taken"
    LAST_AHEAD = "source full with the last message, slot taken"
    SENT = "sent, no ack yet"
    LAST_SENT = "last message sent, no ack yet"
    DRAINING = "last message received, slot taken"
    LISTENING = "slot free, nothing has come"
    READING = "payload with the worker"
    ENDED = "ended"


class Fact(Enum):
    """What is seen of a channel."""

    HANDSHAKE_DONE = "both ends are ready"
    WRITTEN = "the worker has written a payload"
    WRITTEN_LAST = "the worker has written the last payload"
    ACK_1 = "the receiver has the payload"
    ACK_2 = "the receiver's buffer is free"
    ARRIVED = "a payload has come over the link"
    READ = "the worker has read the payload"
    READ_LAST = "the worker has read the last payload"
    TERMINATE = "the worker ends the channel without a message"


class Command(Enum):
    """What is done about a fact."""

    CLEAR_SEMAPHORE = "set the channel's semaphore to 0"
    TELL_WORKER = "increment the worker's semaphore"
    SEND = "send the payload, and bytes_sent behind it"
    SEND_ACK_1 = "send the word with receiver_ack, from an address of its own"
    SEND_ACK_2 = "clear bytes_sent and receiver_ack, and send them"


class Step(NamedTuple):
    """What a fact leads to; the commands are done in their order."""

    state: State
    commands: tuple[Command, ...] = ()


Table = Mapping[State, Mapping[Fact, Step]]

_CLEAR, _TELL, _SEND = Command.CLEAR_SEMAPHORE, Command.TELL_WORKER, Command.SEND

SENDER: Table = {
    State.STARTING: {Fact.HANDSHAKE_DONE: Step(State.EMPTY, (_CLEAR, _TELL))},
    State.EMPTY: {
        Fact.WRITTEN: Step(State.SENT, (_CLEAR, _SEND)),
        Fact.WRITTEN_LAST: Step(State.LAST_SENT, (_CLEAR, _SEND)),
        Fact.TERMINATE: Step(State.ENDED, (_CLEAR,)),
    },
    State.SENT: {
        Fact.ACK_1: Step(State.EMPTY_AHEAD, (_TELL,)),
        # Both acknowledgements came between two looks.
        Fact.ACK_2: Step(State.EMPTY, (_TELL,)),
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
"""A channel that sends over the link."""

RECEIVER: Table = {
    State.STARTING: {Fact.HANDSHAKE_DONE: Step(State.LISTENING)},
    State.LISTENING: {
        Fact.ARRIVED: Step(State.READING, (Command.SEND_ACK_1, _TELL)),
        Fact.TERMINATE: Step(State.ENDED, (_CLEAR,)),
    },
    State.READING: {
        Fact.READ: Step(State.LISTENING, (_CLEAR, Command.SEND_ACK_2)),
        Fact.READ_LAST: Step(State.ENDED, (_CLEAR, Command.SEND_ACK_2)),
    },
    State.ENDED: {},
}
"""A channel that receives over the link. Its semaphore is cleared before the handshake."""


def step(table: Table, state: State, fact: Fact, channel: str) -> Step:
    """What a channel does about a fact. ``channel``: its name, for the message.

    Raises:
        KernelMisuse: for a fact that its state does not let come.
    """
    found = table[state].get(fact)
    if found is None:
        raise KernelMisuse(
            f"{channel} is in state {state.name} ({state.value}), and {fact.name} ({fact.value}) must not come then; "
            f"{_allowed(table[state])}"
        )
    return found


def _allowed(row: Mapping[Fact, Step]) -> str:
    return f"it waits for {' or '.join(fact.name for fact in row)}" if row else "nothing may come any more"
