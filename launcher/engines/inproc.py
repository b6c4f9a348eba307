"""All SIPs and the broker in this one process: for debuggers, and for tests that shuffle the mail."""

import sys
import time

from broker.hub import Hub
from broker.ids import BROKER, LAUNCHER
from broker.mail.inproc import InprocMail
from broker.wire import Stop, Sync, ToLauncher, decode_for_broker, decode_for_launcher, encode
from launcher.engines.base import ENGINES
from launcher.report.explain import explanation
from launcher.report.outcome import Outcome, RunError
from launcher.supervise.request import Request
from launcher.supervise.signals import ForcedStop, StopSignals
from sipsim.node.process_spec import SipProcessSpec
from sipsim.node.sip_node import SipNode
from sipsim.record.artifacts import rank_folder


class InProcess:
    """A hub and its members over in-process mail. ``run`` delivers messages until none is left."""

    def __init__(self, request: Request, signals: StopSignals, mail: InprocMail, keep_oplog: bool = False) -> None:
        plan = request.plan
        self._request = request
        self._signals = signals
        self._mail = mail
        self._stopping = False
        self.outcome = Outcome(plan.system.n_sips)
        self._hub = Hub(plan.system.n_sips, plan.channels, plan.reactions_ps, request.settings.max_sim_ps)
        self.members = [
            SipNode(spec, plan, request.job, mail.end_of(spec.rank), "inproc", self._must_end, keep_oplog=keep_oplog)
            for spec in (_spec(rank, request.scratch_dir) for rank in range(plan.system.n_sips))
        ]

    def run(self) -> Outcome:
        """Run to the end; if user code has to be interrupted, return what is known by then."""
        for member in self.members:
            member.join()
        began_s = time.monotonic()
        self.outcome.startup_s = began_s - self._request.started_s
        try:
            self._deliver_all()
        except ForcedStop:
            reason = self._signals.reason() or "interrupted"
            if self._request.settings.explain_sync:
                self._explain(self._hub.sync(time.monotonic_ns()))
            self.outcome.fail(RunError(reason, None, self._signals.describe(reason)))
        self.outcome.simulate_s = time.monotonic() - began_s
        return self.outcome

    def _deliver_all(self) -> None:
        while (delivery := self._mail.next()) is not None:
            to, envelope = delivery
            if to == BROKER:
                self._to_broker(envelope.sender, envelope.frame)
            elif to == LAUNCHER:
                self._note(decode_for_launcher(envelope.frame))
            else:
                self.members[to].handle(envelope.frame)
            self._check_signals()

    def _to_broker(self, sender: int, frame: bytes) -> None:
        for to, answer in self._hub.handle(sender, decode_for_broker(frame), time.monotonic_ns()):
            self._mail.send(BROKER, to, encode(answer))

    def _note(self, message: ToLauncher) -> None:
        if isinstance(message, Sync) and message.last and self._request.settings.explain_sync:
            self._explain(message)
        self.outcome.note(message)
        self._request.progress.note(message, self.outcome)

    def _explain(self, sync: Sync) -> None:
        print(explanation(sync), file=sys.stderr)

    def _answer_status_request(self) -> None:
        if self._signals.status_requested():
            self._explain(self._hub.sync(time.monotonic_ns()))

    def _check_signals(self) -> None:
        self._answer_status_request()
        if self._request.progress.due():
            self._request.progress.note(self._hub.status(), self.outcome)
        reason = self._signals.reason()
        if reason is not None and not self._stopping:
            self._stopping = True
            self.outcome.fail(RunError(reason, None, self._signals.describe(reason)))
            self._mail.send(LAUNCHER, BROKER, encode(Stop(reason)))

    def _must_end(self) -> bool:
        self._answer_status_request()
        return self._signals.reason() is not None


def _spec(rank: int, scratch_dir: str) -> SipProcessSpec:
    artifacts = rank_folder(scratch_dir, rank)
    return SipProcessSpec(rank=rank, broker="inproc", endpoint="inproc", artifact_dir=artifacts)


@ENGINES.register("inproc")
def run_in_process(request: Request, signals: StopSignals) -> Outcome:
    """All SIPs in this process, for debugging; same results as ``local``."""
    signals.force_interrupt()
    run = InProcess(request, signals, InprocMail())
    try:
        return run.run()
    finally:
        for member in run.members:
            member.stop_tasks()
