"""All SIPs and the broker in this one process: for debuggers, and for tests that shuffle the mail."""

import sys
import time

from broker.hub import Hub
from broker.ids import BROKER, LAUNCHER
from broker.mail.base import InprocMail
from broker.wire import Stop, Sync, ToLauncher, decode_for_broker, decode_for_launcher, encode
from launcher.engines.base import ENGINES, Request
from launcher.report.explain import explanation
from launcher.report.outcome import Outcome, RunError
from launcher.supervise.signals import ForcedStop, StopSignals
from sipsim.node.process_spec import SipProcessSpec
from sipsim.node.sip_node import SipNode


class InProcess:
    """A hub and its members over a post office. ``run`` delivers letters until none is left."""

    def __init__(self, request: Request, signals: StopSignals, office: InprocMail, keep_oplog: bool = False) -> None:
        plan = request.plan
        self._request = request
        self._signals = signals
        self._office = office
        self._stopping = False
        self.outcome = Outcome(plan.system.n_sips)
        self._hub = Hub(plan.system.n_sips, plan.channels, plan.reactions_ps)
        self.members = [
            SipNode(
                _seat(rank), plan, request.job, office.mail_of(rank), "inproc", self._must_end, keep_oplog=keep_oplog
            )
            for rank in range(plan.system.n_sips)
        ]

    def run(self) -> Outcome:
        """The whole run; when a user's code has to be interrupted, what is known by then."""
        for member in self.members:
            member.join()
        began_s = time.monotonic()
        self.outcome.startup_s = began_s - self._request.started_s
        try:
            self._deliver_all()
        except ForcedStop:
            reason = self._signals.reason() or "interrupted"
            if self._request.explain:
                self._explain(self._hub.sync(time.monotonic_ns()))
            self.outcome.fail(RunError(reason, None, self._signals.words(reason)))
        self.outcome.simulate_s = time.monotonic() - began_s
        return self.outcome

    def _deliver_all(self) -> None:
        while (delivery := self._office.next()) is not None:
            to, letter = delivery
            if to == BROKER:
                self._to_broker(letter.sender, letter.frame)
            elif to == LAUNCHER:
                self._note(decode_for_launcher(letter.frame))
            else:
                self.members[to].handle(letter.frame)
            self._look_up()

    def _to_broker(self, sender: int, frame: bytes) -> None:
        for to, answer in self._hub.handle(sender, decode_for_broker(frame), time.monotonic_ns()):
            self._office.post(BROKER, to, encode(answer))

    def _note(self, message: ToLauncher) -> None:
        if isinstance(message, Sync) and message.last and self._request.explain:
            self._explain(message)
        self.outcome.note(message)

    def _explain(self, sync: Sync) -> None:
        print(explanation(sync), file=sys.stderr)

    def _answer_question(self) -> None:
        if self._signals.asked():
            self._explain(self._hub.sync(time.monotonic_ns()))

    def _look_up(self) -> None:
        self._answer_question()
        if self._request.progress.due():
            status = self._hub.status()
            self._request.progress.show(status.now_ps, status.grants)
        reason = self._signals.reason()
        if reason is not None and not self._stopping:
            self._stopping = True
            self.outcome.fail(RunError(reason, None, self._signals.words(reason)))
            self._office.post(LAUNCHER, BROKER, encode(Stop(reason)))

    def _must_end(self) -> bool:
        self._answer_question()
        return self._signals.reason() is not None


def _seat(rank: int) -> SipProcessSpec:
    return SipProcessSpec(rank=rank, broker="inproc", endpoint="inproc")


@ENGINES.register("inproc")
def run_in_process(request: Request, signals: StopSignals) -> Outcome:
    """All SIPs in this process, for debugging; same results as ``local``."""
    signals.force_interrupt()
    return InProcess(request, signals, InprocMail()).run()
