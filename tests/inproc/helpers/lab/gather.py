"""A collective of a user: the root gets the rows of all ranks, side by side; the others' results may be anything."""

from sipsim.collectives.schedule import RANKS
from sipsim.collectives.semantics import Collective, define, its_own, only_root

GATHER = Collective(
    __name__, "the root ends with all ranks' rows", RANKS, its_own, only_root, has_root=True, per_cube=True
)
define(GATHER)
