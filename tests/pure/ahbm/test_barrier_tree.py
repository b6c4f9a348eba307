"""The tree of links of a barrier: its longest paths by hand, and systems of any size."""

import pytest
from hardware import config, system_of

from sipsim.chips.ahbm.barrier_tree import BarrierTree


def tree_of(topology: str, count: int, egress_ps: list[int]) -> BarrierTree:
    shape = {"w": 1, "h": 1}
    system = system_of(
        config({"system.sips": {"count": count, "topology": topology, "link": "ucie"}, "sip.cube_mesh": shape})
    )
    return BarrierTree(system, system.data_channels(), egress_ps)


def test_the_longest_paths_of_a_mesh() -> None:
    """In a 3x3 mesh the far corner is four hops away; each hop takes the channel's delay and the sender's egress."""
    egress_ps = [10**6 * sip for sip in range(9)]
    tree = tree_of("mesh_2d_no_wrap", 9, egress_ps)
    delay_ps = tree.hop_ps[0, 1]
    hops = [8]
    while hops[-1]:
        hops.append(tree.parent[hops[-1]])
    assert len(hops) == 5
    up = sum(egress_ps[sip] for sip in hops[:-1])
    down = sum(egress_ps[sip] for sip in hops[1:])
    assert tree.gap_ps == 8 * delay_ps + up + down


@pytest.mark.parametrize("count", [1, 2, 2047])
def test_a_ring_of_any_size(count: int) -> None:
    tree = tree_of("ring_1d", count, [0] * count)
    assert tree.gap_ps == sum(2 * tree.hop_ps[sip, sip + 1] for sip in range(count // 2))
