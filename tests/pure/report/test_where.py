"""The lines below the table, from documents made by hand."""

from typing import Any

import msgspec
import pytest

from launcher.result.notes import brief, notes
from launcher.result.usage import row_usage
from sipsim.chips.api.chip import StackBound
from sipsim.records.explanation import Explanation, PathStep, PhaseTime, TimePart, WhatIf
from sipsim.records.report import EngineUse, KernelUse, LinkUse, StackUse, Usage


def used(links: dict[str, tuple[int, int, int]], iterations: int = 1, **waited_ps: int) -> Usage:
    found = tuple(LinkUse(name, 3, each[0], 0, *each[1:]) for name, each in links.items())
    times = 1800 * iterations, 2000 * iterations
    return Usage(0, 2000, iterations, KernelUse(2 * iterations, *times, waited_ps), found, "cube0.a>cube0.b", 500)


def document(of_ranks: list[Usage], time_ps: int, explain: list[Any] | None = None, **row: Any) -> dict[str, Any]:
    shown = {"bytes": 64, "algbw_GBps": 2.0, "busbw_GBps": 3.0, "iters": 1, "time_ns": time_ps / 1000}
    shown = {**shown, **row, **msgspec.to_builtins(row_usage(of_ranks, time_ps))}
    return {"runs": [shown], "whole_run": None, "explain": explain or [], "ranks": [{"sim_end_ps": time_ps}]}


def test_bytes_and_times_are_of_one_iteration() -> None:
    both = [used({"0.E>1.W": (800, 1000, 400)}, iterations=4), used({"1.W>0.E": (2, 3, 5)}, iterations=4)]
    usage = row_usage(both, 1000)
    assert [msgspec.structs.astuple(each) for each in usage.links or ()] == [
        ("0.E>1.W", 0.75, 200, 0, 250, 100, 0.1),
        ("1.W>0.E", 0.75, 0.5, 0, 0.75, 1, 0.00125),
    ]
    busiest = usage.busiest_link, usage.busiest_link_wire_bytes, usage.busiest_link_utilisation
    assert busiest == ("0.E>1.W", 250, 0.1)
    assert (usage.busiest_edge, usage.busiest_edge_utilisation) == ("sip0.cube0.a>cube0.b", 0.125)
    assert (usage.link_payload_bytes, usage.link_wire_bytes, usage.kernels) == (200.5, 250.75, 4)


def test_time_of_kernels_and_of_those_that_have_ended() -> None:
    usage = row_usage([used({}, recv=1000, load=500), used({}, recv=500, math=100)], 1000)
    assert usage.kernel_time == pytest.approx({"recv": 0.375, "load": 0.125, "math": 0.025, "ended": 0.1})


@pytest.mark.parametrize(
    ("links", "line"),
    [
        ({"a": (10, 12, 100), "b": (0, 0, 0)}, "busiest link a: 10 B payload + 2 B framing, busy 10.0 %"),
        (
            {"a": (9, 9, 50), "b": (9, 9, 50)},
            "busiest link a: 9 B payload + 0 B framing, busy 5.0 %; 1 other link as busy",
        ),
        (
            dict.fromkeys("abc", (9, 9, 50)),
            "busiest link a: 9 B payload + 0 B framing, busy 5.0 %; 2 other links as busy",
        ),
    ],
)
def test_the_busiest_link(links: dict[str, tuple[int, int, int]], line: str) -> None:
    assert list(notes(document([used(links)], 1000)))[1] == line


def test_the_short_form_has_the_longest_waits_the_busiest_parts_and_the_launch() -> None:
    waited = used({"a": (10, 12, 100), "b": (0, 0, 0)}, load=100, store=50, math=300, recv=900)
    assert list(brief(document([waited], 1000, launch_ns=0.25), "cold")) == [
        "time of 2 kernels: 45.0 % recv, 15.0 % math, 5.0 % load; busiest link a 10.0 %; "
        "busiest edge inside a SIP sip0.cube0.a>cube0.b 50.0 %",
        "of the time 0.000 us (25.0 %) launch, before and after all kernels; cold",
    ]
    assert list(brief({"runs": [], "whole_run": None})) == []


def busy(made: dict[str, Any], unshown: str = "a burst") -> list[str]:
    return [line for line in notes(made, unshown=unshown) if "a burst" in line]


