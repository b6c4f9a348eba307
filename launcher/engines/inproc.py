"""All SIPs and the broker in this one process: for debuggers, and for tests that shuffle the mail."""

import os
import sys
import time
from types import FrameType

from broker.hub import Hub
from broker.ids import BROKER, LAUNCHER
from broker.mail.inproc import InprocMail
from broker.wire import Stop, Sync, ToLauncher, decode_for_broker, decode_for_launcher, encode
from launcher.engines.base import ENGINES
from launcher.report.error_facts import FoundFacts
from launcher.report.explain import explanation
from launcher.report.outcome import Outcome, RunError
from launcher.supervise.positions import hang_text
from launcher.supervise.quiet_timer import QuietTimer
from launcher.supervise.request import Request
from launcher.supervise.signals import ForcedStop, StopSignals
from sipsim.ccl.hangs.positions import Positions, explain_positions, running_facts
from sipsim.host.script import leave_namespace
from sipsim.node.process_spec import SipProcessSpec
from sipsim.node.sip_node import SipNode
from sipsim.record.artifacts import rank_folder

ALARM_S = 0.5


class InProcess:
    """A hub and its members over in-process mail. ``run`` delivers messages until none is left."""

    def __init__(self, request: Request, signals: StopSignals, mail: InprocMail, keep_oplog: bool = False) -> None:
        plan = request.plan
        self._request = request
        self._signals = signals
        self._mail = mail
        self._stopping = False
        self._folder = os.getcwd()
        self._delivers = False
        self._deliveries = 0
        self._current = 0
        self._quiet = QuietTimer(2 * ALARM_S, time.monotonic())
        self._forced: RunError | None = None
        self.outcome = Outcome(plan.system.n_sips, self._folder)
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
            self._delivers = True
            self._deliver_all()
            self._delivers = False
        except ForcedStop:
            if self._request.settings.explain_sync:
                self._explain(self._hub.sync(time.monotonic_ns()))
            self.outcome.fail(self._forced or self._stop_error("interrupted", None))
        finally:
            leave_namespace()
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
                self._current = to
                self.members[to].handle(envelope.frame)
            self._deliveries += 1
            self._check_signals()

    def _to_broker(self, sender: int, frame: bytes) -> None:
        for to, answer in self._hub.handle(sender, decode_for_broker(frame), time.monotonic_ns()):
            self._mail.send(BROKER, to, encode(answer))

    def _note(self, message: ToLauncher) -> None:
        leave_namespace()
        if isinstance(message, Sync) and message.last and self._request.settings.explain_sync:
            self._explain(message)
        self.outcome.note(message)
        self._request.progress.note(message, self.outcome)

    def _explain(self, sync: Sync) -> None:
        leave_namespace()
        print(explanation(sync), file=sys.stderr)

    def _answer_status_request(self, frame: FrameType | None = None) -> None:
        if self._signals.status_requested():
            self._explain(self._hub.sync(time.monotonic_ns()))
            print(self._positions(frame).text, file=sys.stderr, flush=True)

    def _positions(self, frame: FrameType | None) -> Positions:
        return explain_positions([member.tasks_dump(frame) for member in self.members], folder=self._folder)

    def _stop_error(self, reason: str, frame: FrameType | None) -> RunError:
        told = self._positions(frame)
        return RunError(reason, None, self._signals.describe(reason), told.text, {"positions": told.facts})

    def on_alarm(self, frame: FrameType | None) -> None:
        """Called again and again while the run goes on, also within code of the user that runs at ``frame``.

        Raises:
            ForcedStop: when the run must end, and that code does not poll, or has made no progress for too long.
        """
        if not self._delivers:
            return
        if self._signals.is_overdue:
            self._force(self._stop_error(self._signals.reason() or "interrupted", frame))
        try:
            self._answer_status_request(frame)
        except RuntimeError:
            # The alarm came within a print: the next one will do.
            self._signals.request_status()
        member, settings = self.members[self._current], self._request.settings
        progress = None if _is_debugged(frame) else (self._deliveries, member.steps)
        quiet_s = self._quiet.check(progress, time.monotonic())
        if progress is None or not settings.deadlines or quiet_s < settings.progress_timeout_s:
            return
        dump = member.tasks_dump(frame)
        message = hang_text(f"rank {member.rank}", quiet_s, dump.now_ps, dump, "", self._folder)
        facts = FoundFacts(time_ps=dump.now_ps)
        facts.update(running_facts(dump))  # type: ignore[typeddict-item]
        self._force(RunError("hung", member.rank, message, facts=facts))

    def _force(self, error: RunError) -> None:
        self._forced = error
        raise ForcedStop

    def _check_signals(self) -> None:
        self._answer_status_request()
        if self._request.progress.due():
            leave_namespace()
            self._request.progress.note(self._hub.status(), self.outcome)
        reason = self._signals.reason()
        if reason is not None and not self._stopping:
            self._stopping = True
            self.outcome.fail(self._stop_error(reason, None))
            self._mail.send(LAUNCHER, BROKER, encode(Stop(reason)))

    def _must_end(self) -> bool:
        self._answer_status_request()
        return self._signals.reason() is not None


def _is_debugged(frame: FrameType | None) -> bool:
    """Whether a debugger traces this thread, or is at its prompt: then time passes without progress."""
    if sys.gettrace() is not None:
        return True
    while frame is not None:
        if frame.f_globals.get("__name__") == "bdb":
            return True
        frame = frame.f_back
    return False


def _spec(rank: int, scratch_dir: str) -> SipProcessSpec:
    artifacts = rank_folder(scratch_dir, rank)
    return SipProcessSpec(rank=rank, broker="inproc", endpoint="inproc", artifact_dir=artifacts)


@ENGINES.register("inproc")
def run_in_process(request: Request, signals: StopSignals) -> Outcome:
    """All SIPs in this process, for debugging; same results as ``local``."""
    run = InProcess(request, signals, InprocMail())
    signals.force_interrupt(min(ALARM_S, request.settings.progress_timeout_s / 4), run.on_alarm)
    try:
        return run.run()
    finally:
        for member in run.members:
            member.stop_tasks()
