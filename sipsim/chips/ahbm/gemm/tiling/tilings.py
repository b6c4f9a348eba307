"""Tilings that were made, kept by shape: PEs with equal parts of a product share one.

A tiling grows with its product, some 250 bytes a token, so what is kept is bounded by tokens and not by number.
"""

from collections import OrderedDict

from sipsim.chips.ahbm.gemm.tiling.array import Product, SystolicArray
from sipsim.chips.ahbm.gemm.tiling.tiling import Limits, Tiling, tiling

MOST_TOKENS = 2**17


class Tilings:
    """Those used last, of at most ``most_tokens`` tokens together; the one used last is kept however many it has."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._kept: OrderedDict[tuple[SystolicArray, Product, Limits], Tiling] = OrderedDict()
        self.tokens = 0

    def get(self, array: SystolicArray, product: Product, limits: Limits) -> Tiling:
        """As :func:`sipsim.chips.ahbm.gemm.tiling.tiling.tiling`.

        Raises:
            BufferTooSmall: when the room holds no two tokens.
        """
        key = array, product, limits
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = tiling(array, product, limits)
            self.tokens += len(found.tokens)
            while self.tokens > self._most_tokens and len(self._kept) > 1:
                self.tokens -= len(self._kept.popitem(last=False)[1].tokens)
        else:
            self._kept.move_to_end(key)
        return found