@pytest.mark.parametrize(
    ("time_ps", "link_ps", "named"),
    [
        (715, 0, []),
        (714, 0, ["edge sip0.cube0.a>cube0.b is busy 70.0 %"]),
        (625, 400, ["edge sip0.cube0.a>cube0.b is busy 80.0 %"]),
        (1000, 699, []),
        (1000, 900, ["link 0.E>1.W is busy 90.0 %"]),
    ],
)
def test_of_a_busy_edge_it_says_what_no_result_shows(time_ps: int, link_ps: int, named: list[str]) -> None:
    """The edge is busy for 500 ps."""
    made = document([used({"0.E>1.W": (10, 12, link_ps)})], time_ps)
    lines = busy(made)
    assert [line.split(":")[0] for line in lines] == named
    assert all(line.endswith("a burst") for line in lines)
    assert [line.split(": ")[1:] for line in lines] == [
        line.split(": ")[2:] for line in brief(made, unshown="a burst") if "a burst" in line
    ]
    assert busy(made, "") == []


def test_the_busiest_edge_of_any_row() -> None:
    some = [document([used({})], time_ps, bytes=time_ps)["runs"][0] for time_ps in (1000, 550, 600, 2000)]
    made = {**document([used({})], 1000), "runs": some}
    assert [line.split(" is busy ")[0] for line in busy(made)] == ["size 550: edge sip0.cube0.a>cube0.b"]
    whole = {**made, "runs": [{**some[0], "links": None}], "whole_run": some[1]}
    assert [line.split(" is busy ")[0] for line in busy(whole)] == ["the whole run: edge sip0.cube0.a>cube0.b"]


def test_what_arrays_did() -> None:
    """Of both SIPs: 600 of 1600 ps of kernels, 400 at the peak; the time of commands is 1000. Kernels of other PEs,
    which make it 4000 ps, do not count."""
    engines = [
        EngineUse(2, 900, {"PE_GEMM": 400, "PE_MATH": 80}, {"cycles": 500, "DMA in": 250, "epilogue": 0}, 300),
        EngineUse(1, 700, {"PE_GEMM": 200, "PE_MATH": 80}, {"cycles": 250}, 100),
    ]
    some = [
        msgspec.structs.replace(used({}, recv=1), ran=KernelUse(2, 2000, 2000, {"recv": 1}), engines=each)
        for each in engines
    ]
    row = msgspec.to_builtins(row_usage(some, 1000).engines)
    assert row == {
        "pes": 3,
        "busy": {"PE_GEMM": 0.375, "PE_MATH": 0.1},
        "peak": 0.25,
        "commands": {"cycles": 0.75, "DMA in": 0.25},
    }
    told = list(notes(document(some, 1000)))[-1]
    of_time = "busy 37.5 % of the kernels' time, 25.0 % of the peak rate"
    assert told == f"PE_GEMM of 3 PEs: {of_time}; time of its commands: 75.0 % cycles, 25.0 % DMA in"
    assert row_usage([used({})], 1000).engines is None


OF_PORTS = StackBound(819.2, 512.0, "8 ports of PE_DMA", ("pe_dma.bandwidth_GBps",))


@pytest.mark.parametrize(("nbytes", "is_named"), [(508_000, True), (358_400, True), (358_399, False)])
def test_a_stack_is_named_from_70_percent_of_what_binds_it(nbytes: int, is_named: bool) -> None:
    """Of two iterations of 500 ns, on the rank whose stack moved most."""
    asked: list[int] = []

    def bound(slices: int) -> StackBound:
        asked.append(slices)
        return OF_PORTS

    stacks = StackUse("cube1", nbytes // 2, 4), StackUse("cube3", nbytes, 8)
    some = [msgspec.structs.replace(used({}, iterations=2), stack=stack) for stack in stacks]
    row = msgspec.to_builtins(row_usage(some, 500_000, bound=bound))
    assert asked == [8]
    assert ("stack" in row) == is_named
    made = {**document([used({})], 1000)["runs"][0], **row}
    shown = [told for told in (notes, brief) if any("GB/s" in line for line in told(one_row(made)))]
    assert shown == ([notes, brief] if is_named else [])
    if is_named:
        stack = row["stack"]
        assert stack["GBps"] == pytest.approx(nbytes / 1000)
        assert (stack["name"], stack["published_GBps"], stack["bound_GBps"]) == ("sip1.cube3", 819.2, 512)
        line = next(line for line in notes(one_row(made)) if "GB/s" in line)
        assert f"{nbytes / 1000:.0f} of 819 GB/s: 8 ports of PE_DMA [pe_dma.bandwidth_GBps]" in line


def one_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"runs": [row], "whole_run": None, "explain": [], "ranks": []}


