"""One FIFO stream of numbered packets per ordered pair of SIPs. Pure.

All channels of a pair share the stream. A gap is an error with a name, a duplicate is dropped, and
nothing is silently lost.
"""


class LostPacket(RuntimeError):
    """A stream skipped a number: a packet on its way to us is gone."""


class OutStreams:
    """Numbers what one SIP sends and remembers what its next report must say.

    ``logged``: by destination, how many packets the broker has been told of before the first one was made.
    """

    def __init__(self, logged: dict[int, int] | None = None) -> None:
        self.counts: dict[int, int] = {}
        self.logged = logged or {}
        self._news: dict[int, int] = {}

    def number(self, dst: int, arrival_ps: int) -> int:
        """The sequence number of the next packet to ``dst``, from 0."""
        seq = self.counts.get(dst, 0)
        self.counts[dst] = seq + 1
        if seq < self.logged.get(dst, 0):
            return seq
        known = self._news.get(dst)
        self._news[dst] = arrival_ps if known is None else min(known, arrival_ps)
        return seq

    def news(self) -> tuple[tuple[int, int, int], ...]:
        """Since the last call: (destination, packets sent so far, least arrival among those not told of yet)."""
        if not self._news:
            return ()
        counts = self.counts
        news = tuple([(dst, counts[dst], arrival) for dst, arrival in sorted(self._news.items())])
        self._news.clear()
        return news


class InStreams:
    """Counts what one SIP has taken from each source."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._changed: set[int] = set()

    def accept(self, src: int, first: int, packets: int = 1) -> int:
        """How many of ``packets`` that start with number ``first`` of ``src`` are known already; the others are new.

        Raises:
            LostPacket: when packets before them have not come.
        """
        expected = self.counts.get(src, 0)
        if first > expected:
            raise LostPacket(f"packets {expected} to {first - 1} from SIP {src} are lost: {first} came first")
        known = min(expected - first, packets)
        if known < packets:
            self.counts[src] = first + packets
            self._changed.add(src)
        return known

    def news(self) -> tuple[tuple[int, int], ...]:
        """(source, count) of every stream that moved since the last call."""
        if not self._changed:
            return ()
        counts = self.counts
        news = tuple([(src, counts[src]) for src in sorted(self._changed)])
        self._changed.clear()
        return news
