"""The messages that map a tensor in the page tables of a SIP's PEs, and by which the same mappings end.

For all PEs copy 0; where there are copies, for all PEs of a cube the first copy there, and for a PE its own
(:class:`~sipsim.chips.ahbm.host.layout.dp_policy.DPPolicy`).
"""

from sipsim.chips.ahbm.host.memory.storage import Allocation, Block, Segment
from sipsim.chips.ahbm.memory.mmu.page_table import MmuMapEntry, MmuMapMsg, Target


def map_messages(allocation: Allocation) -> list[MmuMapMsg]:
    """One message for each target, all PEs first."""
    entries: dict[Target, list[MmuMapEntry]] = {}
    for segment in allocation.segments:
        for target, block in _seen(segment).items():
            entries.setdefault(target, []).append(MmuMapEntry(segment.va, block.pa, segment.nbytes))
    return [MmuMapMsg(cube, pe, tuple(some), str(allocation)) for (cube, pe), some in entries.items()]


def _seen(segment: Segment) -> dict[Target, Block]:
    """The block that each target gets."""
    found: dict[Target, Block] = {(None, None): segment.blocks()[0]}
    for (cube, pe), block in segment.copies.items():
        found.setdefault((cube, None), block)
        found[cube, pe] = block
    return found
