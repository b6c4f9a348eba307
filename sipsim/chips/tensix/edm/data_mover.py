"""Kernel of the ERISC data mover: a handshake with the far end, then one server for all channels of the core.

The server polls its channels in turn: a poll that finds nothing takes ``poll_ns``; a visit to a channel with a fact
takes the time of parameter ``data_mover`` and of the calls. Polls that find nothing need no simulation event: writes
into L1 mark channels that may have facts, and the loop's position is computed from the time.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from sipsim.chips.tensix.edm.channel import ACK_1, Command, EdmChannel, Fact, State, too_early
from sipsim.chips.tensix.edm.layout import ChannelSpec, Layout, agreement
from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.memory import FAR_END
from sipsim.chips.tensix.params import DataMoverParams
from sipsim.core.errors import KernelMisuse

HANDSHAKE = struct.Struct("<II8s")
"""Word of the handshake: :data:`HELLO` or :data:`READY`, the number of channels, and :func:`agreement`."""
HELLO: Final = 0x0EDA7A01
READY: Final = 0x0EDA7A02


BOOKED: Final = frozenset((Command.SEND, Command.SEND_ACK_2))
"""Commands for which a visit takes ``sender_visit_ns`` (a send) or ``receiver_visit_ns`` (the release of a buffer)."""


class WordPair(NamedTuple):
    """Addresses of the handshake's words: ``received``, written by the far end; ``sent``, copied to the far end."""

    received: int
    sent: int


