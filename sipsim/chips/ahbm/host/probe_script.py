"""Host script that sends messages back to back between the two PEs of a ``sipsim.chips.ahbm.costs.probe.ProbePlan``.

Arguments: bytes of each message, separated by commas; the sender's rank; the direction from sender to receiver; the
reverse direction.
"""

import sys
from typing import Any

import numpy as np

from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES


def worker(rank: int, world_size: int, torch: Any) -> None:
    """Launch the messages; ``ahbm-probe`` runs this on every SIP."""
    torch.launch(_messages, [int(nbytes) // 2 for nbytes in sys.argv[1].split(",")], *sys.argv[2:5])


def _messages(n_elems: list[int], sender: str, direction: str, back: str, tl: TL) -> None:
    if tl.rank() == int(sender):
        for n_elem in n_elems:
            tl.send(direction, TensorHandle(tl, np.zeros(n_elem, np.float16), DTYPES["f16"]))
    else:
        for n_elem in n_elems:
            tl.release(tl.recv(back, n_elem, "f16"))
