"""Transfers that meet in ways that are rare on a mesh; each was once lost, starved, late, or cost an event a ps."""

from typing import NamedTuple

import pytest
from plain_fabric import Journey, Watched, edge, route, travel

from sipsim.fabric.noc.arbitration import ONE_QUEUE, Arbitration

EA, EB = edge(1, 0, 50, 16), edge(2, 0, 50, 16)
SLOW, FAST, LAST = edge(3, 0, 1000, 31), edge(4, 0, 1000, 8), edge(5, 0, 0, 16)
FIRST = edge(0, 0, 0, 16)
SLOWEST, AFTER = edge(10, 50, 0, 99), edge(11, 1, 3, 1)
NARROW, WIDE, NEXT = edge(6, 0, 0, 99), edge(7, 1, 0, 3), edge(8, 0, 3, 2)
STRICT = Arbitration(256, (1, 1, 0))


class Meeting(NamedTuple):
    """``ends``: by hand, and how much later each may be: nothing where the edge is never divided, else chunks."""

    how: Arbitration
    journeys: list[Journey]
    ends: list[int]
    chunks_ps: int = 0


MEETINGS: dict[str, Meeting] = {
    # The strict transfer has EA until 50 + 65536; the others, which had come to EB when it began, share it then.
    "stopped at the time at which a head leaves": Meeting(
        Arbitration(256, (50, 50, 0)),
        [
            Journey(0, route(EB), 1024),
            Journey(0, route(EA, EB), 4096, vc=1),
            Journey(0, route(EA, EB), 4096),
            Journey(0, route(EA), 4096, vc=2),
        ],
        [50 + 16384, 65586 + 131072 + 50, 65586 + 131072 + 50, 50 + 65536],
    ),
    # All three are no more than some chunks; the edge is busy for 753 + 771 + 300 ps of theirs.
    "an end is not fixed at what rounding leaves": Meeting(
        Arbitration(256, (99, 1)),
        [Journey(0, route(LAST), 256, lead_ps=4096), Journey(0, route(LAST), 256, vc=1, lead_ps=4096)],
        [4096, 8192],
        100,
    ),
    # The strict 16 B come to LAST at 17606, the next at 24751: each goes at once, but for a last chunk.
    "strict priority over ends that are fixed": Meeting(
        STRICT,
        [
            Journey(8089, route(SLOW, LAST), 256, vc=1),
            Journey(11126, route(LAST), 4096, vc=1),
            Journey(16606, route(FAST, LAST), 16, vc=2),
            Journey(24751, route(LAST), 16, vc=2),
        ],
        [17025, 80000, 17606 + 256, 24751 + 256],
        4096,
    ),
    # One after the other over the slowest edge.
    "the last bytes after a division": Meeting(
        ONE_QUEUE,
        [Journey(0, route(NARROW, WIDE, NEXT), 1000), Journey(0, route(NARROW, NEXT), 256)],
        [99000 + 1 + 3 + 1, 99000 + 256 * 99 + 5],
        2,
    ),
    # 16 B behind 200,000 B of strict priority that pass as they come, without a backlog.
    "behind strict priority that waits for bytes": Meeting(
        STRICT,
        [Journey(200, route(EA), 16), Journey(0, route(edge(9, 0, 0, 16), EA), 200_000, vc=2)],
        [3_200_000 + 256 + 50, 3_200_050],
        256,
    ),
    # The first has the edge, all of it, to its end, which is fixed at once: then 2 B and 256 B of strict priority.
    "strict priority behind an end that is fixed": Meeting(
        Arbitration(65536, (1, 100, 0)),
        [
            Journey(878, route(SLOWEST), 20_000, delay_ps=500, lead_ps=1_980_000, vc=1),
            Journey(3014, route(SLOWEST, AFTER), 2, delay_ps=5, vc=2),
            Journey(3815, route(SLOWEST, AFTER), 256, vc=2),
        ],
        [1378 + 50 + 1_980_000, 1_981_378 + 198 + 54, 1_981_378 + 198 + 256 * 99 + 54],
        5,
    ),
    # Two small ones behind a train that shares with another; they come first in its gaps, as they do in hardware.
    "behind a train that waits for bytes": Meeting(
        STRICT,
        [
            Journey(0, route(FIRST, LAST), 200_000, vc=1),
            Journey(0, route(FIRST, LAST), 200_000),
            Journey(0, route(LAST), 16),
            Journey(0, route(LAST), 16),
        ],
        [6_400_000, 6_400_000, 256, 512],
        1200,
    ),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_rare_meetings(name: str) -> None:
    how, journeys, expected, chunks_ps = MEETINGS[name]
    ends, _, engine = travel(journeys, Watched, how)
    assert engine.events <= 12 * len(journeys)
    for journey, end, tail in zip(journeys, ends, expected, strict=True):
        assert tail - chunks_ps <= end.tail_ps <= tail + chunks_ps
        assert end.now_ps <= end.tail_ps - journey.lead_ps


def test_ends_of_a_channel_are_told_in_its_order_though_one_is_put_off() -> None:
    """The fourth is found late, and told after its end; the fifth, which is behind it, is told after that."""
    shared, before = edge(12, 0, 0, 1), edge(13, 0, 0, 16)
    journeys = [
        Journey(900, route(shared), 20_000, delay_ps=500),
        Journey(983, route(shared), 2),
        Journey(1216, route(before, shared), 4096, delay_ps=500),
        Journey(3785, route(shared), 2),
        Journey(3952, route(shared), 64),
    ]
    ends, _, _ = travel(journeys, Watched, ONE_QUEUE._replace(chunk_bytes=65536))
    assert ends[3].tail_ps < ends[4].tail_ps
    assert ends[3].now_ps < ends[4].now_ps
