"""A digest covers the source of users' modules that are in use; without such a module there is no plan, in one line."""

import json
from pathlib import Path

import pytest

from broker.ids import PROTOCOL
from broker.membership import Membership
from broker.wire import Join
from launcher.isolation import isolated
from launcher.options import Options
from launcher.processes.ticket import Ticket
from launcher.run.folder import RunFolder, check_same, read
from launcher.supervise.run import Run
from sipsim.chips.ahbm.collectives.algorithm import source_hash
from sipsim.chips.api.chip import plan_of
from sipsim.chips.api.run_plan import RunPlan
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.errors import ConfigError
from sipsim.node.sip_node import run_digest
from sipsim.records.job import Job

SOURCE = """
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.chips.ahbm.collectives.neighbours import TABLES, table
from sipsim.chips.ahbm.chip import Ahbm
from sipsim.chips.api.chip import CHIPS
from sipsim.fabric.links.kind import LINK_KINDS, LinkKind
from sipsim.chips.ahbm.memory.ports import FixedLatency
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS
from sipsim.chips.ahbm.mesh import PARTS
from sipsim.chips.ahbm.mesh import router
from sipsim.topology.links import TOPOLOGIES

class Link(LinkKind, frozen=True):
    def wire_bytes(self, payload_bytes): return payload_bytes

TOPOLOGIES.register(__name__)(TOPOLOGIES.get("ring_1d"))
TABLES.register(__name__)(TABLES.get("none"))
for registry, thing in (
    (COLLECTIVES, COLLECTIVES.get("all_reduce")), (CHIPS, Ahbm()), (LINK_KINDS, Link), (MEMORY_KINDS, FixedLatency),
    (PARTS, router)
):
    registry.register(__name__)(thing)
"""
COLLECTIVE = "collective of the job"
ALGORITHM = "def neighbors(*_): return {}\ndef kernel_args(*_): return ()\ndef kernel(t, tl): pass\n"
LINK = {"kind": "MODULE", "source": "of the tests", "params": {"bandwidth_GBps": 8, "latency_ns": 10}}
Use = dict[str, object]
USES: dict[str, Use] = {
    "chip": {"system.chip": "MODULE"},
    "link kind": {"links.own": LINK, "system.sips.link": "own"},
    "topology": {
        "algorithms.plain": {"module": "users/plain.py", "topology": "none"},
        "defaults.algorithm": "plain",
        "system.sips.topology": "MODULE",
    },
    "memory kind": {"hbm.kind": "MODULE"},
    "part": {"parts": {"MODULE": {}}},
    "neighbour table": {"algorithms.intercube_allreduce.topology": "MODULE"},
    "collective": {COLLECTIVE: "MODULE"},
}
"""What a user's module is, by the config keys that name it; a collective is named by the job."""
NOT_USED: Use = {"links.other": LINK}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users").mkdir()
    (tmp_path / "users/plain.py").write_text(ALGORITHM)


def planned(use: Use, name: str = "one") -> tuple[RunPlan, Job]:
    """The plan and the job with the module ``users.<name>`` in that place."""
    keys = json.loads(json.dumps(use).replace("MODULE", f"users.{name}"))
    job = Job(n_elems=(8,), collective=keys.pop(COLLECTIVE, ""))
    return plan_of(load(None, None, [Override(key, value, "--set") for key, value in keys.items()])), job


def digest(use: Use, name: str = "one", source: str = SOURCE) -> str:
    """The digest of the run, in a process that has not imported the module before."""
    Path("users", f"{name}.py").write_text(source)
    with isolated():
        plan, job = planned(use, name)
        return run_digest(plan.digest, job)


@pytest.mark.ideal
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_source_of_what_is_used_is_covered(use: Use) -> None:
    first, again, other = digest(use), digest(use), digest(use, source=f"{SOURCE}# another\n")
    assert first == again != other


def test_the_source_of_what_is_not_used_is_not() -> None:
    assert digest(NOT_USED) == digest(NOT_USED, source=f"{SOURCE}# another\n") == digest({})


@pytest.mark.parametrize("module", ["users/plain.py", "users.plain"])
def test_the_source_of_an_algorithm_that_a_call_may_name_is_covered_and_not_run(module: str) -> None:
    entry: Use = {"algorithms.own": {"module": module, "topology": "none"}}
    seen = []
    for source in (ALGORITHM, ALGORITHM, f"{ALGORITHM}raise SystemExit\n"):
        Path("users/plain.py").write_text(source)
        seen.append(digest(entry))
    Path("users/plain.py").unlink()
    seen.append(digest(entry))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def test_the_source_of_the_algorithm_that_runs_is_covered() -> None:
    use: Use = {"algorithms.own": {"module": "users/plain.py", "topology": "none"}, "defaults.algorithm": "own"}
    seen = []
    for source in (ALGORITHM, ALGORITHM, f"{ALGORITHM}#"):
        Path("users/plain.py").write_text(source)
        seen.append(digest(use))
    assert seen[0] == seen[1] != seen[2]


def test_the_version_stands_for_the_source_of_a_built_in_algorithm() -> None:
    """Else a comment in the product would move the digest of every plan."""
    plan = planned({})[0]
    hashes = {source_hash(entry.module) for entry in plan.resolved.ccl.algorithms.values()}
    assert len(hashes) > 1
    assert not any(each in line for each in hashes for line in plan.digest_lines())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("defaults.workers", 63),
        ("defaults.worker_bytes", 1),
        ("defaults.group_KiB", 64),
        ("algorithms.ring.n_slots", 3),
        ("algorithms.direct.slot_size", 8192),
        ("algorithms.ring.module", "sipsim.collectives.algorithms.line"),
        ("algorithms.more", {"module": "sipsim.collectives.algorithms.line", "topology": "none"}),
    ],
)
def test_what_a_group_runs_with_is_refused_at_join_and_resume(key: str, value: object, tmp_path: Path) -> None:
    began, now = (planned(use) for use in ({}, {key: value}))
    digests = [run_digest(plan.digest, job) for plan, job in (began, now)]
    first, second = (Join(PROTOCOL, rank, 2, "1", each, 1, "host", "") for rank, each in enumerate(digests))
    RunFolder.begin(tmp_path / "kept", [], Run(Options(), *began)).close("failed")
    with pytest.raises(ConfigError, match="differs from the saved run"):
        check_same(tmp_path / "kept", read(tmp_path / "kept"), Run(Options(), *now))
    assert began[0].canonical_text() == now[0].canonical_text()
    members = Membership(2)
    assert members.join(first) is None
    assert "have different plans" in str(members.join(second))


def test_classes_of_one_name_in_two_modules_are_two_kinds() -> None:
    with isolated():
        views = []
        for name in ("one", "two"):
            Path("users", f"{name}.py").write_text(SOURCE)
            views.append(planned(USES["link kind"], name)[0].canonical_view()["link"])
    assert [view[0] for view in views] == ["users.one", "users.two"]


@pytest.mark.ideal
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_module_that_is_missing_elsewhere_is_one_line(use: Use) -> None:
    Path("users/one.py").write_text(SOURCE)
    with isolated():
        text = Ticket.of(*planned(use)).text()
    Path("users/one.py").unlink()
    with isolated(), pytest.raises(ConfigError) as caught:
        Ticket.from_text(text).prepare()
    words = str(caught.value)
    assert words.startswith("the run uses a definition that this host lacks: unknown ")
    assert "the module cannot be imported: ModuleNotFoundError: No module named 'users.one'" in words
    assert "\n" not in words
