"""A digest covers the source of users' modules that are in use; without such a module there is no plan, in one line."""

import json
from pathlib import Path

import pytest

from launcher.processes.ticket import Ticket
from launcher.run.isolation import isolated
from sipsim.chips.base import plan_of
from sipsim.chips.load import load
from sipsim.config.override import Override
from sipsim.errors import ConfigError
from sipsim.node.sip_node import run_digest
from sipsim.plan.base import RunPlan
from sipsim.plan.job import Job

SOURCE = """
from sipsim.ccl.collectives.all_reduce import AllReduce
from sipsim.ccl.collectives.base import COLLECTIVES
from sipsim.ccl.tables.base import TABLES, table
from sipsim.chips.ahbm import Ahbm
from sipsim.chips.base import CHIPS
from sipsim.links.base import LINK_KINDS, LinkKind
from sipsim.memory.fixed_latency import FixedLatency
from sipsim.memory.port import MEMORY_KINDS
from sipsim.noc.parts.base import PARTS
from sipsim.noc.parts.router import Router
from sipsim.topology.base import TOPOLOGIES

class Link(LinkKind, frozen=True):
    def wire_bytes(self, payload_bytes): return payload_bytes

TOPOLOGIES.register(__name__)(TOPOLOGIES.get("ring_1d"))
TABLES.register(__name__)(TABLES.get("none"))
for registry, thing in (
    (COLLECTIVES, AllReduce()), (CHIPS, Ahbm()), (LINK_KINDS, Link), (MEMORY_KINDS, FixedLatency), (PARTS, Router)
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


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_source_of_what_is_used_is_covered(use: Use) -> None:
    first, again, other = digest(use), digest(use), digest(use, source=f"{SOURCE}# another\n")
    assert first == again != other


def test_the_source_of_what_is_not_used_is_not() -> None:
    assert digest(NOT_USED) == digest(NOT_USED, source=f"{SOURCE}# another\n") == digest({})


def test_classes_of_one_name_in_two_modules_are_two_kinds() -> None:
    with isolated():
        views = []
        for name in ("one", "two"):
            Path("users", f"{name}.py").write_text(SOURCE)
            views.append(planned(USES["link kind"], name)[0].canonical_view()["link"])
    assert [view[0] for view in views] == ["users.one", "users.two"]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_module_that_is_missing_elsewhere_is_one_line(use: Use) -> None:
    Path("users/one.py").write_text(SOURCE)
    with isolated():
        text = Ticket.of(*planned(use)).text()
    Path("users/one.py").unlink()
    with isolated(), pytest.raises(ConfigError) as caught:
        Ticket.from_text(text).prepare()
    words = str(caught.value)
    assert words.startswith("the run needs what is missing here: unknown ")
    assert "the module cannot be imported: ModuleNotFoundError: No module named 'users.one'" in words
    assert "\n" not in words
