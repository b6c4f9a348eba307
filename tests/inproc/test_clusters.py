"""Systems whose ports have names of their own, on chip ``lab.ring_chip``: built in, and from cluster descriptors."""

import json
from pathlib import Path

import pytest
from runs import Run, run, script_file

from launcher.commands.launch import listing
from sipsim.chips.config import load
from sipsim.core.errors import ConfigError
from sipsim.topology.links import TOPOLOGIES

N300 = Path(__file__).resolve().parents[2] / "docs/examples/n300.yaml"
PORTS = ["hub", *(f"spoke{sip}" for sip in range(1, 12)), *(f"eth{channel}" for channel in range(16))]
PARAMS = {"cores": 4, "hop_ns": 2, "service_ns": 30, "ports": PORTS}
CHIP = ["--set", "system.chip=lab.ring_chip", "--set", f"system.chip_params={json.dumps(PARAMS)}"]
LAPS = """
def worker(rank, world_size, chip):
    if rank == 0:
        chip.send(world_size - 1, 2, 0)
    for _ in range(3):
        number = chip.recv()
        if number < 3 * world_size - 1:
            chip.send((rank - 1) % world_size, number % 4, number + 1)
"""
"""A number goes around all SIPs three times, also between SIPs that are no neighbours."""


def run_script(folder: Path, *flags: object, **how: int) -> Run:
    return run(*CHIP, *flags, script_file(folder, LAPS), **how)


@pytest.mark.parametrize(
    "flags",
    [
        ("--topology", "tt_line", "--sips", 4),
        ("--topology", "tt_ring", "--sips", 5, "--set", "system.sips.num_links=4"),
        ("--topology", "t3000"),
        ("--cluster", N300),
        ("--topology", "lab.star", "--sips", 12),
    ],
    ids=["tt_line", "tt_ring", "t3000", "cluster", "star"],
)
def test_the_mail_does_not_matter(tmp_path: Path, flags: tuple[object, ...]) -> None:
    runs = [run_script(tmp_path, *flags)]
    runs += [run_script(tmp_path, *flags, mail_seed=seed) for seed in range(3)]
    assert {done.document["status"] for done in runs} == {"ok"}
    assert len({done.document["digest"] for done in runs}) == 1


def test_parallel_links_count_in_the_digest(tmp_path: Path) -> None:
    """Packets take the first of them, so times are equal."""
    ring = ("--topology", "tt_ring", "--sips", 3)
    one, two = (run_script(tmp_path, *ring, "--set", f"system.sips.num_links={links}") for links in (1, 2))
    ends = [[member.session.engine.now_ps for member in done.members] for done in (one, two)]
    assert ends[0] == ends[1]
    assert one.document["digest"] != two.document["digest"]


def test_a_cluster_is_its_links(tmp_path: Path) -> None:
    """And places and hosts, not its file: equal ones of other chips give the same digest; another channel does not."""
    first = run_script(tmp_path, "--cluster", N300)
    texts = {
        "same": "[{chip: 7, chan: 1}, {chip: 4, chan: 9}], [{chip: 4, chan: 8}, {chip: 7, chan: 0}]",
        "other": "[{chip: 7, chan: 2}, {chip: 4, chan: 9}], [{chip: 4, chan: 8}, {chip: 7, chan: 0}]",
    }
    digests = {}
    for name, text in texts.items():
        file = tmp_path / f"{name}.yaml"
        rest = "chips: {4: [0, 0, 0, 0], 7: [1, 0, 0, 0]}\nchips_with_mmio: [4: 0]\nharvesting: {}\nboards: []\n"
        file.write_text(f"arch: {{7: Wormhole, 4: Wormhole}}\nethernet_connections: [{text}]\n{rest}")
        digests[name] = run_script(tmp_path, "--cluster", file).document["digest"]
    assert digests["same"] == first.document["digest"] != digests["other"]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--sips", 3), f"--sips 3: --cluster {N300} has 2 chips; leave --sips out"),
        (("--topology", "n300"), f"--topology n300: --cluster {N300} defines the topology; leave one of the two out"),
        (("--shape", "2x1"), None),
        (("--sips", 2), None),
    ],
)
def test_a_cluster_has_its_count(tmp_path: Path, flags: tuple[object, ...], line: str | None) -> None:
    if line is None:
        assert run_script(tmp_path, "--cluster", N300, *flags).document["status"] == "ok"
        return
    with pytest.raises(ConfigError) as caught:
        run_script(tmp_path, "--cluster", N300, *flags)
    assert str(caught.value) == line


def test_a_cluster_of_another_chip() -> None:
    with pytest.raises(ConfigError) as caught:
        run("--chip", "ahbm", "--cluster", N300)
    assert str(caught.value) == (
        "--chip ahbm: system.sips.topology = custom: the topology uses port eth8, "
        "but a SIP of chip ahbm has ports E, N, S, W; use another chip or topology"
    )


def test_all_topologies_are_listed_with_a_line() -> None:
    lines = listing("topologies", load()).splitlines()
    assert [line.split()[0] for line in lines] == TOPOLOGIES.names()
    assert all(len(line.split()) > 3 for line in lines)
