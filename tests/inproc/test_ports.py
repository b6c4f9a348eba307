"""Ports of a user's own: that send later, answer what arrives, or hold it back. No promise is broken, and a kind whose
framing or bounds cannot be is refused by name.
"""

import json
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from runs import Run, ccl_file, run
from sweeps import crossed

from sipsim.core.errors import ConfigError
from sipsim.fabric.channels import COMM
from sipsim.fabric.flows import Flow, FlowFabric
from sipsim.fabric.graph import Route
from sipsim.fabric.links.frames import UNSENT, Frame, Number, packet_kind
from sipsim.fabric.links.kind import LINK_KINDS, LinkKind, Port, PortContext
from sipsim.fabric.links.rules import PAYLOADS

HOLD_PS = 10_000_000


class Plain(LinkKind, frozen=True):
    """No framing."""

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes


class SlowPort(Port):
    """It keeps each frame for 10 us before it brings it to the link, and says so."""

    def send(self, frame: Frame, way: Route, train: Any, delay_ps: int = 0, *more: Any, **others: Any) -> Any:
        return super().send(frame, way, train, delay_ps + HOLD_PS, *more, **others)


class Slow(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return SlowPort(self, context)


class HoldingPort(Port):
    """What arrives goes on 3 us later."""

    def receive(self, frame: Frame) -> None:
        self.pass_on(frame, 3_000_000)


class Holding(Plain, frozen=True):
    """Ethernet's framing."""

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes + -(-payload_bytes // 1500) * 50

    def open(self, context: PortContext) -> Port:
        return HoldingPort(self, context)


class TellingPort(Port):
    """It tells what it was asked, and sends nothing before it may."""

    asked: ClassVar[list[int]] = []

    def earliest_send_ps(self, next_ps: int) -> int:
        self.asked.append(next_ps)
        return super().earliest_send_ps(next_ps)


class Telling(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return TellingPort(self, context)


class FirstOf(Plain, frozen=True):
    """Its first packet is shorter than a payload of a byte."""

    def first_bytes(self, payload_bytes: int) -> int:
        return 0


class FirstRaises(Plain, frozen=True):
    def first_bytes(self, payload_bytes: int) -> int:
        raise ZeroDivisionError("by nothing")


class StoredPart(Plain, frozen=True):
    def stored_ps(self, payload_bytes: int) -> int:
        return 10.5  # type: ignore[return-value]


@packet_kind
class Ack(Frame, tag=102):
    """So many frames have arrived."""

    count: Number

    @property
    def data_bytes(self) -> int:
        return 0


class AckingPort(Port):
    """It acknowledges each frame of data, over the link against the data of the other direction."""

    port_frames = (Ack,)
    arrived = sent = 0
    acks: ClassVar[list[int]] = []
    all_sent: ClassVar[list[int]] = []

    def send(self, frame: Frame, way: Route, train: Any, *more: Any, **others: Any) -> Any:
        if not isinstance(frame, Ack):
            self.all_sent.append(1)
        return super().send(frame, way, train, *more, **others)

    def receive(self, frame: Frame) -> None:
        if isinstance(frame, Ack):
            assert frame.count == self.sent + 1
            self.sent = frame.count
            self.acks.append(1)
            return
        self.arrived += 1
        self.send_own(Ack(*UNSENT, self.arrived), 8 if self.arrived % 2 else 300, COMM)
        super().receive(frame)


class Acking(Plain, frozen=True):
    answer_ps = 0

    def open(self, context: PortContext) -> Port:
        return AckingPort(self, context)


class NoLookahead(Plain, frozen=True):
    def lookahead_ps(self, way_ps: int) -> int:
        return 0


class Shrinking(Plain, frozen=True):
    def wire_bytes(self, payload_bytes: int) -> int:
        return -(-payload_bytes // 2)


class Fractional(Plain, frozen=True):
    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes * 1.5  # type: ignore[return-value]


class Failing(Plain, frozen=True):
    def wire_bytes(self, payload_bytes: int) -> int:
        raise ZeroDivisionError("by nothing")


class NoReaction(Plain, frozen=True):
    def reaction_ps(self, path_ps: int) -> int:
        return None  # type: ignore[return-value]


class QuittingPort(Port):
    def receive(self, frame: Frame) -> None:
        raise SystemExit(0)


class Quitting(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return QuittingPort(self, context)


class VaguePort(Port):
    def earliest_send_ps(self, next_ps: int) -> int:
        return super().earliest_send_ps(next_ps) / 2  # type: ignore[return-value]


class Vague(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return VaguePort(self, context)


class LatePort(Port):
    def leave(self, frame: Frame, head_ps: int, tail_ps: int) -> None:
        super().leave(frame, head_ps, tail_ps + 0.5)  # type: ignore[arg-type]


class Late(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return LatePort(self, context)


class LeavingPort(Port):
    """It counts the bytes that leave."""

    left: ClassVar[list[int]] = []

    def leave(self, frame: Frame, head_ps: int, tail_ps: int) -> None:
        self.left.append(frame.data_bytes)
        super().leave(frame, head_ps, tail_ps)


class Leaving(Plain, frozen=True):
    def open(self, context: PortContext) -> Port:
        return LeavingPort(self, context)


class Losing(Plain, frozen=True):
    """Only for sizes that nobody tries before a run."""

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes if payload_bytes in PAYLOADS else 1


class Listed(Plain, frozen=True):
    lanes: list[int] = msgspec.field(default_factory=lambda: [1])


CANNOT_BE = (FirstOf, FirstRaises, StoredPart, NoLookahead, Shrinking, Fractional, Failing, NoReaction, Listed)
CANNOT_RUN = (Quitting, Vague, Late, Losing)
KINDS = {kind.__name__: kind for kind in (Slow, Holding, Telling, Acking, Leaving, *CANNOT_BE, *CANNOT_RUN)}


@pytest.fixture(autouse=True)
def _with_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LINK_KINDS.names():
        LINK_KINDS.get(name)  # so that its module is imported before the table is replaced
    monkeypatch.setattr(LINK_KINDS, "_entries", copy(LINK_KINDS._entries))
    for name, kind in KINDS.items():
        LINK_KINDS.register(name)(kind)  # type: ignore[arg-type]


NEXT_BUT_ONE = """
def neighbors(rank, world_size, neighbor_map, system):
    step = 2 * system.n_cubes
    return {"E": (rank + step) % world_size, "W": (rank - step) % world_size}

def kernel_args(world_size, n_elem):
    return (n_elem,)
"""
"""Every SIP has the next but one as its neighbour."""
TWO_ON = f"""{NEXT_BUT_ONE}
def kernel(t, n_elem, tl):
    for turn in range(4):
        tl.send("E", tl.load(t, 1 + turn * n_elem // 4))
        tl.send("E", src_addr=t, shape=n_elem)
        tl.recv("W", 1 + turn * n_elem // 4, t.dtype)
        tl.recv("W", n_elem, t.dtype)
"""
"""Every SIP sends to the next but one, so that each passes traffic on and sends its own, which takes longer."""
MODES = ("fast_path", "fabric", "piggyback")


def run_on(folder: Path, kind: str, sips: int, mode: str = "fast_path") -> Run:
    preset = {"kind": kind, "source": "the tests", "params": {"bandwidth_GBps": 10, "latency_ns": 40}}
    flags = ("--set", f"links.mine={json.dumps(preset)}", "--link", "mine", "--check-invariants", "--no-verify-data")
    cubes = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--n-elem", "300,7", "-n", 2)
    ipcq = ("--set", f"defaults.credit_return_mode={mode}", "--set", "pe_ipcq.overhead_ns=40")
    return run(*ccl_file(folder, TWO_ON), "--sips", sips, *flags, *cubes, *ipcq)


@pytest.mark.parametrize(("kind", "sips", "mode"), crossed(["Slow", "Holding", "Telling", "Acking"], [3, 5, 4], MODES))
def test_promises_hold_for_ports_of_ones_own(tmp_path: Path, kind: str, sips: int, mode: str) -> None:
    """Several sizes and iterations, so control packets of the barrier, which pass no port, are sent meanwhile."""
    done = run_on(tmp_path, kind, sips, mode)
    assert done.document["status"] == "ok", done.document["error"]
    assert len(done.document["runs"]) == 2
    if kind == "Telling":
        assert len(TellingPort.asked) > 50
    if kind == "Acking":
        assert len(AckingPort.acks) == len(AckingPort.all_sent) > 50


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("NoLookahead", "link 0.E>1.W, of kind NoLookahead: its lookahead is 0 ps; without delay SIPs cannot be "),
        ("Shrinking", "links.mine.kind = Shrinking: wire_bytes(16) is 8; must be a whole number of at least 16"),
        ("Fractional", "links.mine.kind = Fractional: wire_bytes(1) is 1.5; must be a whole number of at least 1"),
        ("Failing", "links.mine.kind = Failing: wire_bytes(1) raised ZeroDivisionError: by nothing"),
        ("Listed", "links.mine.kind = Listed: unhashable type: 'list'; must be a frozen class with hashable par"),
        ("FirstOf", "links.mine.kind = FirstOf: first_bytes(1) is 0; must be a whole number from 1 to 1"),
        ("FirstRaises", "links.mine.kind = FirstRaises: first_bytes(1) raised ZeroDivisionError: by nothing"),
        ("StoredPart", "links.mine.kind = StoredPart: stored_ps(1) is 10.5; must be a whole number from 0 to "),
        ("NoReaction", "link 0.E>1.W, of kind NoReaction: its reaction_ps is None; must be a whole number of ps, 0 or"),
    ],
)
def test_a_kind_that_cannot_be_is_refused(tmp_path: Path, kind: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_on(tmp_path, kind, 5)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("Quitting", "sys.exit(0) was called at "),
        ("Vague", "; must be int ps (rank "),
        ("Late", ".5; must be int ps (rank "),
        ("Losing", "is 1; must be at least the payload's "),
    ],
)
def test_a_port_that_breaks_a_rule_ends_the_run(tmp_path: Path, kind: str, line: str) -> None:
    done = run_on(tmp_path, kind, 3)
    assert done.document["status"] == "failed"
    assert line in done.document["error"]["message"]


ONE_FAR = f"""{NEXT_BUT_ONE}
def kernel(t, n_elem, tl):
    tl.send("E", src_addr=t, shape=n_elem)
    tl.recv("W", n_elem, t.dtype)
"""
"""Every SIP sends a message to the next but one."""


def one_far(folder: Path, kind: str, n_elem: int) -> dict[str, Any]:
    """The document of a run of it."""
    preset = {"kind": kind, "source": "the tests", "params": {"bandwidth_GBps": 10, "latency_ns": 40}}
    cubes = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--n-elem", n_elem, "--no-verify-data")
    flags = ("--set", f"links.mine={json.dumps(preset)}", "--link", "mine", "--sips", 5, *cubes)
    done = run(*ccl_file(folder, ONE_FAR), *flags)
    assert done.document["status"] == "ok", done.document["error"]
    return done.document


@pytest.mark.parametrize("n_elem", [100, 1000])
def test_a_port_that_sends_later_does_so_with_what_passes_through_too(tmp_path: Path, n_elem: int) -> None:
    """Of frames of one packet and of several: two hops, two delays."""
    assert one_far(tmp_path, "Slow", n_elem)["runs"][0]["time_ns"] * 1000 >= 2 * HOLD_PS


@pytest.mark.parametrize("n_elem", [100, 1000])
def test_each_frame_passes_a_ports_own_leave(tmp_path: Path, n_elem: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeavingPort, "left", [])
    document = one_far(tmp_path, "Leaving", n_elem)
    assert sum(LeavingPort.left) == sum(rank["bytes_sent"] for rank in document["ranks"]) == 5 * 2 * 2 * 2 * n_elem


CREDITS_FIRST = (
    *("--sips", 4, "--topology", "mesh_2d_no_wrap", "--set", "system.sips.shape=[4,1]"),
    *("--set", "defaults.virtual_channels=true", "--set", "defaults.credit_virtual_channel=true"),
    *("--set", "defaults.ipcq_credit_size_bytes=4096", "--algorithm", "bidirectional_ring", "--bytes", "128K"),
    *("--set", "algorithms.bidirectional_ring.credit_return_mode=fabric"),
    *("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--check-invariants"),
)


@pytest.mark.parametrize("link", ["ucie", "ethernet_100g"])
def test_heads_that_stand_behind_long_credits_keep_promises_whatever_the_mail(
    link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of frames that pass through."""
    stood: list[int] = []
    replan = FlowFabric._replan_first

    def counted(fabric: FlowFabric, flow: Flow, now: int) -> None:
        stood.append(flow.rate)
        replan(fabric, flow, now)

    monkeypatch.setattr(FlowFabric, "_replan_first", counted)
    words = ("--link", link, *CREDITS_FIRST)
    plain = run(*words)
    assert plain.outcome.error is None
    assert any(stood)
    for seed in range(2):
        assert run(*words, mail_seed=seed).results() == plain.results()
