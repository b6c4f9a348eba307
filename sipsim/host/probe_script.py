"""A host script: one message between the two PEs of a ``sipsim.plan.probe.ProbePlan``.

Arguments: bytes of the message, the sender's rank, its direction to the receiver, and the reverse direction.
"""

import sys
from typing import Any

import numpy as np

from sipsim.dtypes import DTYPES
from sipsim.tl.language import TL
from sipsim.tl.values import TensorHandle


def worker(rank: int, world_size: int, torch: Any) -> None:
    """Run on every SIP by ``ahbm-probe``."""
    torch.launch(_one_message, int(sys.argv[1]) // 2, *sys.argv[2:5])


def _one_message(n_elem: int, sender: str, direction: str, back: str, tl: TL) -> None:
    if tl.rank() == int(sender):
        tl.send(direction, TensorHandle(tl, np.zeros(n_elem, np.float16), DTYPES["f16"]))
    else:
        tl.recv(back, n_elem, "f16")
