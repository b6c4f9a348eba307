"""64-bit physical addresses ``(sip, cube, pe, space, offset)``, and the regions of a TCM.

Bit layout, from the top: 1 bit that is set for virtual addresses, 11 bits SIP, 8 bits cube, 6 bits PE,
2 bits space, 36 bits offset. The PE bits have no effect for a memory that a cube has once, such as SRAM.
ADR-0023 D20 defines the TCM regions.
"""

from typing import NamedTuple

import msgspec

from sipsim.chips.ahbm.hardware import QUEUE_PAIR_BYTES
from sipsim.config.schema import TcmLayout
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Definitions

SPACES = ["tcm", "hbm", "sram"]
"""Memory spaces, indexed by code; :func:`add_space` appends to the list."""
OFFSET_BITS, SPACE_BITS, PE_BITS, CUBE_BITS, SIP_BITS = 36, 2, 6, 8, 11
VIRTUAL_BIT = 1 << 63
RING_VA_BASE = VIRTUAL_BIT | 1 << 62
"""First virtual address of receive rings; virtual addresses of tensors are lower."""
MIB = 2**20
LEAD_PE = 0
"""Lead PE of a cube: its HBM slice holds tensors by default; it has the cube's rank if a rank is a cube or a SIP."""

_PE_SHIFT = OFFSET_BITS + SPACE_BITS
_CUBE_SHIFT = _PE_SHIFT + PE_BITS
_SIP_SHIFT = _CUBE_SHIFT + CUBE_BITS


class _Codes(Definitions[str, int]):
    """Codes of memory spaces: name to index in :data:`SPACES`."""

    def forget(self) -> None:
        super().forget()
        SPACES[:] = self
        self.update((name, code) for code, name in enumerate(SPACES))


_SPACE_CODE = _Codes()
_SPACE_CODE.update((name, code) for code, name in enumerate(SPACES))


def add_space(name: str, module: str) -> None:
    """Assign a code to memory space ``name``, which ``module`` defines, unless the space has a code already.

    Raises:
        ValueError: if no code is left.
    """
    if name in _SPACE_CODE:
        return
    if len(SPACES) == 1 << SPACE_BITS:
        raise ValueError(f"memory space {name!r}: all {1 << SPACE_BITS} codes of memory spaces are taken")
    _SPACE_CODE.define(name, len(SPACES), module)
    SPACES.append(name)


class PePlace(NamedTuple):
    """Place of a PE in the system: numbers of its SIP, of its cube in the SIP, and of the PE in the cube."""

    sip: int
    cube: int
    pe: int


