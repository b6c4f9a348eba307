"""The environment variables by which a rank, or an agent, learns who it is. Pure: takes and gives mappings."""

from collections.abc import Mapping
from typing import NamedTuple

from sipsim.errors import ConfigError

OWN_NODE_RANK = "AHBM_NODE_RANK"
NODE_RANKS = (OWN_NODE_RANK, "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
"""Where an agent looks, one agent a host: ours, Slurm, Open MPI, MPICH and other PMI, an Indexed Job of Kubernetes."""

MOST_DIGITS = 9


class RankEnvironment(NamedTuple):
    """Where a rank stands in a run. ``local_rank`` of ``local_size`` on its host, which is the ``node_rank``-th."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    node_rank: int
    run_id: str
    incarnation: int


def rank_environment(standing: RankEnvironment) -> dict[str, str]:
    """What a rank finds in its environment: our names, and those that scripts written for torchrun read."""
    rank, size = str(standing.rank), str(standing.world_size)
    local_rank, incarnation = str(standing.local_rank), str(standing.incarnation)
    return {
        "AHBM_RANK": rank,
        "AHBM_WORLD_SIZE": size,
        "AHBM_LOCAL_RANK": local_rank,
        OWN_NODE_RANK: str(standing.node_rank),
        "AHBM_RUN_ID": standing.run_id,
        "AHBM_INCARNATION": incarnation,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": str(standing.local_size),
        "TORCHELASTIC_RESTART_COUNT": incarnation,
    }


def node_rank(environ: Mapping[str, str], n_hosts: int, given: int | None = None, names: tuple[str, ...] = ()) -> int:
    """Which host of ``n_hosts`` this is. ``given``: what the launcher said by itself; ``names``: who may say it.

    Raises:
        ConfigError: when nobody says it, or two say different things, or it is no number of a host.
    """
    names = (OWN_NODE_RANK, *names) if names or given is not None else NODE_RANKS
    said = {name: environ[name] for name in names if environ.get(name, "")}
    if given is not None:
        said["the launcher's word"] = str(given)
    if not said:
        known = ", ".join(names)
        raise ConfigError(f"no node rank: none of {known} is set; set {OWN_NODE_RANK}=0 on the first host")
    for name, text in said.items():
        if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) >= n_hosts:
            raise ConfigError(f"{name}={text}: must be a node rank from 0 to {n_hosts - 1}")
    if len({int(text) for text in said.values()}) > 1:
        what = ", ".join(f"{name}={text}" for name, text in said.items())
        raise ConfigError(f"{what}: these disagree on the node rank; unset the wrong ones")
    return int(next(iter(said.values())))
