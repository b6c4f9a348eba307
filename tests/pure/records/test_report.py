"""Sums and differences of counters."""

from sipsim.fabric.links.outages import OutageUse
from sipsim.records.report import KernelUse, LinkUse, combined


def test_counters_of_structs_are_added_and_subtracted_by_field() -> None:
    before, after = LinkUse("0.E>1.W", 1, 64, 0, 80, 900), LinkUse("0.E>1.W", 3, 192, 16, 260, 2500)
    stretch = combined((after,), (before,), -1)
    assert stretch == (LinkUse("0.E>1.W", 2, 128, 16, 180, 1600),)
    assert combined(stretch, (before,)) == (after,)


def test_counters_of_tuples_and_mappings_are_added() -> None:
    one, other = KernelUse(1, 10, 20, {"polls": 4}), KernelUse(2, 30, 40, {"polls": 1, "noc": 2})
    assert combined(one, other) == KernelUse(3, 40, 60, {"polls": 5, "noc": 2})
    assert combined(KernelUse(), one) == one
    assert combined(combined(one, other), one, -1) == KernelUse(2, 30, 40, {"polls": 1, "noc": 2})


def test_costs_of_an_outage_keep_its_times() -> None:
    use = OutageUse("0.E>1.W", 100, 50, 1, 1, 64, 5)
    assert combined((use,), (use,)) == (OutageUse("0.E>1.W", 100, 50, 2, 2, 128, 10),)
