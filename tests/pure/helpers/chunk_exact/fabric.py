"""The chunk-exact simulation of shared edges behind the interface of the fabric: the reference of its tests."""

from chunk_exact.switching import Switching
from sipsim.engine import Engine
from sipsim.noc.arbitration import COMPUTE, Arbitration
from sipsim.noc.graph import Route
from sipsim.noc.transfer import Done


class ChunkExact:
    """Every chunk of every transfer by itself, where transfers meet."""

    def __init__(self, engine: Engine, arbitration: Arbitration | None = None) -> None:
        assert arbitration is not None
        self._switching = Switching(engine, arbitration)

    def start(
        self,
        route: Route,
        nbytes: int,
        done: Done,
        vc: int = COMPUTE,
        lead_ps: int = 0,
        delay_ps: int = 0,
        span_ps: int = 0,
    ) -> None:
        """As ``Fabric.start``."""
        self._switching.start(route, nbytes, done, vc, lead_ps, delay_ps, span_ps)
