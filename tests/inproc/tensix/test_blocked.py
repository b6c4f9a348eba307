"""What a chip says of its blocked parts is in the report of a deadlock, over all chips."""

from pathlib import Path

import pytest
from runs import run, script_file

from sipsim.chips.tensix.chip import TensixChip
from sipsim.records.dump import BlockedResource

STUCK = """
def kernel(df):
    df.noc_semaphore_wait(0x20000, 1)

def worker(rank, world_size, tt):
    program = tt.create_program()
    tt.create_kernel(program, kernel, tt.workers[0])
    tt.enqueue_program(program)
    tt.finish()
"""


def channel(sip: int) -> str:
    return f"SIP {sip} eth0 sender 0"


def test_channels_of_several_chips_are_one_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blocked(chip: TensixChip) -> list[BlockedResource]:
        rank = chip.metal.rank
        return [BlockedResource(channel(rank), channel((rank + 1) % 3), "no credit")]

    monkeypatch.setattr(TensixChip, "blocked", blocked)
    flags = ("--set", "system.chip=wormhole", "--link", "ethernet_100g", "--sips", 3, "--topology", "ring_1d")
    done = run(*flags, script_file(tmp_path, STUCK))
    error = done.document["error"]
    assert done.outcome.error is not None
    names = [channel(sip) for sip in (0, 1, 2)]
    assert (error["kind"], done.outcome.exit_code) == ("Deadlock", 3)
    assert error["message"].startswith(f"a cycle of 3 channels: {' -> '.join([*names, names[0]])}; ")
    assert error["deadlock"]["channel_cycle"] == names
    assert {each["text"] for each in error["deadlock"]["blocked"]} == {"no credit"}
    assert "kernel kernel on 1-1 waits for the semaphore at 0x20000 to be 1" in done.outcome.error.detail
    assert done.outcome.long_report is not None
    _file, report, what = done.outcome.long_report
    assert names[0] in report
    assert report.count("kernel kernel on 1-1 waits for the semaphore at 0x20000 to be 1") == 1 + 3, "each one by one"
    assert "graph" not in report + what, "there are no queues that it could be of"
