"""A hub of three ranks in a ring, and the messages that bring it to running."""

from broker import hub as hub_module
from broker.hub import Phase
from broker.ids import LAUNCHER, PROTOCOL, Channel
from broker.wire import Join, Message, Report, Sync

Out = list[tuple[int, Message]]
SIZE = 3
RING = [Channel(rank, (rank + 1) % SIZE, 10, f"c{rank}") for rank in range(SIZE)]


class Hub(hub_module.Hub):
    """The hub, with the last ``Sync`` of a run collected apart: it precedes every ending."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.last_syncs: list[Sync] = []

    def handle(self, *args: object) -> Out:
        out = super().handle(*args)  # type: ignore[arg-type]
        last = [(to, message) for to, message in out if isinstance(message, Sync) and message.last]
        assert all(to == LAUNCHER for to, _ in last)
        self.last_syncs += [message for _, message in last]
        return [entry for entry in out if entry not in last]


def join(rank: int, digest: str = "plan") -> Join:
    return Join(PROTOCOL, rank, SIZE, "1", digest, 100 + rank, "here", f"ipc://{rank}")


def report(next_ps: int | None = None, waiting: int = 0, **news: tuple) -> Report:
    return Report(0, next_ps, None, news.get("sent", ()), news.get("taken", ()), waiting)


def joining(*ranks: int) -> Hub:
    hub = Hub(SIZE, RING)
    for rank in ranks:
        hub.handle(rank, join(rank))
    return hub


def running() -> Hub:
    hub = joining(*range(SIZE))
    assert hub.phase is Phase.RUNNING
    return hub
