"""Which algorithm runs a collective: the one that a call or the config names, else the one that costs least."""

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.collectives.group import Task
from sipsim.ccl.groups.catalog import Catalog

AUTO = "auto"


def select(catalog: Catalog, task: Task, configured: Algorithm, named: str = "") -> Algorithm:
    """The algorithm of a task. ``named``: by the call; empty: ``configured`` if it runs
    such collectives, else as with ``auto`` the one that costs least.

    Raises:
        ValueError: for one that cannot run it; lists those that can.
    """
    collective = task.collective.name
    if not named and collective in configured.collectives:
        named = configured.name
    if named not in ("", AUTO):
        algorithm = catalog.get(named)
        why = algorithm.why_not(task) if algorithm.is_schedule else "it is wired before the run, for all SIPs"
        if why:
            able = ", ".join(each.name for each in _able(catalog, task)) or "none"
            raise ValueError(f"algorithm {named} cannot run this {collective}: {why}; those that can: {able}")
        return algorithm
    choices = _able(catalog, task)
    if not choices:
        raise ValueError(f"no algorithm of ccl.yaml runs {collective} in this group")
    return choices[0]


def _able(catalog: Catalog, task: Task) -> list[Algorithm]:
    return [algorithm for algorithm in catalog.of(task.collective.name) if not algorithm.why_not(task)]
