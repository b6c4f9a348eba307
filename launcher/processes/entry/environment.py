"""Environment variables that identify a rank or an agent. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from sipsim.core.errors import ConfigError

OWN_NODE_RANK = "AHBM_NODE_RANK"
NODE_RANKS = (OWN_NODE_RANK, "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
"""Variables with a node rank: our own, Slurm's, Open MPI's, PMI's (MPICH), those of a Kubernetes Indexed Job."""

MOST_DIGITS = 9


class RankEnvironment(NamedTuple):
    """The position of a rank in a run: ``local_rank`` of ``local_size`` on the host ``node_rank``."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    node_rank: int
    run_id: str
    incarnation: int


def rank_environment(info: RankEnvironment) -> dict[str, str]:
    """The environment of a rank: our own names, and those of torchrun."""
    rank, size = str(info.rank), str(info.world_size)
    local_rank, incarnation = str(info.local_rank), str(info.incarnation)
    return {
        "AHBM_RANK": rank,
        "AHBM_WORLD_SIZE": size,
        "AHBM_LOCAL_RANK": local_rank,
        OWN_NODE_RANK: str(info.node_rank),
        "AHBM_RUN_ID": info.run_id,
        "AHBM_INCARNATION": incarnation,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": str(info.local_size),
        "TORCHELASTIC_RESTART_COUNT": incarnation,
    }


def node_rank(environ: Mapping[str, str], n_hosts: int, given: int | None = None, names: tuple[str, ...] = ()) -> int:
    """The node rank of this host. ``given``: that of the bootstrap; ``names``: the variables that may hold it.

    Raises:
        ConfigError: when there is none, two sources disagree, or it is not below ``n_hosts``.
    """
    names = (OWN_NODE_RANK, *names) if names or given is not None else NODE_RANKS
    found = {name: environ[name] for name in names if environ.get(name, "")}
    if given is not None:
        found["the bootstrap"] = str(given)
    if not found:
        known = ", ".join(names)
        raise ConfigError(f"no node rank: none of {known} is set; set {OWN_NODE_RANK}=0 on the first host")
    for name, text in found.items():
        if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) >= n_hosts:
            raise ConfigError(f"{name}={text}: must be a node rank from 0 to {n_hosts - 1}")
    if len({int(text) for text in found.values()}) > 1:
        what = ", ".join(f"{name}={text}" for name, text in found.items())
        raise ConfigError(f"{what}: these disagree on the node rank; unset the wrong ones")
    return int(next(iter(found.values())))
