"""The fourth ring needs root, namespaces and a site's programs: who lacks one is skipped, and the last line tells.

A test says what it needs by its marker: ``cluster("hosts")``, ``cluster("slurm")``, ... Hosts are always needed.
"""

import sys
from collections.abc import Generator, Iterator
from functools import cache

import pytest
from hosts import Hosts, namespace_hosts, why_no_hosts
from services import why_no

_RAN: dict[str, str] = {}
"""For each kind of cluster that a test wanted: tested, failed, or why it was skipped."""


@cache
def _why_not(kind: str) -> str:
    return why_no_hosts() or why_no(kind)


def kinds(item: pytest.Item) -> list[str]:
    """The kinds of cluster that a test needs; the last is what it is about."""
    return [str(marker.args[0]) for marker in reversed(list(item.iter_markers("cluster")))]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip who cannot run here."""
    for kind in kinds(item):
        if why := _why_not(kind):
            _RAN.setdefault(kind, f"skipped: {why}")
            pytest.skip(f"no cluster of kind {kind!r}: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what was tested."""
    report = yield
    if found := kinds(item):
        kind = found[-1]
        if report.failed:
            _RAN[kind] = "FAILED"
        elif report.when == "call" and report.passed:
            _RAN.setdefault(kind, "tested")
        elif report.skipped:
            _RAN.setdefault(kind, "skipped (see above)")
    return report


def pytest_unconfigure() -> None:
    """The last lines of a session."""
    for kind, what in sorted(_RAN.items()):
        print(f"ahbm: cluster of kind {kind}: {what}", file=sys.stderr)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Four hosts and a head."""
    with namespace_hosts(4) as made:
        yield made
