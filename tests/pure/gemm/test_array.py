"""The cycles of a systolic array against those of SCALE-Sim 3.0.

The figures are of full runs of it, or of its own demand matrices. It counts from 0, so that a product of F folds ends
with cycle ``F x (steps + fill) - 1``.
"""

import pytest
from products import Case, run_gemm, values

from sipsim.chips.ahbm.gemm.tiling import Product, SystolicArray

FLOWS = [(32, "ws"), (32, "os"), (32, "is"), (128, "ws"), (128, "os"), (128, "is")]
FIGURES = {
    (512, 512, 512): (155135, 146943, 155135, 14303, 12255, 14303),
    (1024, 4096, 1024): (4579327, 4257791, 4579327, 359935, 278399, 359935),
    (128, 128, 4096): (113663, 97279, 67039, 16319, 12223, 4477),
    (4096, 64, 4096): (1072639, 2064383, 1072639, 143295, 325631, 143295),
    (1, 4096, 4096): (1556479, 532223, 536319, 392191, 139199, 143295),
}
CASES = [(shape, *flow, at) for shape in FIGURES for at, flow in enumerate(FLOWS)]


@pytest.mark.parametrize(("shape", "size", "dataflow", "at"), CASES)
def test_stall_free_cycles_are_those_of_scale_sim(shape, size, dataflow, at):
    array, product = SystolicArray(size, size, dataflow), Product(*shape)
    assert array.cycles(product) == FIGURES[shape][at]


SMALLER = [each for each in CASES if each[0] in ((512, 512, 512), (128, 128, 4096), (1, 4096, 4096))]


@pytest.mark.parametrize(("shape", "size", "dataflow", "at"), SMALLER)
def test_a_simulated_pe_is_busy_for_as_long(shape, size, dataflow, at):
    """Token by token, with loads and stores of their own: 1 GHz, so a cycle is a nanosecond."""
    case = Case(*shape, "i8", "i8")
    settings = {"pe_gemm.rows": size, "pe_gemm.columns": size, "pe_gemm.dataflow": dataflow}
    bench, _ = run_gemm(case, values(case, largest=2), settings)
    assert bench.sip.pe(0, 0).units.gemm.busy_ps == 1000 * FIGURES[shape][at]


def test_an_array_that_is_not_square():
    """os: 3 x 4 folds of 100 + 8 + 16 - 2 cycles. ws: 13 x 4 folds of 20 + 16 + 16 - 2."""
    product = Product(20, 100, 50)
    assert SystolicArray(8, 16, "os").cycles(product) == 3 * 4 * 122 - 1
    assert SystolicArray(8, 16, "ws").cycles(product) == 13 * 4 * 50 - 1
    assert SystolicArray(8, 16, "is").cycles(product) == 13 * 2 * 80 - 1