def test_of_a_memory_that_publishes_nothing_no_stack_is_named() -> None:
    some = [msgspec.structs.replace(used({}), stack=StackUse("cube0", 10**9, 8))]
    assert row_usage(some, 1000).stack is msgspec.UNSET


def test_no_link_and_no_counters() -> None:
    told = list(notes(document([used({"a": (0, 0, 0)})], 1000)))
    assert told[1].startswith("busiest edge")
    uncounted = {"links": None, "busbw_GBps": 0.0}
    assert list(notes({"runs": [uncounted], "whole_run": None, "explain": []})) == []


def test_the_bandwidth_of_a_bus_is_explained() -> None:
    assert next(notes(document([used({})], 1000))).startswith("busbw = algbw x 1.5: what each rank must send at least")


SHARED = "sharing sip{}.cube1.x>cube1.y with cube0.pe0 to link E"
STEPS = (PathStep(0, "sip0.cube0.pe0", "math", "add", 0, 1000, (TimePart("PE_MATH", ("pe_math.overhead_ns",), 1000),)),)
PARTS = (
    TimePart("bytes", ("a.bandwidth_GBps",), 400),
    TimePart("PE_MATH", ("pe_math.overhead_ns",), 300),
    TimePart(SHARED.format(0), ("b.bandwidth_GBps",), 100),
    TimePart(SHARED.format(3), ("b.bandwidth_GBps",), 100),
    TimePart("bytes", ("c.bandwidth_GBps",), 100),
)
CHANGES = (WhatIf("a", ("a.bandwidth_GBps=128",), 200, 150), WhatIf("m", ("m=1", "n=2"), 170))
PHASES = (PhaseTime("add", 1000, {"math": 900, "recv": 100}),)
TOLD = Explanation(0, 0, 1000, "sip0.cube0.pe0", PARTS, PHASES, STEPS, CHANGES)


def explained(told: Explanation = TOLD) -> list[str]:
    made = document([used({"a": (9, 12, 50), "b": (0, 0, 0)})], 1000, [msgspec.to_builtins(told)])
    lines = list(notes(made))
    return lines[next(at for at, line in enumerate(lines) if line.startswith("where the time went")) :]


def test_the_explanation() -> None:
    lines = explained()
    assert lines[0] == "where the time went: 1.000 ns, to the end of sip0.cube0.pe0, by its critical path"
    assert lines[1] == "the time is bound by bytes (50.0 %), PE_MATH (30.0 %), sharing edges inside SIPs (20.0 %)"
    assert "      500 ps  50.0 %  bytes  [a.bandwidth_GBps, c.bandwidth_GBps]" in lines
    shared = "sharing cube1.x>cube1.y with cube0.pe0 to link E, on 2 SIPs  [b.bandwidth_GBps]"
    assert f"      200 ps  20.0 %  {shared}" in lines
    assert "  20.0 %   15.0 %  --set a.bandwidth_GBps=128" in lines
    assert "  17.0 %        -  --set m=1 --set n=2" in lines
    head = "traffic of each link in an iteration:"
    assert lines[-3:] == [head, "  a: 9 B payload + 3 B framing, busy 5.0 %", "  1 link: no traffic"]


def test_what_a_run_has_measured_comes_before_what_the_path_estimates() -> None:
    assert explained()[2] == "change first a: 15.0 % less time, measured in a rerun"
    two = WhatIf("a", ("a=1",), 200, 100), WhatIf("m", ("m=1",), 150, 120), WhatIf("n", ("n=1",), 190)
    told = msgspec.structs.replace(TOLD, what_if=two)
    assert explained(told)[2] == "change first m: 12.0 % less time, measured in a rerun"
    told = msgspec.structs.replace(TOLD, what_if=two[2:])
    assert explained(told)[2] == "change first n: 19.0 % less time, by the critical path"
    told = msgspec.structs.replace(TOLD, what_if=(WhatIf("a", ("a=1",), 200, 0), WhatIf("m", ("m=1",), 0)))
    assert not any(line.startswith("change first") for line in explained(told))


