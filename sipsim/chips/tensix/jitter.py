"""Latencies that vary within ranges, drawn from a seed, so that a race search meets orders that a run does not show.

A draw is a hash of (seed, place, number): the place is a direction of a link, a way of a NoC from tile to tile, or a
processor, and the number counts what has passed there. So it depends on what is simulated alone: it is the same with
every engine, on every machine, and after a restart.

Jitter only adds latency. That keeps every bound of the conservative synchronisation:

* A message on a link would arrive at ``a`` without its draw, and ``a`` is at least the time of its command plus the
  channel's lookahead, and at least the bound that was promised plus the pair's least delay (``Session.emit`` checks
  both). With it it arrives at ``max(a + draw, arrival of the one before) >= a``, so both still hold.
* Lookahead, reactions and promises are least times, derived without jitter. A chip in which NoC commands and kernels
  start later sends no sooner for it: each event comes at a draw of 0 or more behind its cause, and the least times
  allow any time behind a cause.

Order is kept where hardware keeps it: messages of one queue of a link arrive as they were sent, and commands of one
tile to another on one NoC start as they were issued. All other orders may change; that is what it is for. What waits
until writes have left (``noc_async_writes_flushed``) does not wait for their draws, as if others were in front of them
on their way.
"""

from hashlib import blake2b

from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import JitterParams
from sipsim.core.units import ns_to_ps

Ps = int
NUMBER_BYTES = 8


class Draws:
    """Times from 0 to ``most_ps``, evenly, for what passes one place in turn."""

    def __init__(self, seed: int, place: str, most_ps: Ps) -> None:
        self._key = blake2b(f"jitter {seed} {place}".encode()).digest()
        self._range = most_ps + 1
        self._number = 0

    def next_ps(self) -> Ps:
        """The next one."""
        number = self._number.to_bytes(NUMBER_BYTES, "big")
        self._number += 1
        drawn = blake2b(number, key=self._key, digest_size=NUMBER_BYTES).digest()
        return int.from_bytes(drawn, "big") * self._range >> 8 * NUMBER_BYTES


class Delays:
    """Draws of one place where nothing overtakes what was before it."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._last_ps: Ps = 0

    def later_ps(self, time_ps: Ps) -> Ps:
        """``time_ps`` and a draw, and no sooner than the time before."""
        self._last_ps = max(self._last_ps, time_ps + self._draws.next_ps())
        return self._last_ps


class Jitter:
    """The draws of all places of SIP ``sip``."""

    def __init__(self, seed: int, params: JitterParams, sip: int) -> None:
        self._seed = seed
        self._sip = sip
        self._link_ps, self._noc_ps = ns_to_ps(params.link_ns), ns_to_ps(params.noc_ns)
        self._start_ps = ns_to_ps(params.start_ns)
        self._ways: dict[tuple[int, Core, Core], Delays] = {}
        self._starts: dict[tuple[Core, int], Draws] = {}

    @classmethod
    def of(cls, params: JitterParams, sip: int) -> "Jitter | None":
        """None where there is no seed: without jitter nothing is drawn."""
        return None if params.seed is None else cls(params.seed, params, sip)

    def of_link(self, channel: int) -> Delays:
        """Of the messages that leave by an Ethernet channel."""
        return Delays(self._draws(f"link {channel}", self._link_ps))

    def of_credits(self, channel: int) -> Delays:
        """Of the credits of routers that leave by an Ethernet channel, on the queue that messages do not use."""
        return Delays(self._draws(f"link {channel} credits", self._link_ps))

    def noc_delay_ps(self, noc: int, src: Core, dst: Core, now_ps: Ps, delay_ps: Ps = 0) -> Ps:
        """How much later than now a transfer from one tile to another on a NoC starts; without jitter ``delay_ps``."""
        way = self._ways.get((noc, src, dst))
        if way is None:
            draws = self._draws(f"noc {noc} {src} {dst}", self._noc_ps)
            way = self._ways[noc, src, dst] = Delays(draws)
        return way.later_ps(now_ps + delay_ps) - now_ps

    def start_delay_ps(self, core: Core, processor: int) -> Ps:
        """How much later than its program the next kernel of a processor starts."""
        draws = self._starts.get((core, processor))
        if draws is None:
            draws = self._starts[core, processor] = self._draws(f"start {core} {processor}", self._start_ps)
        return draws.next_ps()

    def _draws(self, place: str, most_ps: Ps) -> Draws:
        return Draws(self._seed, f"SIP {self._sip} {place}", most_ps)
