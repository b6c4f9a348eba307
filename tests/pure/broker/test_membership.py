"""Which SIPs may join, and the exact line of each refusal."""

import pytest
from msgspec.structs import replace

from broker.ids import PROTOCOL
from broker.membership import Membership
from broker.wire import Join

FIRST = Join(PROTOCOL, 0, 3, "1.2", "d" * 64, 100, "alpha", "tcp://alpha:1")


def joined() -> Membership:
    members = Membership(3)
    assert members.join(FIRST) is None
    return members


def test_ranks_join_in_any_order() -> None:
    members = Membership(3)
    assert members.missing() == [0, 1, 2]
    for rank in (2, 0, 1):
        assert not members.complete
        assert members.join(replace(FIRST, rank=rank, endpoint=f"tcp://alpha:{rank}")) is None
    assert members.complete
    assert members.missing() == []
    assert members.endpoints() == ("tcp://alpha:0", "tcp://alpha:1", "tcp://alpha:2")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("join", "line"),
    [
        (
            replace(FIRST, rank=1, protocol=PROTOCOL + 1),
            f"SIP 1 uses protocol {PROTOCOL + 1}, the broker uses {PROTOCOL}; install one version",
        ),
        (replace(FIRST, rank=1, world_size=4), "SIP 1 of 4 cannot join a run of 3 SIPs; use one config"),
        (replace(FIRST, rank=3), "SIP 3 of 3 cannot join a run of 3 SIPs; use one config"),
        (
            replace(FIRST, pid=222, host="beta"),
            "two processes joined as rank 0: pid 100 on alpha and pid 222 on beta; start one process per rank",
        ),
        (replace(FIRST, rank=1, version="1.3"), "SIP 1 runs version 1.3, SIP 0 runs 1.2; install one version"),
        (
            replace(FIRST, rank=2, host="beta", plan_digest="e" * 64),
            "SIP 2 (beta) and SIP 0 (alpha) have different plans (eeeeeeeeeeee, dddddddddddd); "
            "give all SIPs the same config, algorithm and script",
        ),
    ],
)
def test_refusals(join: Join, line: str) -> None:
    members = joined()
    assert members.join(join) == line
    assert "\n" not in line
    assert members.joined == {0: FIRST}, "a refused SIP has not joined"


def test_the_protocol_is_checked_first() -> None:
    # The other fields may have another meaning in another protocol.
    reason = Membership(3).join(replace(FIRST, protocol=99, world_size=7, rank=6))
    assert reason is not None
    assert "protocol 99" in reason
