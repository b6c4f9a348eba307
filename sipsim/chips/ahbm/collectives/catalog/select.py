"""Which algorithm runs a collective: the one that a call or the config names, else the one that costs least."""

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog.catalog import Catalog
from sipsim.chips.ahbm.collectives.catalog.choice import least
from sipsim.chips.ahbm.collectives.launch.launch import Prepared
from sipsim.collectives.semantics.group import Task

AUTO, ALL = "auto", "all"
"""What a user may say in place of an algorithm's name: the one that costs least, or all that suit."""


def select(catalog: Catalog, made: Prepared, configured: Algorithm, named: str = "") -> Algorithm:
    """The algorithm of a task. ``named``: by the call; empty: ``configured`` if it runs
    such collectives, else as with ``auto`` the one that costs least.

    Raises:
        ValueError: for one that cannot run it; lists those that can.
        ConfigError: for one named that cannot be loaded, or whose schedule cannot be carried out.
    """
    task = made.task
    collective = task.collective.name
    if not named and collective in configured.collectives:
        named = configured.name
    if named not in ("", AUTO):
        algorithm = catalog.get(named, collective)
        why = catalog.why_not(algorithm, task) if algorithm.is_schedule else "it is wired before the run, for all SIPs"
        if why:
            able = ", ".join(each.name for each in catalog.able(task)) or "none"
            raise ValueError(f"algorithm {named} cannot run this {collective}: {why}; those that can: {able}")
        return algorithm
    chosen = least(catalog, made)
    if chosen is None:
        raise ValueError(f"no algorithm of ccl.yaml runs {collective} in this group")
    return chosen


def able(catalog: Catalog, tasks: list[Task]) -> tuple[list[str], list[tuple[str, str]]]:
    """The algorithms that run all of these tasks of one collective; and those that do not, each with the reason."""
    judged = [(algorithm.name, why) for algorithm, why in catalog.judged(*tasks)]
    return [name for name, why in judged if not why], [each for each in judged if each[1]]
