"""Promises hold in every credit mode, for what is sent from an address and for credits that go like messages.

``Session.emit`` checks every packet against lookahead and promise; here a test's own books do it again, and show that
the promise could not be later.
"""

from pathlib import Path

import pytest
from runs import Run, ccl_file, run, script_file
from sweeps import crossed, some
from watched import Watched, short_windows

from sipsim.core.session import Session

SEEDS = range(12)
MODES = ("fast_path", "fabric", "piggyback", "auto")

HEAD = """
TOPO_NAME_TO_KIND = {"ring_1d": 0, "mesh_2d_no_wrap": 2}

def kernel_args(world_size, n_elem, system):
    return n_elem, system.n_sips, system.n_cubes
"""

EVERYBODY = (
    HEAD
    + """
def neighbors(rank, world_size, built_in, system):
    size = system.n_sips * system.n_cubes
    return {f"to{k}": (rank + k * system.n_cubes) % size for k in range(1, system.n_sips)}

def kernel(t_ptr, n_elem, n_sips, n_cubes, sip, kind, w, h, tl):
    shard = t_ptr + tl.program_id(1) * n_elem * 2
    def length(turn, sender):
        return (1, 1, n_elem, 2)[(turn + sender) % 4]
    for turn in range(10):
        for k in range(1, n_sips):
            count = length(turn, sip)
            if turn % 3 == sip % 3:
                tl.send(f"to{k}", tl.load(shard, count))
            else:
                tl.send(f"to{k}", src_addr=shard, shape=count)
        futures = [
            tl.recv_async(f"to{n_sips - k}", length(turn, (sip - k) % n_sips), "f16") for k in range(1, n_sips)
        ]
        for future in futures:
            tl.wait(future)
"""
)
"""Every cube sends to its twin on every other SIP, from its HBM and from its PE in turn."""

ONE_WAY = (
    HEAD
    + """
def neighbors(rank, world_size, built_in, system):
    return {"away": rank + system.n_cubes} if rank < system.n_cubes else {}

def kernel(t_ptr, n_elem, n_sips, n_cubes, sip, kind, w, h, tl):
    for turn in range(20 if sip < 2 else 0):
        if sip == 0:
            tl.send("away", src_addr=t_ptr + tl.program_id(1) * n_elem * 2, shape=1 + turn % 3)
        else:
            tl.recv("away", 1 + turn % 3, "f16")
"""
)
"""SIP 0 sends to SIP 1, which has nothing to send but credits."""

SYSTEMS = {
    "everybody in a ring": (EVERYBODY, ("--sips", 5)),
    "everybody in a line": (EVERYBODY, ("--sips", 4, "--topology", "mesh_2d_no_wrap", "--shape", "4x1")),
    "two SIPs": (EVERYBODY, ("--sips", 2)),
    "one way": (ONE_WAY, ("--sips", 2)),
    "one way of three": (ONE_WAY, ("--sips", 3)),
}
SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--n-elem", 300, "--no-verify-data")
SMALL += ("--set", "cube.pes=1")
"""The bounds are those of the PE that is nearest to a port, so a cube has no other."""


def is_tight(system: str, mode: str) -> bool:
    """Whether each SIP sends by its nearest port as soon as any PE could. What goes one way does not, and where credits
    go to SIPs to which no link leads, control packets allow no egress.
    """
    has_far_credits = system != "two SIPs" and mode in ("fast_path", "auto")
    return not (system.startswith("one way") or has_far_credits)


def most_slack_ps(system: str) -> int:
    """The bounds are those of one byte: the least message has two and a header, at 64 GB/s. Of two SIPs all goes by E,
    to which the way is longer than to W, by which a frame could go, too.
    """
    return 50 + (3750 if system == "two SIPs" else 0)


TIGHT = some(
    [(system, mode) for system in SYSTEMS for mode in MODES if is_tight(system, mode)],
    *(("everybody in a ring", "fabric"), ("everybody in a line", "piggyback"), ("two SIPs", "auto")),
)


def run_mode(folder: Path, system: str, mode: str, link: str, *flags: object) -> Run:
    source, shape = SYSTEMS[system]
    chosen = ("--link", link, "--set", f"defaults.credit_return_mode={mode}", "--set", "defaults.n_slots=2")
    return run(*ccl_file(folder, source), *shape, *SMALL, *chosen, *flags)


@pytest.mark.ideal
@pytest.mark.parametrize(("system", "mode"), crossed(SYSTEMS, MODES))
@pytest.mark.parametrize("link", ["ucie", "ethernet_100g"])
def test_promises_are_kept_and_tight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, mode: str, link: str
) -> None:
    """No packet leaves sooner; over UCIe some leave just then."""
    watched = Watched(monkeypatch)
    done = run_mode(tmp_path, system, mode, link, "--check-invariants")
    assert done.document["status"] == "ok", done.document["error"]
    assert len(watched.slacks) == sum(each["packets_sent"] for each in done.document["ranks"]) >= 50
    assert min(watched.slacks) >= 0
    if link == "ucie" and is_tight(system, mode):
        assert min(watched.slacks) <= most_slack_ps(system)
    assert max(watched.gains) == max(done.prepared.plan.egress_ps), "it widens by the way to a port"


