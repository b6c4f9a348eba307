"""FIFO streams of numbered packets: one per ordered pair of SIPs, shared by all channels of the pair. Pure.

A gap raises :class:`LostPacket`; a duplicate is dropped.
"""


class LostPacket(RuntimeError):
    """Error for a stream that skipped a number, so that a packet in flight is lost."""


class OutStreams:
    """Numbers the packets that one SIP sends, and counts packets for the SIP's next report.

    ``logged``: by destination, the number of packets in the log of earlier incarnations, which the broker has counted.
    """

    def __init__(self, logged: dict[int, int] | None = None) -> None:
        self.counts: dict[int, int] = {}
        self.logged = logged or {}
        self._news: dict[int, int] = {}

    def number(self, dst: int, arrival_ps: int) -> int:
        """Count a packet to ``dst`` that arrives at ``arrival_ps``; return its sequence number, from 0."""
        seq = self.counts.get(dst, 0)
        self.counts[dst] = seq + 1
        if seq < self.logged.get(dst, 0):
            return seq
        least_ps = self._news.get(dst)
        self._news[dst] = arrival_ps if least_ps is None else min(least_ps, arrival_ps)
        return seq

    def news(self) -> tuple[tuple[int, int, int], ...]:
        """Return (destination, packets sent so far, least new arrival in ps) of each stream with new packets."""
        if not self._news:
            return ()
        counts = self.counts
        news = tuple([(dst, counts[dst], arrival) for dst, arrival in sorted(self._news.items())])
        self._news.clear()
        return news


class InStreams:
    """Counts the packets that one SIP has taken from each source."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._changed: set[int] = set()

    def accept(self, src: int, first: int, packets: int = 1) -> int:
        """Count packets of ``src``, numbered from ``first`` on; return the number of duplicates at their start.

        Raises:
            LostPacket: when packets before number ``first`` have not arrived.
        """
        expected = self.counts.get(src, 0)
        if first > expected:
            raise LostPacket(f"packets {expected} to {first - 1} from SIP {src} are lost: packet {first} arrived first")
        duplicates = min(expected - first, packets)
        if duplicates < packets:
            self.counts[src] = first + packets
            self._changed.add(src)
        return duplicates

    def news(self) -> tuple[tuple[int, int], ...]:
        """Return (source, packets taken so far) of each stream that has grown since the last call."""
        if not self._changed:
            return ()
        counts = self.counts
        news = tuple([(src, counts[src]) for src in sorted(self._changed)])
        self._changed.clear()
        return news