class DataMover:
    """Data mover of one Ethernet core. As text, shown as the name of a wait: the channels that have not ended."""

    def __init__(
        self, layout: Layout, channels: Sequence[ChannelSpec], params: DataMoverParams, df: EthDataflow
    ) -> None:
        self._layout = layout
        self._specs = channels
        self._df = df
        self._channels = [EdmChannel(number, spec, layout, df) for number, spec in enumerate(channels)]
        visits_ns = {True: params.sender_visit_ns, False: params.receiver_visit_ns}
        self._visits_ns = [visits_ns[spec.is_sender] for spec in channels]
        self._marked: set[int] = set()
        self._position = 0
        self._is_open = False
        self._early: EdmChannel | None = None
        self._leads = channels[0].is_sender
        # The pairs are after the word for first acknowledgements.
        first = df.ack_address + SYNC_BYTES
        self._pair, self._other_pair = (WordPair(at, at + SYNC_BYTES) for at in (first, first + 2 * SYNC_BYTES))

    def run(self) -> None:
        """Serve until all channels have ended."""
        notes = {channel.semaphore: partial(self._written, channel) for channel in self._channels}
        # The first and the last word that the link writes: a message may arrive in two parts.
        for channel in self._channels:
            notes |= dict.fromkeys((channel.arrival, channel.sync), partial(self._arrived, channel))
        for address, note in notes.items():
            self._df.memory.watch(address, note)
        with self._df.routing():
            self._clear()
            self._shake_hands()
            self._serve()
        for address in notes:
            self._df.memory.unwatch(address)

    def __str__(self) -> str:
        if not self._is_open:
            return "the handshake with the data mover at the far end"
        return "; ".join(str(channel) for channel in self._channels if channel.state is not State.ENDED)

    # --- before traffic -------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Clear bytes of earlier programs.

        Raises:
            KernelMisuse: if the far end has sent a payload between HELLO and READY.
        """
        df = self._df
        for channel in self._channels:
            if self._received_pair() is not None and channel.arrival <= df.memory.last_arrival <= channel.sync:
                raise too_early(channel.name)
            channel.clear()
        if df.peek(df.ack_address, SYNC_BYTES) != ACK_1:
            df.store(df.ack_address, ACK_1)

    def _shake_hands(self) -> None:
        """Exchange HELLO and READY: the end that sends on channel 0 sends HELLO, the other answers with READY.

        Raises:
            KernelMisuse: if the settings of the two ends do not match, or the far end violates this order.
        """
        df = self._df
        if self._leads:
            if self._word(self._pair)[0] == READY:
                raise self._misuse("the far end has sent READY before HELLO")
            self._send_handshake(HELLO)
        df.wait_until(lambda: self._received_pair() is not None or self._early is not None, self)
        if self._early is not None:
            raise too_early(self._early.name)
        pair = self._received_pair()
        assert pair is not None
        word, channels, agreed = self._word(pair)
        if word != (READY if self._leads else HELLO):
            raise self._misuse(
                "both ends have sent HELLO; channel 0 must send at one end and receive at the other"
                if self._leads
                else "the far end has sent READY before HELLO"
            )
        if channels != len(self._channels) or agreed != self._agreement(of_far_end=True):
            raise self._misuse(
                f"the data mover at the far end has {channels} channels; channels, message sizes, numbers of messages "
                f"and is_merged must be equal at both ends; this end: {self._shown()}"
            )
        df.store(pair.received, bytes(SYNC_BYTES))
        self._is_open = True
        if not self._leads:
            self._send_handshake(READY)
        for channel in self._channels:
            channel.take(Fact.HANDSHAKE_DONE)

    def _send_handshake(self, word: int) -> None:
        df, pair = self._df, self._pair
        if word == HELLO and HANDSHAKE.unpack(df.peek(pair.sent, SYNC_BYTES))[0] == READY:
            # The READY of an earlier data mover may not have left this word yet, so HELLO uses the other pair.
            pair = self._other_pair
        df.store(pair.sent, HANDSHAKE.pack(word, len(self._channels), self._agreement(of_far_end=False)))
        df.eth_send_packet(0, pair.sent // WORD_BYTES, pair.received // WORD_BYTES, 1)

    def _received_pair(self) -> WordPair | None:
        """Return the pair whose word the far end has written, or None."""
        return next((each for each in (self._pair, self._other_pair) if self._word(each)[0] in (HELLO, READY)), None)

    def _word(self, pair: WordPair) -> tuple[int, int, bytes]:
        word, channels, agreed = HANDSHAKE.unpack(self._df.peek(pair.received, SYNC_BYTES))
        return word, channels, agreed

    def _agreement(self, of_far_end: bool) -> bytes:
        return agreement(self._specs, self._layout.is_merged, of_far_end)

    def _shown(self) -> str:
        channels = [f"{number} {spec.shown()}" for number, spec in enumerate(self._specs)]
        return f"{'merged' if self._layout.is_merged else 'not merged'}, channel " + ", channel ".join(channels)

    def _misuse(self, what: str) -> KernelMisuse:
        return KernelMisuse(f"the data mover on {self._df.core}: {what}")

    # --- the server -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        df, channels, marked, count = self._df, self._channels, self._marked, len(self._channels)
        open_channels = count
        marked.update(range(count))
        while open_channels:
            if not marked:
                polls = df.wait_until(lambda: bool(marked), self)
                self._position = (self._position + polls - 1) % count
            number = self._next()
            if self._visit(channels[number]) and channels[number].state is State.ENDED:
                open_channels -= 1

    def _next(self) -> int:
        """Return the marked channel that the loop reaches first, and spend the time of the polls until then."""
        position, count = self._position, len(self._channels)
        passed = min((number - position) % count for number in self._marked)
        if passed:
            self._df.owe_polls(passed)
        return (position + passed) % count

    def _visit(self, channel: EdmChannel) -> bool:
        """Poll a channel and handle the fact, if any. Return whether there was a fact."""
        number, marked = channel.number, self._marked
        self._position = (number + 1) % len(self._channels)
        fact = channel.fact()
        if fact is None:
            marked.discard(number)
            return False
        if not BOOKED.isdisjoint(channel.take(fact)):
            self._df.owe(self._visits_ns[number])
        # Writes of this visit have marked the channel again.
        if channel.fact() is None:
            marked.discard(number)
        return True

    def _written(self, channel: EdmChannel, _writer: str) -> None:
        """Mark a channel of which a worker may have incremented the semaphore."""
        self._marked.add(channel.number)

    def _arrived(self, channel: EdmChannel, writer: str) -> None:
        """Mark a channel of which the link may have written the words of flow control."""
        self._marked.add(channel.number)
        if not self._is_open and writer is FAR_END and self._word(self._pair)[0] != READY:
            self._early = channel


def erisc_data_mover(layout: Layout, channels: Sequence[ChannelSpec], params: DataMoverParams, df: EthDataflow) -> None:
    """Kernel of a data mover."""
    DataMover(layout, channels, params, df).run()
