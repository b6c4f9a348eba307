"""What the processes of a run print: passed on line by line with the rank, and the last lines for a failure."""

import sys
from collections.abc import Iterator
from pathlib import Path

from launcher.engines.base import Request
from launcher.names import sip_name

LAST_LINES = 20


class Output:
    """One run's logs, which lie in its folder; ``pass_on`` reads what is new in them."""

    def __init__(self, request: Request, hosts: list[str]) -> None:
        self._folder = Path(request.run_dir)
        ranks = range(request.plan.system.n_sips)
        self._ranks = [rank for rank in ranks if request.tee is None or rank in request.tee]
        self._read: dict[str, int] = {}

    def pass_on(self, to_the_end: bool = False) -> None:
        """What scripts and kernels print, line by line with their rank, on standard error; at the end, what is left."""
        for rank in self._ranks:
            for line in self._new_lines(sip_name(rank), to_the_end):
                print(f"[rank {rank}] {line}", file=sys.stderr)

    def tail(self, name: str) -> str:
        """The last lines of a log, for people; empty when there are none."""
        lines = self._log_of(name).decode(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(["last lines of its log:", *(f"  | {line}" for line in lines)]) if lines else ""

    def _new_lines(self, name: str, to_the_end: bool) -> Iterator[str]:
        start = self._read.get(name, 0)
        new = self._log_of(name, start)
        whole = new if to_the_end else new[: new.rfind(b"\n") + 1]
        self._read[name] = start + len(whole)
        yield from whole.decode(errors="replace").splitlines()

    def _log_of(self, name: str, start: int = 0) -> bytes:
        try:
            with (self._folder / f"{name}.log").open("rb") as log:
                log.seek(start)
                return log.read()
        except OSError:
            return b""
