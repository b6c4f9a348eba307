"""The process groups of one rank: made and destroyed by all ranks in one order, each with a window for its rings."""

from collections.abc import Callable, Sequence
from operator import index

from sipsim.chips.ahbm.collectives.wirings.pairs import PAIR_BYTES
from sipsim.chips.ahbm.collectives.wirings.process_group import MOST_GROUPS, ProcessGroup
from sipsim.chips.ahbm.collectives.wirings.windows import Windows
from sipsim.chips.ahbm.host.process_groups.places import allowed_pes
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.call.calls import NEW_GROUP, WORLD
from sipsim.collectives.group.group import Group
from sipsim.core.errors import ConfigError
from sipsim.core.units import BYTES_PER_KIB

NO_GROUP = -1


class NonMember:
    """What ``new_group`` returns on a rank that is not in the group."""

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
    """``new_group`` on a rank outside of the group returns what is equal to ``NON_GROUP_MEMBER``."""

    NON_GROUP_MEMBER = NonMember(NO_GROUP, (), {})


GroupHandle = ProcessGroup | NonMember


class ProcessGroups:
    """Those of SIP ``sip``. ``note``: is told of each that is made or destroyed, as text."""

    def __init__(self, plan: Plan, sip: int, note: Callable[[str], None]) -> None:
        self._plan = plan
        self._note = note
        self._sip = sip
        nbytes = plan.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB
        region, used = plan.system.tcm.ipcq, plan.tcm_ring_bytes
        stride, room = nbytes + PAIR_BYTES, max(region.size - used, 0)
        self._windows = Windows(plan.system.n_sips, region.offset + used, stride, room // stride)
        self._window_bytes = nbytes
        self._made = 0
        self._live: dict[int, GroupHandle] = {}

    def make(self, ranks: Sequence[int] | None, pes: Sequence[int] = ()) -> GroupHandle:
        """A group of these SIPs, in the order given; None: of all. ``pes``: of each cube, which may work for it.

        Raises:
            ValueError: for a rank or a PE that does not exist or is named twice, or no rank.
            ConfigError: when a SIP has no room for another group's rings.
        """
        sips, system = _checked(ranks, self._plan.system.n_sips), self._plan.system
        allowed, number = allowed_pes(self._plan, pes), self._made
        # The group of all ranks is made with every run, and collectives that are wired before it need no rings of it.
        has_none = number == WORLD and not self._windows.count
        if self._made == MOST_GROUPS:
            raise ConfigError(f"new_group: a run has {MOST_GROUPS} groups at most, those that are destroyed included")
        window, window_bytes = ({}, 0) if has_none else (self._windows.take(sips), self._window_bytes)
        self._made += 1
        on = f", pes={list(allowed)}" if allowed else ""
        self._note(f"{NEW_GROUP}({list(sips)}{on})" if number else "init_process_group")
        handle: GroupHandle = NonMember(number, sips, window)
        if self._sip in sips:
            handle = ProcessGroup(number, Group(sips, system), window, window_bytes, allowed)
        self._live[number] = handle
        return handle

    def destroy(self, handle: GroupHandle) -> None:
        """Give back a group's window; its wirings must be closed.

        Raises:
            ValueError: for a group that was destroyed before.
        """
        if self._live.pop(handle.number, None) is None:
            what = handle.name if isinstance(handle, ProcessGroup) else f"group {handle.number}"
            raise ValueError(f"destroy_process_group: {what} was destroyed before")
        self._note(f"destroy_process_group(group {handle.number})")
        self._windows.give(handle.window)

    def is_live(self, handle: GroupHandle) -> bool:
        """Whether it was not destroyed."""
        return self._live.get(handle.number) is handle

    def live(self) -> list[GroupHandle]:
        """All that were not destroyed, in order."""
        return [*self._live.values()]


def _checked(ranks: Sequence[int] | None, n_sips: int) -> tuple[int, ...]:
    if ranks is None:
        return tuple(range(n_sips))
    try:
        numbers = tuple(index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"new_group: ranks={ranks!r}: give a list of ranks, 0 to {n_sips - 1}") from None
    if not numbers:
        raise ValueError("new_group: ranks is empty; name at least one")
    for number in numbers:
        if not 0 <= number < n_sips:
            raise ValueError(f"new_group: rank {number} does not exist; ranks are 0 to {n_sips - 1}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"new_group: ranks={list(numbers)} names one twice")
    return numbers
