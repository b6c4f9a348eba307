"""One FIFO stream of numbered packets per ordered pair of SIPs. Pure.

All channels of a pair share the stream. A gap is an error with a name, a duplicate is dropped, and
nothing is silently lost.
"""

from typing import NamedTuple


class LostPacket(RuntimeError):
    """A stream skipped a number: a packet on its way to us is gone."""


class SentNews(NamedTuple):
    """What a report says of one stream: packets sent so far, least arrival among those not reported yet."""

    dst: int
    packets: int
    least_arrival_ps: int


class OutStreams:
    """Numbers what one SIP sends and remembers what its next report must say."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._news: dict[int, int] = {}

    def number(self, dst: int, arrival_ps: int) -> int:
        """The sequence number of the next packet to ``dst``, from 0."""
        seq = self.counts.get(dst, 0)
        self.counts[dst] = seq + 1
        known = self._news.get(dst)
        self._news[dst] = arrival_ps if known is None else min(known, arrival_ps)
        return seq

    def news(self) -> tuple[SentNews, ...]:
        """What was sent since the last call, per destination."""
        news = tuple(SentNews(dst, self.counts[dst], arrival) for dst, arrival in sorted(self._news.items()))
        self._news.clear()
        return news


class InStreams:
    """Counts what one SIP has taken from each source."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._changed: set[int] = set()

    def accept(self, src: int, seq: int) -> bool:
        """Whether packet ``seq`` of ``src`` is new.

        Raises:
            LostPacket: when packets before it have not come.
        """
        expected = self.counts.get(src, 0)
        if seq < expected:
            return False
        if seq > expected:
            raise LostPacket(f"packets {expected} to {seq - 1} from SIP {src} are lost: {seq} came first")
        self.counts[src] = expected + 1
        self._changed.add(src)
        return True

    def news(self) -> tuple[tuple[int, int], ...]:
        """(source, count) of every stream that moved since the last call."""
        news = tuple((src, self.counts[src]) for src in sorted(self._changed))
        self._changed.clear()
        return news