@pytest.mark.parametrize("system", some(SYSTEMS, "everybody in a line", "one way of three"))
def test_auto_keeps_promises_where_some_credits_have_a_wire_and_some_are_messages(tmp_path: Path, system: str) -> None:
    """The first link is Ethernet, the others are UCIe."""
    mixed = ("--set", "system.sips.links={0.E: ethernet_100g}")
    for seed in SEEDS[:3]:
        with pytest.MonkeyPatch.context() as patch:
            short_windows(patch, seed)
            watched = Watched(patch)
            done = run_mode(tmp_path, system, "auto", "ucie", "--check-invariants", *mixed)
        assert done.document["status"] == "ok", done.document["error"]
        assert min(watched.slacks) >= 0


@pytest.mark.parametrize(("system", "mode"), crossed(SYSTEMS, MODES))
def test_promises_are_kept_over_links_that_pad_and_store_frames(tmp_path: Path, system: str, mode: str) -> None:
    """Packets come later than over links that cut through; the bounds know padded frames."""
    frames = {"forwarding": "store_and_forward", "min_frame_bytes": 64}
    flags = [word for key, value in frames.items() for word in ("--set", f"links.ethernet_400g.params.{key}={value}")]
    for seed in SEEDS[:1]:
        with pytest.MonkeyPatch.context() as patch:
            short_windows(patch, seed)
            watched = Watched(patch)
            done = run_mode(tmp_path, system, mode, "ethernet_400g", "--check-invariants", *flags)
        assert done.document["status"] == "ok", done.document["error"]
        assert min(watched.slacks) >= 0


def note_by_sip(monkeypatch: pytest.MonkeyPatch, least: dict[int, int]) -> None:
    """By SIP: how much later than it had promised a packet left at least."""
    watched = Watched(monkeypatch)
    watched_emit = Session.emit

    def noted(session: Session, channel: int, arrival_ps: int, body: bytes) -> None:
        watched_emit(session, channel, arrival_ps, body)
        least[session.rank] = min(least.get(session.rank, watched.slacks[-1]), watched.slacks[-1])

    monkeypatch.setattr(Session, "emit", noted)


@pytest.mark.parametrize("mode", MODES)
def test_slow_parts_of_a_pe_are_in_the_promise(tmp_path: Path, mode: str) -> None:
    """A PE of 4 GB/s, a link of 7, and a port that is nearer than its chunk is long: the last chunk of what is fetched
    has to be told when it starts into the PE, or the link's lookahead is broken. So has a large credit's when it starts
    out of it.
    """
    line = ("--sips", 2, "--topology", "mesh_2d_no_wrap", "--shape", "2x1", "--set", "sip.cube_mesh.w=1")
    slow = ("--set", "pe_dma.bandwidth_GBps=4", "--set", "links.ucie.params.bandwidth_GBps=7")
    flags = (*line, "--set", "sip.cube_mesh.h=1", *slow, "--n-elem", 100, "--no-verify-data")
    flags += ("--set", f"defaults.credit_return_mode={mode}", "--set", "defaults.ipcq_credit_size_bytes=200")
    done = run(*ccl_file(tmp_path, EVERYBODY), *flags)
    assert done.document["status"] == "ok", done.document["error"]


@pytest.mark.ideal
@pytest.mark.parametrize("tight", TIGHT, ids="-".join)
def test_promises_of_sending_sips_are_exact(tmp_path: Path, tight: tuple[str, str]) -> None:
    """With promises at any time, each SIP has a packet that leaves as its promise says.

    What is on its way from an address counts its fetch.
    """
    least: dict[int, int] = {}
    for seed in SEEDS:
        with pytest.MonkeyPatch.context() as patch:
            short_windows(patch, seed)
            note_by_sip(patch, least)
            assert run_mode(tmp_path, *tight, "ucie").document["status"] == "ok"
        if max(least.values()) <= most_slack_ps(tight[0]):
            return
    raise AssertionError(f"by SIP, it could have been later by {least}")


FETCHED = """
def worker(rank, world_size, torch):
    tensor = torch.zeros((16, 4096), dtype="f16")

    def kernel(ptr, tl):
        if tl.program_id(1) == 3:
            for n in (2048, 3, 700, 2048):
                if rank == 0:
                    tl.send("global_E", src_addr=ptr + 3 * 8192, shape=n, dtype="f16")
                else:
                    tl.recv("global_W", n, "f16")

    torch.launch(kernel, tensor)
"""


def test_a_slow_memory_keeps_the_lookahead_of_a_slower_link(tmp_path: Path) -> None:
    """From when the last chunk of what is fetched starts into the PE, its tail may be at the port sooner than a chunk
    takes on the link.
    """
    flags = ["--sips", 2, "--set", "links.ucie.params.bandwidth_GBps=0.1", "--set", "hbm.bandwidth_GBps=0.05"]
    done = run(*flags, "--set", "pe_dma.bandwidth_GBps=1000", script_file(tmp_path, FETCHED))
    assert done.outcome.error is None
