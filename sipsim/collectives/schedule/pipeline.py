"""Pipelining: the steps of a flow several times, each on its share of every block, one behind the other.

A message costs its time on a link and, whatever its size, about as much as a link takes for ``MESSAGE_BYTES``. With
``k`` pieces through ``h`` transfers one after the other, ``h + k - 1`` of a piece's time pass, which is least for
``k = sqrt((h - 1) * bytes / MESSAGE_BYTES)``. Where workers share the bytes, the cost of a message and a worker's share
of the link shrink alike; but framing and commands cost more of a message of less than ``LEAST_BYTES``.
"""

from math import isqrt

from sipsim.collectives.schedule.steps import Flow, Step

MESSAGE_BYTES = 8192
LEAST_BYTES = 4096
MOST_PIECES = 64


def pieces_of(nbytes: int, transfers: int, blocks: int = 1, workers: int = 1) -> int:
    """In how many pieces to send ``nbytes`` through so many transfers one after the other; at least 1.

    ``blocks``: in how many the bytes are cut anyhow. ``workers``: how many share each. A block of a piece is worth its
    messages.
    """
    wanted = isqrt(max(transfers - 1, 0) * nbytes // MESSAGE_BYTES)
    worth = nbytes // (blocks * max(MESSAGE_BYTES, workers * LEAST_BYTES))
    return max(min(wanted, MOST_PIECES, worth), 1)


def staggered(flow: Flow, copies: int, lag: int) -> Flow:
    """The flow ``copies`` times, each ``lag`` rounds behind the one before, on a share of each of its blocks.

    Rounds of the same time follow each other in the order of the copies.
    """
    if copies == 1:
        return flow

    def moved(step: Step, copy: int) -> Step:
        def share(blocks: tuple[int, ...]) -> tuple[int, ...]:
            # Of an original block too: ~(b * copies + copy) is ~b * copies + copies - 1 - copy.
            return tuple(block * copies + (copy if block >= 0 else copies - 1 - copy) for block in blocks)

        number = (step.round + copy * lag) * copies + copy
        return step._replace(round=number, sends=share(step.sends), recvs=share(step.recvs))

    def steps_of(rank: int) -> list[Step]:
        steps = [moved(step, copy) for step in flow.steps_of(rank) for copy in range(copies)]
        return sorted(steps, key=lambda step: step.round)

    return Flow(flow.weight, flow.pieces * copies, steps_of, flow.alike)