def test_what_a_row_leaves_out() -> None:
    made = document([used({"a": (9, 12, 50)})], 1000, [msgspec.to_builtins(TOLD)])
    assert not any(line.startswith(("this explains", "rows take")) for line in notes(made))
    made["ranks"] = [{"sim_end_ps": 4000}]
    assert list(notes(made))[-1] == "rows take 25.0 % of the run's 4.000 ns"
    made["runs"] *= 2
    assert "the lines above explain the last of 2 rows; --json explains all rows" in list(notes(made))


def test_a_whole_run_is_no_iteration() -> None:
    made = document([used({"a": (9, 12, 50)}, iterations=0, recv=900)], 1000, [msgspec.to_builtins(TOLD)])
    made |= {"whole_run": {**made["runs"][0], "time_ns": 1.0}, "runs": []}
    lines = list(notes(made))
    assert lines[0].startswith("the whole run: busiest link a")
    assert "traffic of each link in the whole run:" in lines


def test_a_shared_link_is_named_as_a_link() -> None:
    part = TimePart("sharing link 0.E>1.W with cube1.pe0 to link E", ("links.ucie.params.bandwidth_GBps",), 1000)
    told = msgspec.structs.replace(TOLD, parts=(part,))
    assert explained(told)[1] == "the time is bound by sharing links, whose bytes wait for each other (100.0 %)"


def test_kernels_that_have_failed_have_no_shares() -> None:
    of_failed = used({}, recv=900)
    never_ended = msgspec.structs.replace(of_failed, iterations=0, ran=of_failed.ran._replace(launch_ps=0))
    assert row_usage([never_ended], 1000).kernel_time == {}
    half_ended = msgspec.structs.replace(of_failed, iterations=0, ran=of_failed.ran._replace(launch_ps=500))
    assert row_usage([half_ended], 1000).kernel_time == {}


def test_credits_are_no_framing() -> None:
    of_rank = used({})
    link = LinkUse("0.E>1.W", 7, 0, 112, 1792, 28)
    made = document([msgspec.structs.replace(of_rank, links=(link,))], 1000)
    assert list(notes(made))[1] == "busiest link 0.E>1.W: 0 B payload + 112 B credits + 1,680 B framing, busy 2.8 %"


def test_the_share_of_a_launch() -> None:
    lines = list(notes(document([used({})], 4000, launch_ns=1.0)))
    assert lines[1] == "of the time 0.001 us (25.0 %) launch, before and after all kernels"
    assert not any("launch" in line for line in notes(document([used({})], 4000, launch_ns=0.0)))


def test_late_starts_are_told() -> None:
    made = document([used({})], 4000)
    made["launches"] = [{"late_by_ns": late_ns} for late_ns in (0.0, 68.25, 3.0)]
    line = list(notes(made))[1]
    assert all(
        part in line
        for part in ("2 of 3 launches", "up to 68.250 ns after", "data are right", "launch.start_margin_ns")
    )
    made["launches"] = [{"late_by_ns": 0.0}]
    assert not any("start_margin_ns" in line for line in notes(made))


def outage(at_ps: int, packets: int) -> dict[str, Any]:
    again = {"resent_packets": packets, "duplicate_packets": packets // 2, "resent_bytes": 1550 * packets}
    return {"link": "0.E>1.W", "at_ps": at_ps, "for_ps": 50_000_000, **again, "resent_ps": 124_000 * packets}


def test_outages_are_told() -> None:
    """What was sent again, nothing, and an outage that came too late; not more than some."""
    made = document([used({})], 4000)
    made["ranks"] = [{"sim_end_ps": 40, "outages": [outage(30, 7), outage(40, 0)]}, {"sim_end_ps": 20, "outages": []}]
    made["ranks"][1]["outages"] = [outage(41, 0)]
    assert list(notes(made))[1:4] == [
        "link 0.E>1.W down at 30ps for 50us, nothing lost; 7 packets sent again (3 had arrived): 10,850 B, "
        "868.000 ns of the link's time",
        "link 0.E>1.W down at 40ps for 50us, nothing lost; nothing sent again",
        "link 0.E>1.W down at 41ps: after the last event of the run",
    ]
    made["ranks"][1]["outages"] = [outage(20, 1)] * 7
    told = [line for line in notes(made) if "outage" in line or "down" in line]
    assert (len(told), told[-1]) == (9, "1 more outage (--json)")
