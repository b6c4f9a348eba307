"""A memory kind of the tests that breaks the order: what its process waits for depends on more than simulated time."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from simpy.events import Event

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, MemoryPort
from sipsim.config.schema import Section

NAMES = {"ada", "barbara", "edsger", "grace", "leslie", "tony"}
_SEEN: list[int] = []
"""State of the module, which SIPs share in one process only."""


def strings() -> int:
    """The order of a set of strings, as a number."""
    return sum((place + 1) * 1000**place * len(name) for place, name in enumerate(NAMES)) % 50_021


def hashes() -> int:
    return hash("a tie") % 50_021


def identities() -> int:
    """The addresses of some objects, as a tie broken by ``id()`` would have them."""
    return sum(id(each) >> 12 for each in (NAMES, _SEEN, random, strings)) % 50_021


def shared() -> int:
    """How many accesses there were so far on all SIPs of the process."""
    _SEEN.append(0)
    return len(_SEEN) * 101 % 50_021


def computing() -> int:
    """Wall time passes, and decides nothing."""
    sum(range(10_000))
    return 10_000


# Where a restart sees a fault, the times are near those of ``computing``, so that a kill hits the same point.
DELAYS: dict[str, Callable[[], Any]] = {
    "clock": lambda: 10_000 + time.time_ns() % 1_009,
    "random": lambda: 10_000 + random.randrange(1_009),
    "numpy random": lambda: 10_000 + int(np.random.default_rng().integers(1_009)),
    "process id": lambda: 10_000 + os.getpid() % 1_009,
    "strings": strings,
    "hashes": hashes,
    "identities": identities,
    "shared": shared,
    "computing": computing,
    "float": lambda: 0.5,
    "whole float": lambda: 10_000.0,
    "numpy float": lambda: np.float64(10_000),
    "numpy int": lambda: np.int64(10_000),
    "negative": lambda: -1,
}


def _trigger(event: Event) -> None:
    """Run in a thread, which swallows its error."""
    with contextlib.suppress(Exception):
        event.succeed()


class Params(Section, frozen=True):
    fault: str


@MEMORY_KINDS.register(__name__)
class Disorder(MemoryPort):
    """Each access waits for a time that the fault decides."""

    Params = Params

    def serve(self, block: Block, is_read: bool) -> Iterator[Event]:  # type: ignore[override]
        env, fault = self.engine.env, self.params.fault
        match fault:
            case "run":
                env.run(until=env.now + 10_000)
            case "step":
                env.step()
            case "thread":
                event = env.event()
                threading.Thread(target=_trigger, args=(event,)).start()
                yield event
            case "a number":
                yield 10_000  # type: ignore[misc]
            case "before arrivals":
                event = env.event()
                event._ok, event._value = True, None
                env.schedule(event, priority=-2, delay=10_000)  # type: ignore[arg-type]
                yield event
            case _:
                yield env.timeout(DELAYS[fault]())
