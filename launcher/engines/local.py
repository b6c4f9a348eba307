"""One process for each SIP and one for the broker, on this machine, over sockets in a private folder."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import zmq

from broker.mails import MAIL_KINDS
from broker.process import run_broker
from broker.terms import BROKER
from broker.wire import AskStatus, AskSync, Lost, Message, Started, Status, Stop, Sync, decode_for_launcher, encode
from launcher.attention import Attention
from launcher.engines.base import ENGINES, Request
from launcher.outcome import Outcome, RunError
from launcher.server import Ended, Program, Server
from launcher.watch import Watch
from sipsim.process import run_sip
from sipsim.seat import Seat

GRACE_S = 1.0
LOOK_S = 0.2
SOON_S = 0.001
LAST_LINES = 20
BROKER_NAME = "broker"


@ENGINES.register("local")
def run_local(request: Request, attention: Attention) -> Outcome:
    """One process a SIP, one for the broker, on this machine."""
    return _LocalRun(request, attention).run()


class _LocalRun:
    def __init__(self, request: Request, attention: Attention) -> None:
        self._request = request
        self._attention = attention
        self._outcome = Outcome(request.plan.system.n_sips)
        self._living: set[str] = set()
        self._silent: dict[str, tuple[float, Ended]] = {}
        self._give_up_s: float | None = None
        self._began_s: float | None = None
        self._mail = MAIL_KINDS[request.mail]
        self._broker_endpoint = self._mail.local(f"{request.run_dir}/broker")
        self._log_read: dict[str, int] = {}
        self._watch = Watch(request.explain)
        self._server = Server(self._programs(), request.run_dir)
        self._end = self._mail.launcher(self._broker_endpoint)

    def run(self) -> Outcome:
        try:
            self._loop()
        finally:
            self._server.kill_all()
            self._await_ends()
            self._server.close()
            self._end.close_now()
        self._pass_on_output(to_the_end=True)
        self._watch.close()
        if not self._outcome.finished:
            last_words = self._tail(BROKER_NAME)
            self._outcome.fail(RunError("internal", None, "the broker ended before the run did", last_words))
        return self._outcome

    def _programs(self) -> dict[str, Program]:
        request, plan = self._request, self._request.plan
        meeting, broker = os.getpid(), self._broker_endpoint
        names = {
            BROKER_NAME: partial(
                run_broker, broker, plan.system.n_sips, plan.channels, plan.reactions_ps, meeting
            )
        }
        for rank in range(plan.system.n_sips):
            endpoint = self._mail.local(f"{request.run_dir}/sip-{rank}")
            seat = Seat(rank=rank, broker=broker, endpoint=endpoint, meeting=meeting)
            names[_sip(rank)] = partial(run_sip, seat, plan, request.job)
        self._living = set(names)
        return dict(names)

    def _loop(self) -> None:
        self._send(AskStatus())
        poller = zmq.Poller()
        for source in (self._end.pollable, self._server.fileno(), self._attention.fileno):
            poller.register(source, zmq.POLLIN)
        while not self._is_over():
            patience_s = SOON_S if self._end.unsent else LOOK_S
            poller.poll(int(1000 * self._attention.seconds_left(patience_s)) + 1)
            for frame in self._end.receive_waiting():
                self._note(decode_for_launcher(frame))
            for event in self._server.news():
                if isinstance(event, Ended):
                    self._note_end(event)
                else:
                    self._watch.started(event.name, event.pid)
            self._note_silence()
            if self._server.gone and self._server.fileno() in poller:
                poller.unregister(self._server.fileno())
                self._note_server_gone()
            self._heed_attention()
            self._pass_on_output()
            if self._request.progress.due():
                self._send(AskStatus())
            if self._attention.asked():
                self._watch.asked()
            if not self._outcome.finished and self._watch.look():
                self._send(AskSync())

    def _is_over(self) -> bool:
        """The broker has finished, or somebody who should answer has had time enough."""
        if self._outcome.finished:
            return True
        return self._give_up_s is not None and time.monotonic() >= self._give_up_s

    def _note(self, message: Message) -> None:
        now = time.monotonic()
        if isinstance(message, Started):
            self._began_s = now
            self._outcome.startup_s = now - self._request.started_s
        if isinstance(message, Sync):
            self._watch.note(message)
        if isinstance(message, Status):
            self._request.progress.show(message.now_ps, message.grants)
        self._outcome.note(message)  # type: ignore[arg-type]
        if self._outcome.finished and self._began_s is not None:
            self._outcome.simulate_s = now - self._began_s
        if self._outcome.error is not None:
            self._give_up_soon()

    def _note_end(self, event: Ended) -> None:
        self._living.discard(event.name)
        self._watch.ended(event.name)
        if event.status == 0:
            # Its last words may still be on their way through the broker.
            self._silent[event.name] = (time.monotonic() + GRACE_S, event)
        else:
            self._note_death(event)

    def _note_silence(self) -> None:
        """Who ended without a word, however cleanly, has left the run."""
        for name, (until_s, event) in list(self._silent.items()):
            answered = name != BROKER_NAME and _rank(name) in self._outcome.ranks
            if answered or time.monotonic() >= until_s:
                del self._silent[name]
                if not answered:
                    self._note_death(event)

    def _note_death(self, event: Ended) -> None:
        who = "the broker" if event.name == BROKER_NAME else f"rank {_rank(event.name)}"
        rank = None if event.name == BROKER_NAME else _rank(event.name)
        message = f"{who} (pid {event.pid}) {_how(event.status)}"
        self._outcome.fail(RunError("process_died", rank, message, self._tail(event.name)))
        if rank is not None:
            self._send(Lost(rank, _how(event.status)))
        self._give_up_soon()

    def _note_server_gone(self) -> None:
        """It ends when all its processes have; the broker's last words may still be on their way then."""
        if not self._living:
            return
        self._outcome.fail(RunError("process_died", None, "the server that starts the processes is gone"))
        self._give_up_s = time.monotonic()

    def _tail(self, name: str) -> str:
        lines = self._log_of(name).decode(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(["last lines of its log:", *(f"  | {line}" for line in lines)]) if lines else ""

    def _heed_attention(self) -> None:
        reason = self._attention.reason()
        if reason is not None and self._outcome.error is None:
            self._outcome.fail(RunError(reason, None, self._attention.words(reason)))
            self._send(Stop(reason))
            self._give_up_soon()

    def _give_up_soon(self) -> None:
        if self._give_up_s is None:
            self._give_up_s = time.monotonic() + GRACE_S

    def _await_ends(self) -> None:
        while not self._server.gone:
            self._server.news()
            with contextlib.suppress(OSError):
                zmq.select([self._server.fileno()], [], [], 1.0)

    def _send(self, message: Message) -> None:
        self._end.send(BROKER, encode(message))

    def _log_of(self, name: str, start: int = 0) -> bytes:
        try:
            with (Path(self._request.run_dir) / f"{name}.log").open("rb") as log:
                log.seek(start)
                return log.read()
        except OSError:
            return b""

    def _pass_on_output(self, to_the_end: bool = False) -> None:
        """What scripts and kernels print, line by line with their rank, on standard error; at the end, what is left."""
        for name, line in self._new_lines(to_the_end):
            print(f"[rank {_rank(name)}] {line}", file=sys.stderr)

    def _new_lines(self, to_the_end: bool) -> Iterator[tuple[str, str]]:
        for rank in range(self._request.plan.system.n_sips):
            name = _sip(rank)
            start = self._log_read.get(name, 0)
            new = self._log_of(name, start)
            whole = new if to_the_end else new[: new.rfind(b"\n") + 1]
            self._log_read[name] = start + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield name, line


def _sip(rank: int) -> str:
    return f"sip-{rank}"


def _rank(name: str) -> int:
    return int(name.removeprefix("sip-"))


def _how(status: int) -> str:
    if status < 0:
        known = {s.value: s.name for s in signal.Signals}
        return f"was killed by {known.get(-status, f'signal {-status}')}"
    return f"ended with exit code {status}" + ("" if status else " before the run was over")
