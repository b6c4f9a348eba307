"""Times of single commands where no other traffic is met: sums of the terms of
:mod:`sipsim.chips.ahbm.costs.prices.terms`.
"""

from functools import cache

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.costs.prices.terms import Machine, Place, memory_of, on_any_sip, sum_ps
from sipsim.chips.ahbm.ipcq.credits import FABRIC, FAST_PATH, PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages.latch import IN_PLACE
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqInitEntry
from sipsim.chips.ahbm.plan import Plan

Ps = int


class CommandTimes:
    """Times in ps. What is asked again is remembered: kernels repeat few commands very often."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._machine = Machine(plan.resolved, plan.ipcq)
        self.math_ps = cache(lambda nbytes, is_special: sum_ps(self._machine.math(nbytes, is_special)))
        self._read_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.read(place, memory, nbytes)))
        self._write_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.write(place, memory, nbytes)))
        self._latch_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.latch(place, memory, nbytes)))
        self.message_ps = cache(self._message_ps)
        self.issue_ps = sum_ps(self._machine.issue())
        self._has_launches = plan.resolved.components.launch is not None

    def read_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A load: command, read latency, data."""
        return self._read_ps(on_any_sip(place), memory_of(address), nbytes)

    def write_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A store: data, write latency, acknowledgement."""
        return self._write_ps(on_any_sip(place), memory_of(address), nbytes)

    def launch_ps(self, sip: int, places: list[tuple[int, int]]) -> Ps:
        """From the host's launch on these PEs of a SIP to the start of its kernels."""
        return sum_ps(self._machine.launch(sip, places)) if self._has_launches else 0

    def gather_ps(self, place: tuple[int, int]) -> Ps:
        """From the end of the last kernel, there, to the host."""
        return sum_ps(self._machine.gathering(place)) if self._has_launches else 0

    def latch_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A copy of a message from its slot to the kernel's region of the TCM."""
        return self._latch_ps(on_any_sip(place), memory_of(address), nbytes)

    def _message_ps(self, src: PePlace, entry: IpcqInitEntry, nbytes: int) -> tuple[Ps, Ps]:
        """From ``tl.send`` until a message of ``nbytes`` is in its slot; and the time for which it holds its route."""
        terms = self._machine.message((src.sip, src.cube, src.pe), entry.direction, entry.peer, nbytes, None)
        return sum_ps(terms), sum(term.ps for term in terms if term.is_drain)

    def credit_ps(self, place: PePlace, entry: IpcqInitEntry) -> tuple[Ps, Ps]:
        """For how long ``tl.recv`` is blocked by the credit, and how long the credit takes to the sender."""
        here, mode = (place.sip, place.cube, place.pe), entry.credit_mode
        if self._plan.ipcq.latch == IN_PLACE:
            mode = PIGGYBACK
        whole_ps = self._plan.ipcq_overhead_ps + entry.credit_ps
        if mode == FAST_PATH:
            return whole_ps, whole_ps
        if mode == FABRIC:
            return sum_ps(self._machine.injection(here, entry.direction, entry.peer.place)), whole_ps
        return 0, whole_ps
