"""A collective of a user: the rows of the root are cut into a piece for each rank. Not a test."""

from sipsim.collectives.schedule import RANKS
from sipsim.collectives.semantics import Collective, define, its_own, only_root

SCATTER = Collective(
    __name__,
    "every rank ends with its piece of the root's rows",
    RANKS,
    only_root,
    its_own,
    has_root=True,
    per_cube=True,
)
define(SCATTER)
