"""Traffic of ``ahbm-bench fabric-bandwidth``, written by hand for few chips, and what a figure counts of it."""

from typing import Any

import pytest

from launcher.bench.benches.fabric import (
    FabricBandwidth,
    FabricCase,
    LinePattern,
    Workers,
    busiest,
    from_one,
    on_line,
    on_ring,
    through_one_link,
)

FOUR = LinePattern(4, is_multicast=True)
TO_THE_LAST = LinePattern(4, is_multicast=False)


def shown(traffic: list[Workers]) -> list[str]:
    """Each chip's flows as ``WAYfirst-last``, of its workers divided by a bar."""
    return [
        " | ".join(
            " ".join(f"{each['way']}{each['start']}-{each['start'] + each['number'] - 1}" for each in flows)
            for flows in workers
        )
        for workers in traffic
    ]


TRAFFIC: dict[str, tuple[list[Workers], list[str], int]] = {
    "line": (on_line(FOUR), ["E1-3", "E1-2 W1-1", "E1-1 W1-2", "W1-3"], 3),
    "line, unicast": (on_line(TO_THE_LAST), ["E3-3", "E2-2 W1-1", "E1-1 W2-2", "W3-3"], 3),
    "line, halves": (on_line(FOUR._replace(halves=True)), ["E1-3", "E1-2", "W1-2", "W1-3"], 2),
    "line, ends": (on_line(FOUR._replace(ends_only=True)), ["E1-3", "", "", "W1-3"], 1),
    "line, one end": (on_line(FOUR._replace(ends_only=True, forward_only=True)), ["E1-3", "", "", ""], 1),
    "line of two links": (on_line(LinePattern(2, True, links=2)), ["E1-1 | E1-1", "W1-1 | W1-1"], 1),
    "full ring": (on_ring(FOUR, 3, 3), ["E1-3 W1-3"] * 4, 3),
    "half ring": (on_ring(FOUR, 2, 1), ["E1-2 W1-1"] * 4, 2),
    "half ring by turns": (on_ring(FOUR, 2, 1, by_turns=True), ["E1-1 W1-2", "E1-2 W1-1"] * 2, 2),
    "one link of a ring": (through_one_link(TO_THE_LAST), ["E3-3 W4-4", "E2-2", "W2-2", "E4-4 W3-3"], 3),
    "from one": (from_one(4, at=1), ["", "W1-1 E1-1 E2-2", "", ""], 2),
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_is_that_of_the_published_programs(name: str) -> None:
    traffic, flows, most = TRAFFIC[name]
    assert shown(traffic) == flows
    assert busiest(traffic) == most


class TenNsAPacket:
    """A machine on which a run takes 10 ns for each packet of a flow."""

    def with_first(self, *_settings: str) -> "TenNsAPacket":
        return self

    def run(self, _script: str, _sips: int, arguments: dict[str, Any], topology: str) -> list[dict[str, Any]]:
        return [{"ended_ns": 10.0 * arguments["packets"]}]


@pytest.mark.parametrize(
    ("counted", "copies", "GBps"),
    [(None, 1, 3 * 100 / 10), (2.0, 1, 2 * 100 / 10), (1.0, 1, 100 / 10), (None, 2, 3 * 100 / 10 / 2)],
)
def test_a_figure_counts_the_streams_that_its_row_counts(counted: float | None, copies: int, GBps: float) -> None:
    """Those of the busiest link, 3 on a line of 4, unless the published test counts others."""
    case = FabricCase("mcast_Linear", sizes=(100,), counted=counted, copies=copies)
    figures = FabricBandwidth().measure(case, TenNsAPacket())  # type: ignore[arg-type]
    assert {figure.value for figure in figures} == {GBps}
