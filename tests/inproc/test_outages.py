"""Outages of links in whole runs: nothing is lost, the time is later by what the rule says, or the loss is named."""

import json
import re
from typing import Any

import pytest
from runs import run

from launcher.options import parse
from launcher.probe.command import parse_probe, probe
from launcher.run.run import checked
from sipsim.core.errors import ConfigError

SMALL = ("--sips", 4, "--link", "ethernet_100g", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
ALL_REDUCE = (*SMALL, "--collective", "all_reduce", "--algorithm", "ring", "--bytes", "32K", "--check-invariants")
DOWN = ("--fault", "link:0.E@3us:50us", "--fault", "link:2.W@5us:20us", "--fault", "link:0.E@58us:7us")


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--set", "io_port.buffer_packets=2", "--set", "router.buffer_packets=2"),
        ("--set", "defaults.virtual_channels=true", "--set", "algorithms.ring.credit_return_mode=fabric"),
        ("--link", "tenstorrent_100g", "--topology", "torus_2d"),
    ],
    ids=["as is", "finite buffers", "virtual channels", "tenstorrent"],
)
def test_an_all_reduce_loses_nothing(flags: tuple[object, ...]) -> None:
    """Three outages of two links in it: equal tensors, later, and what was sent again is told. What has waited for a
    link crosses it back to back, in less time than among others."""
    alone, done = run(*ALL_REDUCE, *flags), run(*ALL_REDUCE, *flags, *DOWN)
    assert (alone.outcome.error, done.outcome.error) == (None, None), done.outcome.error
    assert [result[0] for result in done.results()] == [result[0] for result in alone.results()]
    assert done.document["runs"][0]["wrong"] == 0
    assert done.document["runs"][0]["time_ns"] > alone.document["runs"][0]["time_ns"] + 45_000
    assert done.document["digest"] != alone.document["digest"]
    told = [each for rank in done.document["ranks"] for each in rank["outages"]]
    assert [(each["at_ps"], each["for_ps"]) for each in told if each["link"].startswith("0.E")] == [
        (3_000_000, 50_000_000),
        (58_000_000, 7_000_000),
    ]
    assert len(told) == 6
    assert sum(each["resent_packets"] for each in told) > sum(each["duplicate_packets"] for each in told)
    assert all(each["resent_ps"] == 80 * each["resent_bytes"] for each in told)
    assert run(*ALL_REDUCE, *flags, *DOWN).results() == done.results()


def test_the_other_end_names_the_same_outage() -> None:
    """As does the config in place of a flag; both add up."""
    by_near = run(*ALL_REDUCE, "--fault", "link:0.E@3us:5us", "--fault", "link:2.E@4us:9us")
    entry = json.dumps([{"port": "1.W", "at_us": 3, "for_us": 5.0}])
    by_far = run(*ALL_REDUCE, "--set", f"system.sips.outages={entry}", "--fault", "link:2.E@4us:9us")
    assert by_far.document["digest"] == by_near.document["digest"]
    assert by_far.prepared.plan.digest == by_near.prepared.plan.digest
    never = run(*ALL_REDUCE, "--fault", "link:0.E@9s:5us")
    alone = run(*ALL_REDUCE)
    assert never.results() == alone.results()
    assert never.document["digest"] != alone.document["digest"]


LINE = {
    "sip.cube_mesh": {"w": 1, "h": 1},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "link": "ethernet_100g"},
}
PE_TO_E = [1, 0.05, *[1] * 5, *[0.25] * 4, 0.1, 2]
"""PE_DMA, its wire, routers 0 1 2 3 7, the wires between them, the port's wire, the port; PE_IPCQ takes 1 ns before."""
SENT_NS = 1 + sum(PE_TO_E)
"""When a message that is sent at 0 is on the wire."""
FRAME_NS = 1550 / 12.5


