"""The fourth ring needs root, namespaces and cluster programs: tests without them are skipped, the last line says why.

A test names its needs by its marker: ``cluster("hosts")``, ``cluster("slurm")``, ... Hosts are always needed.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache

import pytest
from hosts import Hosts, namespace_hosts, why_no_hosts
from services import why_no

_TOLD: dict[str, Counter[str]] = {}
"""How many tests of each kind of cluster passed, failed, were skipped."""
_MEASURED: list[str] = []
"""What is nobody's limit, but worth a line."""
_WHY: dict[str, str] = {}
"""Why some of them were skipped."""


@cache
def _why_not(kind: str) -> str:
    return why_no_hosts() or why_no(kind)


def kinds(item: pytest.Item) -> list[str]:
    """The kinds of cluster that a test needs; the last is what it is about."""
    found = {str(marker.args[0]) for marker in item.iter_markers("cluster")}
    return sorted(found, key=lambda kind: (kind != "hosts", kind))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that cannot run here."""
    for kind in kinds(item):
        if why := _why_not(kind):
            pytest.skip(f"no cluster of kind {kind!r}: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what was tested."""
    report = yield
    if found := kinds(item):
        if report.failed or report.skipped or report.when == "call":
            _TOLD.setdefault(found[-1], Counter())[report.outcome] += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            _WHY.setdefault(found[-1], report.longrepr[2].removeprefix("Skipped: "))
    return report


def pytest_unconfigure() -> None:
    """The last lines of a session, also where standard output waits in a buffer."""
    sys.stdout.flush()
    for kind, told in sorted(_TOLD.items()):
        counts = ", ".join(f"{told[what]} {what}" for what in ("passed", "failed", "skipped") if told[what])
        why = f" ({_WHY[kind]})" if kind in _WHY else ""
        print(f"ahbm: cluster tests, {kind}: {counts}{why}", file=sys.stderr)
    for line in _MEASURED:
        print(f"ahbm: {line}", file=sys.stderr)


@pytest.fixture
def tell() -> Callable[[str], None]:
    """Adds a line to the end of the session."""
    return _MEASURED.append


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Four hosts and a head."""
    with namespace_hosts(4) as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One cluster at a time, whatever runs beside it."""
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group("cluster"))
