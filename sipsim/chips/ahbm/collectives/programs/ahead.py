"""Sends before receives that they do not need, so that a link is busy while a message is under way on it. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def with_sends_ahead(
    steps: Iterable[T],
    ahead: int,
    sends: Callable[[T], object],
    received: Callable[[T], tuple[str, int]],
    needs: Callable[[T, T], bool],
) -> list[T]:
    """Steps of a worker, each send before up to ``ahead`` of each direction's messages received before it, as long as
    it needs none of them.

    ``sends``: whether a step sends; ``received``: from which direction one that does not send receives, and how many
    messages; ``needs``: whether the first of two steps, a send, needs the second.

    Sends keep their order, and so do receives. With rings of more than ``ahead`` slots no rank waits for ever: of the
    waiting ranks take one whose step had the least position (:mod:`sipsim.collectives.schedule.steps`). If it is a
    send, a ring is full of messages of lesser positions. Its receiver waits at a position that is not less, so it has
    received all of them if it waits to receive, and all but ``ahead`` if it waits to send. If it is a receive, the
    sender waits at a position that is not less, and its send has been moved to the front if at all.
    """
    found: list[T] = []
    for step in steps:
        place, passed = len(found), Counter[str]()
        if ahead and sends(step):
            while place and not sends(found[place - 1]) and not needs(step, found[place - 1]):
                direction, messages = received(found[place - 1])
                passed[direction] += messages
                if passed[direction] > ahead:
                    break
                place -= 1
        found.insert(place, step)
    return found
