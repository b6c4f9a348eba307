"""How the addresses of a kernel are translated on its PE: by the allocator in no time, or by the PE's MMU."""

from collections.abc import Callable

from sipsim.chips.ahbm.host.memory.allocator import AddressSpace
from sipsim.chips.ahbm.sip.sip import Pe
from sipsim.core.errors import InvariantViolation

Translate = Callable[[int, int], int]


def translation_on(pe: Pe, space: AddressSpace, is_checked: bool) -> Translate:
    """The translation for the kernels of a PE. ``is_checked``: MMU and allocator must agree each time."""
    exact = space.translation_for(pe.cube, pe.pe)
    if pe.mmu is None:
        return exact
    return _agreeing(pe.mmu.translate, exact) if is_checked else pe.mmu.translate


def _agreeing(by_mmu: Translate, exact: Translate) -> Translate:
    def translate(address: int, nbytes: int) -> int:
        found, expected = by_mmu(address, nbytes), exact(address, nbytes)
        if found != expected:
            what = f"PE_MMU translates {address:#x} to {found:#x}"
            raise InvariantViolation(f"{what}, and the allocator to {expected:#x}")
        return found

    return translate
