"""Bytes and busy time of every edge, always counted, by hand."""

import pytest
from plain_fabric import Journey, edge, flits, route, travel

import sipsim.fabric.flows
from sipsim.fabric.transport import EdgeUse

NEAR = edge(1, 500, 200, 1)
FAR = edge(2, 900, 100, 4, flits(64, 6))
"""4 ps a byte; of 64 B in a flit 58 are payload."""


@pytest.mark.parametrize("kept", [1, 4096])
def test_what_passes_an_edge_is_counted(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes over both edges, one again, and one over the first edge alone; whatever number of ways is kept."""
    monkeypatch.setattr(sipsim.fabric.flows, "_MAX_PATHS", kept)
    both, near = route(NEAR, FAR), route(NEAR)
    sent = [Journey(0, both, 100), Journey(0, both, 58), Journey(5, both, 100), Journey(9, near, 1000)]
    _, fabric, _ = travel(sent)
    far_bytes = 2 * FAR.wire_bytes(100) + 64
    assert FAR.wire_bytes(58) == 64
    assert fabric.use() == {
        NEAR: EdgeUse(4, 1258, 1258),
        FAR: EdgeUse(3, far_bytes, 2 * FAR.drain_ps(100) + 4 * 64),
    }
    assert fabric.use() == fabric.use(), "reading changes nothing"


def test_an_edge_that_nothing_used_is_not_there() -> None:
    assert travel([])[1].use() == {}
