"""Runs collectives of process groups on one SIP: chooses the algorithm, wires it when it is needed, launches it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog.select import AUTO, select
from sipsim.chips.ahbm.collectives.launch.launch import Prepared, prepared, worker_programs
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.programs.program import Instruction
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.collectives.wirings.install import group_entries
from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup, Wired
from sipsim.chips.ahbm.host.stream.kernel_queue import KernelQueue, Work
from sipsim.chips.ahbm.sip.sip import Sip
from sipsim.collectives.call.base import Call
from sipsim.collectives.call.calls import PART
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.core.errors import note
from sipsim.records.report.launches import places_text

MOST_KEPT = 64
"""Programs that are kept for the next call of the same kind."""


class Ready(NamedTuple):
    """A call that can be launched, ``call`` with the group's ranks. ``text``: the same on all ranks that make it."""

    call: Call
    group: ProcessGroup
    algorithm: Algorithm
    prepared: Prepared
    text: str


class GroupRuns:
    """Those of one SIP. By generation, ``_of_generation``: its works that have not ended, and some that have;
    ``_displaced``: the wirings that lie in its room, and are closed before it is installed.
    """

    def __init__(self, sip: Sip, queue: KernelQueue) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._queue = queue
        self._programs: dict[Any, dict[Place, list[Instruction]]] = {}
        self._of_generation: dict[int, list[Work]] = {}
        self._displaced: dict[int, list[Wired]] = {}
        self._told: set[str] = set()

    def ready(
        self,
        collective: GroupCollective,
        call: Call,
        group: ProcessGroup,
        algorithm: str,
        pes: tuple[int, ...] = (),
        name: str = "",
    ) -> Ready:
        """Check a call and choose its algorithm: the one named, or else by the config, or else by its cost.

        ``name``: what the call is told as, where the collective only carries it out, as of a barrier.

        Raises:
            ValueError: for tensors that do not fit, or an algorithm that cannot run it.
            ConfigError: for one that cannot be loaded, or whose schedule cannot be carried out.
        """
        if collective.has_root:
            call = call._replace(values=(_root_in(group, call.values[0]),))
        rank = group.group.rank_of(self._sip.sip)
        assert rank is not None
        collective.check_call(call, group.group.size, rank)
        task = prepared(collective, call, group.group, self._plan.system.n_pes, self._plan.worker_settings, pes)
        chosen = select(self._plan.catalog, task, self._plan.algorithm, algorithm)
        if self._plan.catalog.left_out and algorithm in ("", AUTO):
            self._tell_left_out(rank)
        group.calls += 1
        what = name or f"{collective.name} of {task.task.n_elem} {call.tensors()[0].dtype}"
        made_of = self._plan.catalog.made_of(chosen, task.task)
        return Ready(call, group, chosen, task, _text(what, group, collective, call, chosen, task, made_of))

    def _tell_left_out(self, rank: int) -> None:
        """By the first rank of a group, and once: the algorithms that ``auto`` goes on without."""
        for name, why in self._plan.catalog.left_out.items():
            if rank == 0 and name not in self._told:
                note(f"algorithm {name} is left out: {why}")
            self._told.add(name)

    def launch(self, work: Work, ready: Ready) -> None:
        """Launch an algorithm's kernel on the workers, and wire it first, if its queue pairs are not there.

        Which wirings make room for a new one is decided here, alike on all ranks. They are closed, and the new one is
        installed, when the launch starts: once the works that use them have ended, without a wait of the host.
        """
        wired = self._wired(ready)
        programs = self._programs_of(ready, wired)
        places = [PePlace(self._sip.sip, *place) for place in ready.prepared.places if programs[place]]
        work.generation, work.call = wired.generation if wired.wiring else 0, ready.text
        tensors, task = ready.call.tensors(), ready.prepared.task
        work.workers = len(ready.prepared.places)
        work.count = max(task.collective.elements(task.n_elem, task.size))
        args = (tensors[0], tensors[-1], ready.call.op, ready.group.group.size, programs)
        after = self._users_before(wired)
        if wired.generation in self._displaced or any(each not in wired.places for each in ready.prepared.places):
            work.on_start = self._wiring_first(ready, wired, work.on_start)
        self._of_generation.setdefault(wired.generation, []).append(work)
        self._queue.launch(work, ready.algorithm.kernel, args, places, after)

    def close(self, group: ProcessGroup) -> None:
        """Close all wirings of a group, once its collectives have ended."""
        for wired in group.close():
            for work in [*self._users_before(wired), *self._of_generation.get(wired.generation, ())]:
                work.wait()
            self._close(wired)
        for key in [key for key in self._programs if key[0] == group.number]:
            del self._programs[key]

    def _wired(self, ready: Ready) -> Wired:
        knobs = effective_ipcq(self._plan.resolved, ready.algorithm.name)
        wired, gone = ready.group.wired(ready.algorithm, knobs)
        if gone:
            self._displaced[wired.generation] = gone
        works = self._of_generation.get(wired.generation, [])
        works[:] = [work for work in works if not work.is_completed()]
        return wired

    def _users_before(self, wired: Wired) -> list[Work]:
        """The works that use the room of a wiring before it."""
        return [
            work
            for old in self._displaced.get(wired.generation, ())
            for work in [*self._users_before(old), *self._of_generation.get(old.generation, ())]
        ]

    def _wiring_first(self, ready: Ready, wired: Wired, then: Callable[[], None] | None) -> Callable[[], None]:
        def start() -> None:
            self._close_displaced(wired)
            self._install(ready, wired)
            if then is not None:
                then()

        return start

    def _install(self, ready: Ready, wired: Wired) -> None:
        new = [place for place in ready.prepared.places if place not in wired.places]
        if new and wired.wiring:
            size, group = wired.size, ready.group
            knobs = effective_ipcq(self._plan.resolved, wired.algorithm)
            knobs = msgspec.structs.replace(knobs, buffer_kind="tcm", n_slots=size.n_slots, slot_size=size.slot_size)
            offsets = {sip: start + wired.offset for sip, start in group.window.items()}
            rank = group.group.rank_of(self._sip.sip)
            assert rank is not None
            entries = group_entries(self._plan.system, knobs, group.group, wired.wiring, new, offsets, rank)
            members = [PePlace(sip, *place) for sip in group.group.sips for place in new]
            self._sip.install(wired.generation, entries, members)
        wired.places.update(dict.fromkeys(new))

    def _close_displaced(self, wired: Wired) -> None:
        for old in self._displaced.pop(wired.generation, ()):
            self._close(old)

    def _close(self, wired: Wired) -> None:
        """End a wiring that no work uses any more."""
        self._close_displaced(wired)
        self._of_generation.pop(wired.generation, None)
        if wired.places and wired.wiring:
            self._sip.close(wired.generation)

    def _programs_of(self, ready: Ready, wired: Wired) -> dict[Place, list[Instruction]]:
        key = (ready.group.number, ready.algorithm.name, ready.prepared, wired.size)
        made = self._programs.get(key)
        if made is None:
            rank = ready.group.group.rank_of(self._sip.sip)
            assert rank is not None
            size = wired.size
            made = worker_programs(ready.algorithm, wired.wiring, ready.prepared, rank, size.n_slots, size.slot_size)
            while len(self._programs) >= MOST_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = made
        return made


def _text(
    what: str,
    group: ProcessGroup,
    collective: GroupCollective,
    call: Call,
    algorithm: Algorithm,
    made: Prepared,
    made_of: str,
) -> str:
    said = ", ".join(filter(None, (call.op if collective.ops else "", *_root(collective, call, group), algorithm.name)))
    return PART.join(
        (
            f"{what} ({said})",
            f"call {group.calls} of {group.name}",
            f"on {places_text(made.places)} with shards of {made.shards.source} and {made.shards.result} elements",
            *([f"by a wiring and schedule whose hash begins with {made_of}"] if made_of else []),
        )
    )


def _root_in(group: ProcessGroup, rank: int) -> int:
    """A rank of the run in a group, as PyTorch names roots."""
    root = group.group.rank_of(rank)
    if root is None:
        raise ValueError(f"rank {rank} is not in {group.name}")
    return root


def _root(collective: GroupCollective, call: Call, group: ProcessGroup) -> list[str]:
    return [f"root {group.group.sips[call.values[0]]}"] if collective.has_root else []
