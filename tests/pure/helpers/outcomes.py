"""What ranks tell at the end of a run, for tests of what is made of it. Not a test."""

from typing import Any

import msgspec

from sipsim.records.report import RankOutcome, RunRecord


def record(**changes: Any) -> RunRecord:
    run = RunRecord(
        collective="all_reduce",
        algorithm="a",
        dtype="f16",
        op="sum",
        count=64,
        nbytes=128,
        busbw=(1, 1),
        spans_ps=((1000, 1900), (2100, 3000)),
        wrong=0,
        first_wrong="",
    )
    return msgspec.structs.replace(run, **changes)


def rank_outcome(rank: int, *runs: RunRecord, **changes: Any) -> RankOutcome:
    told = RankOutcome(
        rank=rank,
        pid=100 + rank,
        host="here",
        sim_end_ps=3000,
        events=10,
        grants=5,
        packets_sent=3,
        packets_received=3,
        bytes_sent=300,
        tensor_sha256=f"t{rank}",
        oplog_sha256=f"o{rank}",
        wall_s=0.1,
        cpu_s=0.1,
        peak_pss_mib=10.0,
        run_s=0.1,
        send_s=0.2,
        wait_s=0.3,
        runs=runs or (record(),),
        calls=(),
    )
    return msgspec.structs.replace(told, **changes)
