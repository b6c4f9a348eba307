"""Process groups of one rank, and the launcher of their collectives and messages."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from operator import index
from typing import Any, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog import AUTO, select
from sipsim.chips.ahbm.collectives.kernel import kernel
from sipsim.chips.ahbm.collectives.launch import Place, PlannedCall, plan_call, worker_programs
from sipsim.chips.ahbm.collectives.programs import Program
from sipsim.chips.ahbm.collectives.settings import effective_ipcq, pair_ipcq
from sipsim.chips.ahbm.collectives.wirings import (
    MOST_GROUPS,
    PAIR_BYTES,
    InstalledWiring,
    PairWorkers,
    PeerPair,
    ProcessGroup,
    group_entries,
    pair_entries,
    pair_program,
    pair_workers,
)
from sipsim.chips.ahbm.host.records import RunRecords
from sipsim.chips.ahbm.host.stream import Stream, WeakTensors, Work
from sipsim.chips.ahbm.host.tensor import device_tensor
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.sip import Sip
from sipsim.collectives.call import NEW_GROUP, PART, WORLD, Call, DeviceTensor, check_call
from sipsim.collectives.group import Group
from sipsim.core.errors import ConfigError, note
from sipsim.records.report import SEND_RECV, places_text

PROGRAM_CACHE_SIZE = 64
"""Calls whose programs are cached for the next call of the same kind."""
Programs = dict[Place, Program]


class PairQueues(NamedTuple):
    """Installed queue pairs from one rank to another: pairs of worker PEs, and an iterator over message numbers."""

    workers: set[tuple[Place, Place]]
    numbers: Iterator[int]


class GroupLauncher:
    """Launches the collectives and messages of process groups on one SIP, and installs queue pairs when needed.

    ``note``: called with each call before its launch. ``_works``: by generation of queue pairs, all works that have not
    ended, and some ended works. ``_evicted``: by generation, the wirings whose memory the generation reuses; these
    wirings are closed before its installation. ``_pairs``: queue pairs for messages, by group number and generation.
    """

    def __init__(self, sip: Sip, stream: Stream, records: RunRecords, note: Callable[[Call], None]) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._stream = stream
        self._records = records
        self._note = note
        self._pair_knobs = pair_ipcq(sip.plan.resolved)
        self._programs: dict[Any, Programs] = {}
        self._works: dict[int, list[Work]] = {}
        self._evicted: dict[int, list[InstalledWiring]] = {}
        self._pairs: dict[int, dict[int, PairQueues]] = {}
        self._noted: set[str] = set()

    def collective(self, work: Work, group: ProcessGroup, algorithm: str, pes: tuple[int, ...]) -> None:
        """Check a work's call, choose its algorithm (as named, by the config, or by estimated cost), and launch it.

        The queue pairs are installed first if needed. This call picks the wirings to evict for a new wiring, so that
        all ranks pick the same. At the start of the launch, when all works that use evicted wirings have ended, these
        wirings are closed and the new wiring is installed. The host does not wait.

        Raises:
            ValueError: for tensors that do not fit, or an algorithm that does not run the call.
            ConfigError: for an algorithm that cannot be loaded, or a schedule that cannot be carried out.
        """
        call, plan, collective = work.call, self._plan, work.call.collective
        assert collective is not None
        if collective.has_root:
            call = call._replace(values=(_root_in(group, call.values[0]),))
        rank = self._rank_in(group)
        check_call(collective, call, group.group.size, rank)
        task = plan_call(collective, call, group.group, plan.system.n_pes, plan.worker_settings, pes or group.pes)
        chosen = select(plan.catalog, task, plan.algorithm, algorithm)
        if plan.catalog.rejected and algorithm in ("", AUTO):
            self._report_rejected(rank)
        group.calls += 1
        n_elem = task.task.n_elem
        what = f"{collective.name} of {n_elem} {call.tensors()[0].dtype}" if work.counts_for_row else work.name
        work.call = call = call._replace(
            group=group.number,
            sips=group.group.sips,
            number=group.calls,
            algorithm=chosen.name,
            text=_call_text(what, group, call, chosen, task, plan.catalog.made_of(chosen, task.task)),
            workers=len(task.places),
            elements=max(collective.elements(n_elem, group.group.size)),
        )
        self._note(call)
        wired = self._wired(group, chosen)
        programs = self._programs_of(group, chosen, task, wired)
        work.generation = wired.generation if wired.wiring else 0
        if wired.generation in self._evicted or any(each not in wired.places for each in task.places):
            work.on_start = partial(self._wire, group, task.places, wired, work.on_start)
        self._launch(work, wired.generation, chosen.kernel, programs, self._users_before(wired))

    def message(self, tensor: DeviceTensor, group: ProcessGroup, peer: int, tag: int, sends: bool) -> Work:
        """Launch this rank's part of a message to or from rank ``peer`` of the run.

        Raises:
            TypeError: when ``tensor`` is not on the device.
            ValueError: for a peer that is not in the group, or this rank itself.
            ConfigError: if no memory has room for the group's rings.
        """
        device_tensor("send" if sends else "recv", tensor)
        rank, other = self._rank_in(group), group.group.rank_of(peer)
        if other is None or rank == other:
            problem = "is this rank" if rank == other else f"is not in {group.name}"
            raise ValueError(f"rank {peer} {problem}; name another rank of the group")
        pair = PeerPair(group, rank, other) if sends else PeerPair(group, other, rank)
        workers = pair_workers(tensor, self._plan.system.n_pes, self._plan.worker_settings, group.pes)
        queues = self._pairs.setdefault(group.number, {}).setdefault(pair.generation, PairQueues(set(), count(1)))
        slot_bytes = self._wire_pair(pair, queues, workers)
        src, dst = pair.sips
        tagged = f", tag {tag}" if tag else ""
        what = f"send/recv of {tensor.numel()} {tensor.dtype} from rank {src} to rank {dst}{tagged}"
        number, shard = next(queues.numbers), tensor.numel() // tensor.dp.blocks()
        where = f"on {places_text(workers.senders)} with shards of {shard} elements"
        call = Call(
            tensor if sends else None,
            None if sends else tensor,
            group=-pair.generation,
            sips=pair.sips,
            number=number,
            algorithm=SEND_RECV,
            text=PART.join((what, f"message {number} of {group.name}", where)),
            workers=len(workers.senders),
            elements=tensor.numel(),
        )
        self._note(call)
        waits_for = f"a message from rank {src} to rank {dst}"
        work = Work(self._stream, SEND_RECV, waits_for, call, counts_for_row=True, is_reported=True)
        work.generation, work.outputs = pair.generation, WeakTensors(tensor)
        work.on_start, work.on_end = self._records.on_start, self._records.on_end
        places = workers.senders if sends else workers.receivers
        programs = {
            place: pair_program(pair, tensor, i, len(places), slot_bytes, sends) for i, place in enumerate(places)
        }
        self._launch(work, pair.generation, kernel, programs)
        return work

    def _launch(
        self, work: Work, generation: int, kernel: Callable[..., None], programs: Programs, after: Sequence[Work] = ()
    ) -> None:
        works = self._works.setdefault(generation, [])
        works[:] = [each for each in works if not each.is_completed()]
        works.append(work)
        call, tensors = work.call, work.call.tensors()
        args = (tensors[0], tensors[-1], call.op, len(call.sips), programs)
        places = [PePlace(self._sip.sip, *place) for place, program in programs.items() if program.instructions]
        self._stream.launch(work, kernel, args, places, after)

    def _rank_in(self, group: ProcessGroup) -> int:
        rank = group.group.rank_of(self._sip.sip)
        assert rank is not None
        return rank

    def _report_rejected(self, rank: int) -> None:
        """Print once, on the first rank of a group, the algorithms that ``auto`` cannot load."""
        for name, reason in self._plan.catalog.rejected.items():
            if rank == 0 and name not in self._noted:
                note(f"algorithm {name} is left out: {reason}")
            self._noted.add(name)

    def close(self, group: ProcessGroup) -> None:
        """Wait for the collectives and messages of a group, then close all its queue pairs."""
        for wired in group.close():
            for work in [*self._users_before(wired), *self._works.get(wired.generation, ())]:
                work.wait()
            self._close(wired)
        for generation, queues in self._pairs.pop(group.number, {}).items():
            for work in self._works.pop(generation, ()):
                work.wait()
            if queues.workers:
                self._sip.close(generation)
        for key in [key for key in self._programs if key[0] == group.number]:
            del self._programs[key]

    def _wired(self, group: ProcessGroup, algorithm: Algorithm) -> InstalledWiring:
        wired, evicted = group.wired(algorithm, effective_ipcq(self._plan.resolved, algorithm.name))
        if evicted:
            self._evicted[wired.generation] = evicted
        return wired

    def _users_before(self, wired: InstalledWiring) -> list[Work]:
        """Return the earlier works that still use the memory that a wiring is going to use."""
        return [
            work
            for old in self._evicted.get(wired.generation, ())
            for work in [*self._users_before(old), *self._works.get(old.generation, ())]
        ]

    def _wire(
        self,
        group: ProcessGroup,
        places: Sequence[Place],
        wired: InstalledWiring,
        then: Callable[[Work], None] | None,
        work: Work,
    ) -> None:
        """Close the evicted wirings, install missing queue pairs on the PEs ``places``, and call ``then(work)``."""
        self._close_evicted(wired)
        new = [place for place in places if place not in wired.places]
        if new and wired.wiring:
            size, ranks = wired.size, group.group
            knobs = effective_ipcq(self._plan.resolved, wired.algorithm)
            knobs = msgspec.structs.replace(knobs, n_slots=size.n_slots, slot_size=size.slot_size)
            offsets = {sip: group.offset(knobs.buffer_kind, sip) + wired.offset for sip in ranks.sips}
            rank = self._rank_in(group)
            entries = group_entries(self._plan.system, knobs, ranks, wired.wiring, new, offsets, rank)
            self._sip.install(wired.generation, entries, [PePlace(sip, *place) for sip in ranks.sips for place in new])
        wired.places.update(dict.fromkeys(new))
        if then is not None:
            then(work)

    def _wire_pair(self, pair: PeerPair, queues: PairQueues, workers: PairWorkers) -> int:
        """Install the missing queue pairs of these workers, and return the bytes of a slot."""
        n_slots, slot_bytes = pair.slots(self._pair_knobs)
        new = [each for each in zip(*workers, strict=True) if each not in queues.workers]
        if not new:
            return slot_bytes
        knobs = msgspec.structs.replace(self._pair_knobs, n_slots=n_slots, slot_size=slot_bytes)
        entries, members = pair_entries(self._plan.system, knobs, pair, new)
        for pe_of_rank in members:
            self._sip.install(pair.generation, entries, pe_of_rank)
        queues.workers.update(new)
        return slot_bytes

    def _close_evicted(self, wired: InstalledWiring) -> None:
        for old in self._evicted.pop(wired.generation, ()):
            self._close(old)

    def _close(self, wired: InstalledWiring) -> None:
        """Close a wiring that no work uses any more."""
        self._close_evicted(wired)
        self._works.pop(wired.generation, None)
        if wired.places and wired.wiring:
            self._sip.close(wired.generation)

    def _programs_of(
        self, group: ProcessGroup, algorithm: Algorithm, task: PlannedCall, wired: InstalledWiring
    ) -> Programs:
        key, size = (group.number, algorithm.name, task, wired.size), wired.size
        programs = self._programs.get(key)
        if programs is None:
            rank = self._rank_in(group)
            programs = worker_programs(algorithm, wired.wiring, task, rank, size.n_slots, size.slot_size)
            while len(self._programs) >= PROGRAM_CACHE_SIZE:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = programs
        return programs


def _call_text(
    what: str, group: ProcessGroup, call: Call, algorithm: Algorithm, planned: PlannedCall, source_hash: str
) -> str:
    collective, shards = planned.task.collective, planned.shards
    root = f"root {group.group.sips[call.values[0]]}" if collective.has_root else ""
    details = ", ".join(filter(None, (call.op if collective.ops else "", root, algorithm.name)))
    return PART.join(
        (
            f"{what} ({details})",
            f"call {group.calls} of {group.name}",
            f"on {places_text(planned.places)} with shards of {shards.source} and {shards.result} elements",
            *([f"by a wiring and schedule whose hash begins with {source_hash}"] if source_hash else []),
        )
    )


def _root_in(group: ProcessGroup, rank: int) -> int:
    """Convert a root, which PyTorch names by its rank in the run, to its rank in the group."""
    root = group.group.rank_of(rank)
    if root is None:
        raise ValueError(f"rank {rank} is not in {group.name}; name a rank of the group")
    return root


Numbers = int | Sequence[int] | None


def select_pes(plan: Plan, sip: int, cubes: Numbers, pes: Numbers) -> list[PePlace] | None:
    """Return each PE of ``pes`` on each cube of ``cubes``; None if both are None.

    If only ``cubes`` is None, all cubes are selected; if only ``pes`` is None, the lead PE of each cube.

    Raises:
        ValueError: for a cube or PE that does not exist or is named twice, or an empty list.
        TypeError: for anything but whole numbers.
    """
    if cubes is None and pes is None:
        return None
    of_sip = _numbers("cubes", cubes, plan.system.n_cubes, "a SIP has cubes", range(plan.system.n_cubes))
    of_cube = _numbers("pes", pes, plan.system.n_pes, "a cube has PEs", [LEAD_PE])
    return [PePlace(sip, cube, pe) for cube in of_sip for pe in of_cube]


def check_pes(plan: Plan, pes: Sequence[int]) -> tuple[int, ...]:
    """Return the PEs of a cube that may work for a collective, in ascending order; an empty tuple allows all.

    Raises:
        ValueError: for a PE that does not exist or is named twice.
        TypeError: for anything but whole numbers.
    """
    if isinstance(pes, tuple | list | range) and not pes:
        return ()
    return tuple(_numbers("pes", pes, plan.system.n_pes, "a cube has PEs", (), "a collective"))


def _numbers(
    name: str, given: Numbers, size: int, owner: str, default: Sequence[int], what: str = "torch.launch"
) -> list[int]:
    if given is None:
        return list(default)
    if isinstance(given, str | bytes) or not (isinstance(given, int) or hasattr(given, "__iter__")):
        raise TypeError(f"{what}: {name}={given!r}: give a number or several numbers, from 0 to {size - 1}")
    numbers = [given] if isinstance(given, int) else list(given)
    if not numbers:
        raise ValueError(f"{what}: {name} is empty; name numbers from 0 to {size - 1}, or leave {name} out")
    for number in numbers:
        if not hasattr(number, "__index__") or isinstance(number, bool):
            raise TypeError(f"{what}: {name}={given!r}: {number!r} is no whole number; give 0 to {size - 1}")
        if not 0 <= number < size:
            raise ValueError(f"{what}: {name}={given!r}: {number} does not exist; {owner} 0 to {size - 1}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{what}: {name}={given!r}: name each number once")
    return sorted(int(number) for number in numbers)


NO_GROUP = -1


class NonMember:
    """Return value of ``new_group`` on a rank that is not in the group."""

    def __init__(self, number: int, sips: tuple[int, ...], window: dict[int, int]) -> None:
        self.number = number
        self.sips = sips
        self.window = window

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NonMember) and (NO_GROUP in (self.number, other.number) or self.number == other.number)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<not in group {self.number} of ranks {', '.join(map(str, self.sips))}>"


class GroupMember:
    """``NON_GROUP_MEMBER`` equals the return value of ``new_group`` on a rank outside of the group."""

    NON_GROUP_MEMBER = NonMember(NO_GROUP, (), {})


GroupHandle = ProcessGroup | NonMember


class ProcessGroups:
    """The process groups of SIP ``sip``, each with a window of memory for its rings.

    All ranks make and destroy groups in the same order. ``note``: called with the text of each of these calls.
    """

    def __init__(self, plan: Plan, sip: int, note: Callable[[str], None]) -> None:
        self._plan = plan
        self._note = note
        self._sip = sip
        self._windows = plan.new_windows()
        self._window_bytes = self._windows.nbytes - PAIR_BYTES
        self._count = 0
        self._live: dict[int, GroupHandle] = {}

    def make(self, ranks: Sequence[int] | None, pes: Sequence[int] = ()) -> GroupHandle:
        """Make a group of the SIPs ``ranks`` in this order, or of all SIPs. ``pes``: PEs of each cube that may work.

        Raises:
            ValueError: for a rank or PE that does not exist or is named twice, or an empty list of ranks.
            ConfigError: when a SIP has no room for another group's rings.
        """
        sips, system = _checked(ranks, self._plan.system.n_sips), self._plan.system
        allowed, number = check_pes(self._plan, pes), self._count
        # Every run makes the group of all ranks; collectives that are wired before the run need no rings of the group.
        needs_no_rings = number == WORLD and not self._windows.count
        if self._count == MOST_GROUPS:
            raise ConfigError(f"new_group: a run makes at most {MOST_GROUPS} groups, destroyed or not; reuse groups")
        window, window_bytes = ({}, 0) if needs_no_rings else (self._windows.take(sips), self._window_bytes)
        self._count += 1
        pes_text = f", pes={list(allowed)}" if allowed else ""
        self._note(f"{NEW_GROUP}({list(sips)}{pes_text})" if number else "init_process_group")
        handle: GroupHandle = NonMember(number, sips, window)
        if self._sip in sips:
            handle = ProcessGroup(number, Group(sips, system), self._windows, window, window_bytes, allowed)
        self._live[number] = handle
        return handle

    def destroy(self, handle: GroupHandle) -> None:
        """Free a group's window; its queue pairs must be closed.

        Raises:
            ValueError: for a group that was destroyed before.
        """
        if self._live.pop(handle.number, None) is None:
            what = handle.name if isinstance(handle, ProcessGroup) else f"group {handle.number}"
            raise ValueError(f"destroy_process_group: {what} was destroyed before; destroy each group once")
        self._note(f"destroy_process_group(group {handle.number})")
        self._windows.free(handle.window)

    def is_live(self, handle: GroupHandle) -> bool:
        """Return whether a group is not destroyed yet."""
        return self._live.get(handle.number) is handle

    def live(self) -> list[GroupHandle]:
        """Return all groups that were not destroyed, in order of creation."""
        return [*self._live.values()]


def _checked(ranks: Sequence[int] | None, n_sips: int) -> tuple[int, ...]:
    if ranks is None:
        return tuple(range(n_sips))
    try:
        numbers = tuple(index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"new_group: ranks={ranks!r}: give a list of ranks, 0 to {n_sips - 1}") from None
    if not numbers:
        raise ValueError("new_group: ranks is empty; name at least one rank")
    for number in numbers:
        if not 0 <= number < n_sips:
            raise ValueError(f"new_group: rank {number} does not exist; ranks are 0 to {n_sips - 1}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"new_group: ranks={list(numbers)}: name each rank once")
    return numbers
