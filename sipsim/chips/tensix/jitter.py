"""Random latencies, drawn from a seed, by which a race search reaches event orders that a plain run does not.

A draw is a hash of (seed, place, number). The place is a direction of a link, a NoC path from tile to tile, or a
processor; the number counts the draws of this place. So draws are equal with every engine, on every machine, and after
a restart.

Jitter only adds latency. So every bound of the conservative synchronisation still holds:

* Without a draw, a message on a link arrives at a time ``a``, which is at least the time of the command plus the
  channel's lookahead, and at least the promised bound plus the pair's least delay (``Session.emit`` checks both). With
  a draw, the message arrives at ``max(a + draw, arrival of the message before) >= a``, so both bounds still hold.
* Lookahead, reactions and promises are least times, derived without jitter. A chip whose NoC commands and kernels start
  later does not send earlier, as no event precedes its cause.

Jitter keeps the orders that hardware keeps: messages of one queue of a link arrive in the order of their sends, and
commands of one tile to another on one NoC start in the order of their issue. All other orders may change:

* A kernel's message over a link arrives in two parts, divided at a random word, the second part later than the first.
* A kernel's NoC write leaves the tile late, rarely: the bytes are read then, and only a wait until writes have left
  (``noc_async_writes_flushed``) or have arrived includes this delay. A draw on the path from tile to tile delays the
  write after it has left.
* A kernel's store into its L1 is late, rarely.
"""

from hashlib import blake2b

from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import JitterParams
from sipsim.core.units import ns_to_ps

Ps = int
NUMBER_BYTES = 8
RARE = 16
"""One of so many rare delays is more than 0."""
DIVISIONS = 2**32


class Draws:
    """Random times of one place, uniformly distributed from 0 to ``most_ps``."""

    def __init__(self, seed: int, place: str, most_ps: Ps) -> None:
        self._key = blake2b(f"jitter {seed} {place}".encode()).digest()
        self._range = most_ps + 1
        self._number = 0

    def next_ps(self) -> Ps:
        """Return the next random time."""
        number = self._number.to_bytes(NUMBER_BYTES, "big")
        self._number += 1
        drawn = blake2b(number, key=self._key, digest_size=NUMBER_BYTES).digest()
        return int.from_bytes(drawn, "big") * self._range >> 8 * NUMBER_BYTES


class RareDraws(Draws):
    """Random times of one place, of which one in :data:`RARE` is uniformly distributed from 0 to ``most_ps``, and the
    others are 0.
    """

    def __init__(self, seed: int, place: str, most_ps: Ps) -> None:
        super().__init__(seed, place, most_ps * RARE)
        self._others = most_ps * (RARE - 1)

    def next_ps(self) -> Ps:
        """Return the next random time."""
        return max(super().next_ps() - self._others, 0)


class Parts:
    """Random divisions of the messages of one place into two parts."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def first_words(self, words: int) -> int:
        """Return the size of the first part of a message of ``words``, 2 or more; both parts have 1 word or more."""
        return 1 + self._draws.next_ps() * (words - 1) // (DIVISIONS + 1)


class Delays:
    """Random delays of the events at one place, without a change of their order."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._last_ps: Ps = 0

    def later_ps(self, time_ps: Ps) -> Ps:
        """Return ``time_ps`` plus a random delay, but not less than the last returned time."""
        self._last_ps = max(self._last_ps, time_ps + self._draws.next_ps())
        return self._last_ps


class Jitter:
    """Random delays at all places of SIP ``sip``."""

    def __init__(self, seed: int, params: JitterParams, sip: int) -> None:
        self._seed = seed
        self._sip = sip
        self._link_ps, self._noc_ps = ns_to_ps(params.link_ns), ns_to_ps(params.noc_ns)
        self._start_ps, self._late_ps = ns_to_ps(params.start_ns), ns_to_ps(params.late_ns)
        self._paths: dict[tuple[int, Core, Core], Delays] = {}
        self._starts: dict[tuple[Core, int], Draws] = {}
        self._departures: dict[tuple[int, Core], Delays] = {}
        self._stores: dict[str, RareDraws] = {}

    @classmethod
    def of(cls, params: JitterParams, sip: int) -> "Jitter | None":
        """Return the jitter of a SIP, or None without a seed."""
        return None if params.seed is None else cls(params.seed, params, sip)

    def of_link(self, channel: int) -> Delays:
        """Return the delays of the messages that an Ethernet channel sends."""
        return Delays(self._draws(f"link {channel}", self._link_ps))

    def of_parts(self, channel: int) -> Parts:
        """Return the divisions of the messages that kernels send on an Ethernet channel."""
        return Parts(self._draws(f"link {channel} parts", DIVISIONS))

    def of_credits(self, channel: int) -> Delays:
        """Return the delays of the credits that a router sends on an Ethernet channel, in a queue of their own."""
        return Delays(self._draws(f"link {channel} credits", self._link_ps))

    def noc_delay_ps(self, noc: int, src: Core, dst: Core, now_ps: Ps, delay_ps: Ps = 0) -> Ps:
        """Return the delay from now until a NoC transfer starts: ``delay_ps`` plus jitter, in the path's order."""
        path = self._paths.get((noc, src, dst))
        if path is None:
            draws = self._draws(f"noc {noc} {src} {dst}", self._noc_ps)
            path = self._paths[noc, src, dst] = Delays(draws)
        return path.later_ps(now_ps + delay_ps) - now_ps

    def departure_ps(self, noc: int, src: Core, now_ps: Ps) -> Ps:
        """Return the time, now or later, at which a write leaves a tile on a NoC, in the order of the tile's writes."""
        departures = self._departures.get((noc, src))
        if departures is None:
            draws = RareDraws(self._seed, f"SIP {self._sip} departures {noc} {src}", self._late_ps)
            departures = self._departures[noc, src] = Delays(draws)
        return departures.later_ps(now_ps)

    def store_delay_ps(self, kernel: str) -> Ps:
        """Return the delay of the next store of a kernel into its L1. ``kernel``: names of kernel and tile."""
        draws = self._stores.get(kernel)
        if draws is None:
            place = f"SIP {self._sip} stores {kernel}"
            draws = self._stores[kernel] = RareDraws(self._seed, place, self._late_ps)
        return draws.next_ps()

    def start_delay_ps(self, core: Core, processor: int) -> Ps:
        """Return the delay between a program's start and the start of the next kernel of a processor."""
        draws = self._starts.get((core, processor))
        if draws is None:
            draws = self._starts[core, processor] = self._draws(f"start {core} {processor}", self._start_ps)
        return draws.next_ps()

    def _draws(self, place: str, most_ps: Ps) -> Draws:
        return Draws(self._seed, f"SIP {self._sip} {place}", most_ps)
