"""Groups of SIPs as ``--group`` names them: ranks, or all rows, columns or halves, which then run at the same time."""

from collections.abc import Callable

from sipsim.core.errors import ConfigError
from sipsim.fabric.sips import JoinedSips
from sipsim.topology.links.base import TOPOLOGIES

Groups = tuple[tuple[int, ...], ...]


def groups_of(text: str, system: JoinedSips) -> Groups:
    """The SIPs of each group, disjoint groups of one size; empty for the group of all.

    Raises:
        ConfigError: for ranks that do not exist, or rows and columns where SIPs stand in no grid.
    """
    if not text:
        return ()
    return SUBSETS[text](system) if text in SUBSETS else (_ranks(text, system.n_sips),)


def _rows(system: JoinedSips) -> Groups:
    width, height = _grid("rows", system)
    return tuple(tuple(range(row * width, (row + 1) * width)) for row in range(height))


def _columns(system: JoinedSips) -> Groups:
    width, height = _grid("columns", system)
    return tuple(tuple(range(column, width * height, width)) for column in range(width))


def _halves(system: JoinedSips) -> Groups:
    half, odd = divmod(system.n_sips, 2)
    if odd:
        raise ConfigError(f"--group halves: {system.n_sips} SIPs have no equal halves; name the ranks of a group")
    return tuple(range(half)), tuple(range(half, system.n_sips))


SUBSETS: dict[str, Callable[[JoinedSips], Groups]] = {"rows": _rows, "columns": _columns, "halves": _halves}


def _grid(what: str, system: JoinedSips) -> tuple[int, int]:
    if TOPOLOGIES.get(system.topology).dimensions == 1:
        hint = "name ranks, such as 0,1, or halves"
        raise ConfigError(f"--group {what}: SIPs of topology {system.topology} stand in no grid; {hint}")
    return system.shape


def _ranks(text: str, n_sips: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"--group {text}: must be ranks, such as 0,1, or {', '.join(SUBSETS)}")
    ranks = tuple(map(int, parts))
    for rank in ranks:
        if rank >= n_sips:
            raise ConfigError(f"--group {text}: there is no SIP {rank}; ranks are 0 to {n_sips - 1}")
    if len(set(ranks)) < len(ranks):
        raise ConfigError(f"--group {text}: a rank is named twice; name each once")
    return ranks