class Block(msgspec.Struct, frozen=True, gc=False):
    """Block in memory, such as a tile of a matrix: ``rows`` rows of ``row_bytes`` each, at equal distances.

    The first row is at ``address``, each next row ``pitch`` bytes later (at least ``row_bytes``). The contents of a
    block are its rows, concatenated.
    """

    address: int
    rows: int
    row_bytes: int
    pitch: int

    @classmethod
    def piece(cls, address: int, nbytes: int) -> "Block":
        """Return a contiguous block."""
        return cls(address, 1, nbytes, nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

    @property
    def reach_bytes(self) -> int:
        """Bytes from the first to the last byte, gaps included."""
        return (self.rows - 1) * self.pitch + self.row_bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the rows have no gaps."""
        return self.rows == 1 or self.pitch == self.row_bytes

    @property
    def joined(self) -> "Block":
        """Block of one row with all bytes, if the block is contiguous; else the block itself."""
        return Block.piece(self.address, self.nbytes) if self.is_contiguous else self

    @property
    def addresses(self) -> range:
        """Address of each row."""
        return range(self.address, self.address + self.rows * self.pitch, self.pitch)

    def meets(self, other: "Block") -> bool:
        """Return whether the blocks overlap."""
        few, many = (self, other) if self.rows < other.rows else (other, self)
        return any(many._has_some_of(address, few.row_bytes) for address in few.addresses)

    def _has_some_of(self, address: int, nbytes: int) -> bool:
        """Return whether ``nbytes`` at ``address`` overlap a row; only the first that ends after ``address`` can."""
        row = max((address - self.address - self.row_bytes) // self.pitch + 1, 0)
        return row < self.rows and self.address + row * self.pitch < address + nbytes


class PhysAddr(NamedTuple):
    """Physical address of a byte in one memory of the system."""

    sip: int
    cube: int
    pe: int
    space: str
    offset: int

    def encode(self) -> int:
        """Return the 64-bit address.

        Raises:
            ValueError: if a field does not fit its bits.
        """
        fields = (("sip", SIP_BITS), ("cube", CUBE_BITS), ("pe", PE_BITS), ("offset", OFFSET_BITS))
        for name, bits in fields:
            if not 0 <= getattr(self, name) < 1 << bits:
                raise ValueError(f"{name} {getattr(self, name)} does not fit a physical address ({bits} bits)")
        return (
            self.sip << _SIP_SHIFT
            | self.cube << _CUBE_SHIFT
            | self.pe << _PE_SHIFT
            | _SPACE_CODE[self.space] << OFFSET_BITS
            | self.offset
        )

    @classmethod
    def decode(cls, address: int) -> "PhysAddr":
        """Return the fields of a 64-bit address.

        Raises:
            ValueError: for a virtual address, an unknown space, or more than 64 bits.
        """
        if not 0 <= address < VIRTUAL_BIT:
            raise ValueError(f"{address:#x} is not a physical address")
        code = address >> OFFSET_BITS & (1 << SPACE_BITS) - 1
        if code >= len(SPACES):
            raise ValueError(f"{address:#x} names no memory space")
        return cls(
            address >> _SIP_SHIFT,
            address >> _CUBE_SHIFT & (1 << CUBE_BITS) - 1,
            address >> _PE_SHIFT & (1 << PE_BITS) - 1,
            SPACES[code],
            address & (1 << OFFSET_BITS) - 1,
        )

    def __str__(self) -> str:
        return f"sip{self.sip}.cube{self.cube}.pe{self.pe}.{self.space}+{self.offset:#x}"


def space_of(address: int) -> str:
    """Return the memory space of a 64-bit address, ``tcm`` for an invalid one; faster than ``PhysAddr.decode``."""
    code = address >> OFFSET_BITS & (1 << SPACE_BITS) - 1
    return SPACES[code] if address < VIRTUAL_BIT and code < len(SPACES) else SPACES[0]


class Region(NamedTuple):
    """Region of a memory, in bytes from the memory's start."""

    offset: int
    size: int


class TcmMap(NamedTuple):
    """Regions of a TCM: kernel memory at the bottom, IPCQ receive rings above it, queue pairs' metadata at the top."""

    kernel: Region
    ipcq: Region
    scratch: Region

    @property
    def size(self) -> int:
        """Bytes of the whole TCM."""
        return self.scratch.offset + self.scratch.size

    def check_queue_pairs(self, count: int, place: object) -> None:
        """Check that the metadata of ``count`` queue pairs of PE ``place`` fit their region (ADR-0023 D20).

        Raises:
            ConfigError: names the key that makes the region larger.
        """
        if count * QUEUE_PAIR_BYTES > self.scratch.size:
            need = f"{place} has {count} queue pairs, whose metadata take {QUEUE_PAIR_BYTES} B each"
            raise ConfigError(f"tcm_layout.scratch_MiB: {need}, and the region has {self.scratch.size} B; raise it")


def tcm_map(layout: TcmLayout) -> TcmMap:
    """Return the regions of a TCM, in bytes, from the configured sizes in MiB."""
    kernel, ipcq, scratch = layout.kernel_MiB * MIB, layout.ipcq_MiB * MIB, layout.scratch_MiB * MIB
    return TcmMap(Region(0, kernel), Region(kernel, ipcq), Region(kernel + ipcq, scratch))
