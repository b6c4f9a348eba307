"""What becomes of a message that a receive takes, until its slot is credited (``latch`` in ``ccl.yaml``).

``null``: its bytes are in the handle at once and for nothing, and the slot is credited. ``copy``: PE_DMA copies them
from the ring's memory to the PE's TCM, and then the slot is credited. ``in_place``: the handle stands for the slot. The
first command that names it reads the slot, and the slot is credited when it has done so: a slot in HBM or SRAM when the
bytes are in the PE, one in the TCM at the command's end, or when the last byte of a message has passed PE_DMA. What a
command has read lies in the PE's TCM from then on, so the handle may be named again. ``tl.release`` and the end of the
kernel free a slot without reading it. Slots are credited in order: one that is read waits for those before it.

**Limit**: the write to the TCM beside the first reading takes no time.
"""

COPY, IN_PLACE = "copy", "in_place"
FETCH, PASS = "slot fetch", "slot pass"
"""Spans of the reading of a slot in place: from HBM or SRAM to the PE; by a message that passes PE_DMA."""


class TakenSlot:
    """A slot whose message ``seq`` of a direction was taken. ``read_ps``: when its bytes are read, by span
    ``read_by``; None while that is not known. ``handle``: that which stands for it, empty once a command reads it.
    """

    __slots__ = ("direction", "handle", "nbytes", "read_by", "read_ps", "seq", "slot_pa")

    def __init__(self, direction: str, seq: int, slot_pa: int, nbytes: int) -> None:
        self.direction = direction
        self.seq = seq
        self.slot_pa = slot_pa
        self.nbytes = nbytes
        self.read_ps: int | None = None
        self.read_by = 0
        self.handle = ""
