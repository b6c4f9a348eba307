"""The kernel of the ERISC data mover: a handshake with the far end, then one server for all channels of its core.

The server looks at its channels in turn, as a loop: a look that finds nothing takes ``poll_ns``, a visit to a channel
for which there is something its ``data_mover`` parameter and the calls that it makes. Looks that find nothing cost no
events: which channel has something is known from the writes into L1, and where the loop stands from the time.
"""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from sipsim.chips.tensix.edm.channel import ACK_1, Command, EdmChannel, Fact, State, too_early
from sipsim.chips.tensix.edm.layout import ChannelSpec, Layout, contract
from sipsim.chips.tensix.eth_dataflow import SYNC_BYTES, EthDataflow
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.memory import FAR_END
from sipsim.chips.tensix.params import DataMoverParams
from sipsim.core.errors import KernelMisuse

HANDSHAKE = struct.Struct("<II8s")
"""The word of the handshake: :data:`HELLO` or :data:`READY`, the number of channels, what both ends must agree on."""
HELLO: Final = 0x0EDA7A01
READY: Final = 0x0EDA7A02


BOOKED: Final = frozenset((Command.SEND, Command.SEND_ACK_2))
"""What a visit has done that takes the time of its own: a message was sent, or a buffer was freed."""


class WordPair(NamedTuple):
    """Addresses of the handshake's words: ``heard``, which the far end writes, and ``said``, which is sent to it."""

    heard: int
    said: int


class DataMover:
    """The server of one Ethernet core. It is what it waits for: as text, every channel that has not ended."""

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
        # Pairs of a word that the far end writes into and one that is sent from; behind that of first acknowledgements.
        first = df.ack_address + SYNC_BYTES
        self._pair, self._other_pair = (WordPair(at, at + SYNC_BYTES) for at in (first, first + 2 * SYNC_BYTES))

    def run(self) -> None:
        """Until all channels have ended."""
        notes = {channel.semaphore: partial(self._written, channel) for channel in self._channels}
        notes |= {channel.arrival: partial(self._arrived, channel) for channel in self._channels}
        for address, note in notes.items():
            self._df.watch(address, note)
        self._clear()
        self._shake_hands()
        self._serve()
        for address in notes:
            self._df.unwatch(address)

    def __str__(self) -> str:
        if not self._is_open:
            return "the handshake with the data mover at the far end"
        return "; ".join(str(channel) for channel in self._channels if channel.state is not State.ENDED)

    # --- before traffic -------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Bytes of earlier programs go.

        Raises:
            KernelMisuse: for what has come behind the question of the far end, which was to wait for the answer.
        """
        df = self._df
        for channel in self._channels:
            if self._heard() is not None and channel.arrival == df.last_arrival:
                raise too_early(channel.name)
            channel.clear()
        if df.peek(df.ack_address, SYNC_BYTES) != ACK_1:
            df.store(df.ack_address, ACK_1)

    def _shake_hands(self) -> None:
        """The end that sends on channel 0 says that it is ready, the other one answers.

        Raises:
            KernelMisuse: when the far end is not its mirror, or does not keep this order.
        """
        df = self._df
        if self._leads:
            if self._word(self._pair)[0] == READY:
                raise self._misuse("the far end has answered before it was asked")
            self._say(HELLO)
        df.wait_until(lambda: self._heard() is not None or self._early is not None, self)
        if self._early is not None:
            raise too_early(self._early.name)
        heard = self._heard()
        assert heard is not None
        said, channels, agreed = self._word(heard)
        if said != (READY if self._leads else HELLO):
            raise self._misuse(
                "both ends ask first; channel 0 must send at one end and receive at the other"
                if self._leads
                else "the far end has answered before it was asked"
            )
        if channels != len(self._channels) or agreed != self._contract(of_far_end=True):
            raise self._misuse(
                f"the data mover at the far end, of {channels} channels, is not the mirror of this one: channels, "
                f"message sizes, numbers of messages and is_merged must be equal; here {self._shown()}"
            )
        df.store(heard.heard, bytes(SYNC_BYTES))
        self._is_open = True
        if not self._leads:
            self._say(READY)
        for channel in self._channels:
            channel.take(Fact.HANDSHAKE_DONE)

    def _say(self, what: int) -> None:
        df, pair = self._df, self._pair
        if what == HELLO and HANDSHAKE.unpack(df.peek(pair.said, SYNC_BYTES))[0] == READY:
            # Nobody says of the answer, which the mover before this one gave, that it has left and was seen.
            pair = self._other_pair
        df.store(pair.said, HANDSHAKE.pack(what, len(self._channels), self._contract(of_far_end=False)))
        df.eth_send_packet(0, pair.said // WORD_BYTES, pair.heard // WORD_BYTES, 1)

    def _heard(self) -> WordPair | None:
        """The pair by which the far end has said something."""
        return next((each for each in (self._pair, self._other_pair) if self._word(each)[0] in (HELLO, READY)), None)

    def _word(self, pair: WordPair) -> tuple[int, int, bytes]:
        what, channels, agreed = HANDSHAKE.unpack(self._df.peek(pair.heard, SYNC_BYTES))
        return what, channels, agreed

    def _contract(self, of_far_end: bool) -> bytes:
        return contract(self._specs, self._layout.is_merged, of_far_end)

    def _shown(self) -> str:
        told = [f"{number} {spec.shown()}" for number, spec in enumerate(self._specs)]
        return f"{'merged' if self._layout.is_merged else 'not merged'}, channel " + ", channel ".join(told)

    def _misuse(self, what: str) -> KernelMisuse:
        return KernelMisuse(f"the data mover on {self._df.core}: {what}")

    # --- the server -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        df, channels, marked, count = self._df, self._channels, self._marked, len(self._channels)
        open_channels = count
        marked.update(range(count))
        while open_channels:
            if not marked:
                looks = df.wait_until(lambda: bool(marked), self)
                self._position = (self._position + looks - 1) % count
            number = self._next()
            if self._visit(channels[number]) and channels[number].state is State.ENDED:
                open_channels -= 1

    def _next(self) -> int:
        """The channel that the loop comes to first of those for which there may be something; passes the others."""
        position, count = self._position, len(self._channels)
        passed = min((number - position) % count for number in self._marked)
        if passed:
            self._df.look_in_vain(passed)
        return (position + passed) % count

    def _visit(self, channel: EdmChannel) -> bool:
        """Whether there was something."""
        number, marked = channel.number, self._marked
        self._position = (number + 1) % len(self._channels)
        fact = channel.fact()
        if fact is None:
            marked.discard(number)
            return False
        if not BOOKED.isdisjoint(channel.take(fact)):
            self._df.owe(self._visits_ns[number])
        # What the channel has written itself has marked it too.
        if channel.fact() is None:
            marked.discard(number)
        return True

    def _written(self, channel: EdmChannel, _writer: str) -> None:
        """A worker may have said something."""
        self._marked.add(channel.number)

    def _arrived(self, channel: EdmChannel, writer: str) -> None:
        """Something was written where the link brings what is for a channel."""
        self._marked.add(channel.number)
        if not self._is_open and writer is FAR_END and self._word(self._pair)[0] != READY:
            self._early = channel


def erisc_data_mover(layout: Layout, channels: Sequence[ChannelSpec], params: DataMoverParams, df: EthDataflow) -> None:
    """The kernel."""
    DataMover(layout, channels, params, df).run()
