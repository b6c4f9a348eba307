"""A systolic array of multiply-accumulate cells: how a matrix product is cut into folds, and how many cycles they take.

A *fold* is what the array holds at a time: outputs (``os``), elements of B (``ws``) or of A (``is``), as many as it has
cells. The rest of the product streams through it, a step a cycle. A fold takes a cycle for each step, and then those in
which the array is not full: operands come in, and results leave, skewed by a cycle a row and column; what stands still
in ``ws`` and ``is`` is moved in first, a row a cycle. Folds follow one after the other.

Source: the stall-free cycles of SCALE-Sim 3.0 (Samajdar et al., ISPASS 2020), which tells the index of the last cycle.
**Limits**: no fold begins while the one before it drains; all types have one rate.
"""

from typing import NamedTuple

DATAFLOWS = ("os", "ws", "is")


class Product(NamedTuple):
    """Of an (M, K) matrix and a (K, N) one."""

    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Multiplications, each with an addition."""
        return self.m * self.k * self.n


class SystolicArray(NamedTuple):
    """``rows`` x ``columns`` cells; ``dataflow``: what stands still, one of :data:`DATAFLOWS`."""

    rows: int
    columns: int
    dataflow: str

    def spread(self, product: Product) -> tuple[int, int, int]:
        """Elements over the rows of the array, over its columns, and steps of the stream."""
        m, k, n = product
        return {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[self.dataflow]

    def folds(self, product: Product) -> int:
        """How many folds a product has."""
        down, across, _ = self.spread(product)
        return -(-down // self.rows) * -(-across // self.columns)

    def turns(self, product: Product, most: int, wide: int) -> tuple[int, int]:
        """Folds that take turns, down and across the product, ``most`` of them; with ``os`` in rows of ``wide``
        elements or more.

        With ``os`` a block of them: as many as there are, then that of the fewest rows and columns, since it needs
        the fewest operands in a cycle. With the others one behind the other.
        """
        if self.dataflow != "os":
            return 1, most
        most_down, most_across = -(-product.m // self.rows), -(-product.n // self.columns)
        least = min(-(-wide // self.columns), most_across, most)
        blocks = [(down, min(most // down, most_across)) for down in range(1, min(most // least, most_down) + 1)]
        return min(blocks, key=lambda each: (-each[0] * each[1], each[0] * self.rows + each[1] * self.columns))

    @property
    def fill_cycles(self) -> int:
        """Cycles of a fold beside those of its stream."""
        moved_in = 0 if self.dataflow == "os" else self.rows
        return moved_in + self.rows + self.columns - 2

    def cycles(self, product: Product) -> int:
        """Of a whole product whose operands are always there."""
        _, _, steps = self.spread(product)
        return self.folds(product) * (steps + self.fill_cycles) - 1

    def peak_share(self, product: Product) -> float:
        """The part of the peak that a product reaches whose operands are always there."""
        return product.macs / (self.cycles(product) * self.rows * self.columns)