def probed(nbytes: int, latency_ns: float, down_ns: float = 0, up_ns: float = 0) -> int:
    outages = [{"port": "1.W", "at_us": down_ns / 1000, "for_us": (up_ns - down_ns) / 1000}] if up_ns else []
    values: dict[str, Any] = {**LINE, "links.ethernet_100g.params.latency_ns": latency_ns}
    values["system.sips"] = {**LINE["system.sips"], "outages": outages}  # type: ignore[dict-item]
    flags = [word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    words = ["--from", "0.0.0", "--to", "1.0.0", "--bytes", str(nbytes), *flags]
    told_ps: int = probe(parse_probe(words))["pair"]["simulated_ps"]
    return told_ps


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("latency_ns", "down_ns", "from_ns"),
    [
        # Two full frames. Before they are sent: they wait if it is still down then.
        (500, SENT_NS - 3, SENT_NS),
        # On the wire, or behind it: the acknowledgement of the first takes 1000 ns, so both go again.
        (500, SENT_NS + 10, SENT_NS),
        (500, SENT_NS + 2 * FRAME_NS + 499, SENT_NS),
        # The first is acknowledged after 124 + 100 ns, and only the second goes again.
        (50, SENT_NS + FRAME_NS + 99, SENT_NS),
        (50, SENT_NS + FRAME_NS + 100, SENT_NS + FRAME_NS),
        (50, SENT_NS + 2 * FRAME_NS + 49, SENT_NS + FRAME_NS),
        # Both have arrived.
        (50, SENT_NS + 2 * FRAME_NS + 50, None),
    ],
)
@pytest.mark.parametrize("length_ns", [1, 20_000])
def test_what_an_outage_costs_one_message(
    latency_ns: float, down_ns: float, from_ns: float | None, length_ns: float
) -> None:
    """The outage and what is sent again: what was sent from ``from_ns`` on, is from the end of the outage on."""
    up_ns = down_ns + length_ns
    later_ps = probed(3000, latency_ns, down_ns, up_ns) - probed(3000, latency_ns)
    if from_ns is None:
        # The credit that answers is sent while the link is down, or after that.
        assert later_ps >= 0
        assert later_ps == 0 or length_ns > 1
    else:
        assert later_ps == max(round(1000 * (up_ns - from_ns)), 0)


def test_explain_refuses_outages() -> None:
    """It would call what an outage took a wait, and name changes that end before it."""
    words = [str(word) for word in (*ALL_REDUCE, "--explain", "--fault", "link:0.E@3us:1us")]
    chosen = parse(words)
    with pytest.raises(
        ConfigError, match="--explain: does not support outages of links; leave --explain or the outages out"
    ):
        checked(chosen, words)


def test_without_go_back_n_the_loss_is_named() -> None:
    done = run(*ALL_REDUCE, "--set", "links.ethernet_100g.params.go_back_n=false", "--fault", "link:2.W@3us:50us")
    error = done.outcome.error
    assert error is not None
    assert (error.kind, done.outcome.exit_code) == ("LinkLoss", 3)
    told = r"link (1\.E>2\.W|2\.W>1\.E) went down at 3us and lost \d+ packets, parts of \d+ \w+ of \d+ B"
    assert re.match(told, error.message)
    assert "set go_back_n: true" in error.message
    late = ("--fault", "link:2.W@900us:50us")
    assert run(*ALL_REDUCE, "--set", "links.ethernet_100g.params.go_back_n=false", *late).outcome.error is None


def test_of_several_losses_the_first_is_named_whatever_the_mail() -> None:
    """Both directions of two links lose frames, within a window of each other. 2.W>1.E finds it first."""
    down = ("--fault", "link:2.W@3550ns:50us", "--fault", "link:0.W@3750ns:50us")
    words = (*ALL_REDUCE, "--set", "links.ethernet_100g.params.go_back_n=false", *down)
    plain = run(*words).document["error"]
    assert plain["message"].startswith("link 2.W>1.E went down at 3550ns and lost 16 packets")
    assert (plain["rank"], plain["time_ps"], plain.get("also")) == (2, 3_550_000, None)
    for seed in range(2):
        assert run(*words, mail_seed=seed).document["error"] == plain


def test_an_outage_after_the_end_moves_nothing() -> None:
    """Frames of several packets, which meet others behind their links, some on their way through."""
    words = (*ALL_REDUCE, "--topology", "mesh_2d_no_wrap", "--set", "system.sips.shape=[4,1]", "--bytes", "64K")
    alone, late = run(*words), run(*words, "--fault", "link:0.E@9s:5us", "--fault", "link:1.E@9s:5us")
    assert alone.outcome.error is None
    assert late.results() == alone.results()
