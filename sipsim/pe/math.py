"""PE_MATH: the time of an element-wise operation; NumPy computes its values."""

from sipsim.config.model import PeMath as PeMathCost
from sipsim.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps


class PeMath:
    """A fixed start-up and a bandwidth over the bytes of the result."""

    def __init__(self, cost: PeMathCost) -> None:
        self._overhead_ps = ns_to_ps(cost.overhead_ns)
        self._bandwidth_bps = gbytes_per_s_to_bps(cost.bandwidth_GBps)

    def latency_ps(self, nbytes: int) -> int:
        """Time of one operation whose result has ``nbytes``."""
        return self._overhead_ps + drain_ps(nbytes, self._bandwidth_bps)
