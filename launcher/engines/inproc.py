"""Engine ``inproc``: all SIPs and the broker in this process, for debuggers and for mail in a shuffled order."""

import contextlib
import os
import sys
import time
from types import FrameType
from typing import NoReturn

from broker.hub import Hub
from broker.ids import BROKER, LAUNCHER
from broker.mail.kinds import inproc_mail
from broker.wire import Progress, Stop, Sync, ToLauncher, decode_for_broker, decode_for_launcher, encode
from launcher.options import ENGINES
from launcher.processes.descendants import left_line, own_children, own_children_ended
from launcher.processes.this_host import own_state
from launcher.report.outcome import FoundFacts, Outcome, RunError
from launcher.report.sync_state import explanation
from launcher.supervise.positions import hang_text
from launcher.supervise.run import Run
from launcher.supervise.signals import ALARM_S, LEAST_ALARM_S, ForcedStop, StopSignals, is_debugged, kept
from launcher.supervise.stall import IdleTimer
from sipsim.core.forks import watched
from sipsim.insight.hangs.positions import Positions, explain_positions, running_facts
from sipsim.node.script import leave_namespace
from sipsim.node.sip_node import SipNode, SipProcessSpec
from sipsim.records.artifacts import rank_folder
from sipsim.records.code_place import code_place, shown


class InProcess:
    """The broker's hub and all SIPs, connected by in-process mail; ``run`` delivers messages until none is left."""

    def __init__(self, run: Run, signals: StopSignals) -> None:
        plan = run.plan
        self._run = run
        self._signals = signals
        self._mail = mail = inproc_mail(run.options.mail)
        self._stopping = False
        self._folder = os.getcwd()
        self._delivers = False
        self._deliveries = 0
        self._current = 0
        self._forked: dict[int, int] = {}
        self._idle = IdleTimer(2 * ALARM_S)
        self._progress: object = None
        self._forced: RunError | None = None
        self.outcome = Outcome(plan.system.n_sips, self._folder)
        self._hub = Hub(plan.system.n_sips, plan.channels, plan.reactions_ps, run.options.max_sim_ps)
        self.members = [
            SipNode(spec, plan, run.job, mail.endpoint_of(spec.rank), self._must_end)
            for spec in (_spec(rank, run.scratch_dir) for rank in range(plan.system.n_sips))
        ]

    def run(self) -> Outcome:
        """Deliver messages until the run ends or user code is interrupted; return the outcome so far."""
        for member in self.members:
            member.join()
        began_s = time.monotonic()
        self.outcome.startup_s = began_s - self._run.started_s
        try:
            self._delivers = True
            with kept(self._refuse_to_end):
                self._deliver_all()
            self._delivers = False
        except ForcedStop:
            if self._run.options.explain_sync:
                self._explain(self._hub.sync(time.monotonic_ns()))
            self.outcome.fail(self._forced or self._stop_error("interrupted", None))
        finally:
            leave_namespace()
        self.outcome.simulate_s = time.monotonic() - began_s
        return self.outcome

    def _deliver_all(self) -> None:
        while (delivery := self._mail.next()) is not None:
            sender, to, frame = delivery
            if to == BROKER:
                self._to_broker(sender, frame)
            elif to == LAUNCHER:
                self._note(decode_for_launcher(frame))
            else:
                self._current = to
                self.members[to].handle(frame)
            self._deliveries += 1
            self._check_signals()

    def _to_broker(self, sender: int, frame: bytes) -> None:
        for to, answer in self._hub.handle(sender, decode_for_broker(frame), time.monotonic_ns()):
            self._mail.send(BROKER, to, encode(answer))

    def _note(self, message: ToLauncher) -> None:
        leave_namespace()
        if isinstance(message, Sync) and message.last and self._run.options.explain_sync:
            self._explain(message)
        self.outcome.note(message)
        self._run.progress.note(message, self.outcome)

    def _explain(self, sync: Sync) -> None:
        leave_namespace()
        print(explanation(sync), file=sys.stderr)

    def _answer_status_request(self, frame: FrameType | None = None) -> None:
        if self._signals.status_requested:
            self._signals.status_requested = False
            self._explain(self._hub.sync(time.monotonic_ns()))
            print(self._positions(frame).text, file=sys.stderr, flush=True)

    def _positions(self, frame: FrameType | None) -> Positions:
        return explain_positions([member.tasks_dump(frame) for member in self.members], folder=self._folder)

    def _stop_error(self, reason: str, frame: FrameType | None) -> RunError:
        found = self._positions(frame)
        return RunError(reason, None, self._signals.describe(reason), found.text, {"positions": found.facts})

    def on_alarm(self, frame: FrameType | None) -> None:
        """Check the run; called periodically by a signal, which may interrupt user code at ``frame``.

        Raises:
            ForcedStop: if the run must end and user code does not poll, or if user code makes no progress for too long.
        """
        if not self._delivers:
            return
        if self._forced is not None:
            # User code has caught the exception.
            raise ForcedStop
        if self._signals.is_overdue:
            self._force(self._stop_error(self._signals.reason() or "interrupted", frame))
        try:
            self._answer_status_request(frame)
        except RuntimeError:
            # The alarm interrupted a print: retry at the next alarm.
            self._signals.status_requested = True
        member, options = self.members[self._current], self._run.options
        progress = None if is_debugged(frame) else (self._deliveries, member.steps)
        self._idle.note(own_state())
        if progress is None or progress != self._progress:
            self._idle.moved()
        self._progress, idle_s = progress, self._idle.idle_s
        if not options.deadlines or idle_s < options.progress_timeout_s:
            return
        dump = member.tasks_dump(frame)
        message = hang_text(f"rank {member.rank}", idle_s, dump.now_ps, dump, "", self._folder)
        facts = FoundFacts(time_ps=dump.now_ps)
        facts.update(running_facts(dump))  # type: ignore[typeddict-item]
        self._force(RunError("hung", member.rank, message, facts=facts))

    def _force(self, error: RunError) -> NoReturn:
        self._forced = self._forced or error
        raise ForcedStop

    def _refuse_to_end(self, call: str) -> NoReturn:
        """Let the run fail, since user code tried to end this process, which runs all ranks."""
        member, frame = self.members[self._current], sys._getframe()
        place = code_place(frame)
        at = f" at {shown(place.file, place.line, self._folder)}" if place.file else ""
        message = f"rank {member.rank} ended its process before the run was over: {call}{at}"
        facts = FoundFacts(time_ps=member.tasks_dump(frame).now_ps, file=place.file, line=place.line)
        self._force(RunError("process_died", member.rank, message, facts=facts))

    def note_fork(self) -> None:
        """Record the processes that code of the current rank has forked."""
        for pid in own_children():
            self._forked.setdefault(pid, self._current)

    def note_left(self, pids: list[int]) -> None:
        """Add notices about processes that user code has left running."""
        left: dict[int | None, list[int]] = {}
        for pid in pids:
            left.setdefault(self._forked.get(pid), []).append(pid)
        for rank, rank_pids in left.items():
            self.outcome.notices.append(left_line("a script or kernel" if rank is None else f"rank {rank}", rank_pids))

    def _check_signals(self) -> None:
        if self._forced is not None:
            raise ForcedStop
        if self._signals.status_requested:
            self._answer_status_request()
        if self._run.progress.is_on and self._run.progress.due():
            leave_namespace()
            self._run.progress.note(self._hub.status(), self.outcome)
        reason = self._signals.reason()
        if reason is not None and not self._stopping:
            self._stopping = True
            self.outcome.fail(self._stop_error(reason, None))
            self._mail.send(LAUNCHER, BROKER, encode(Stop(reason)))

    def _deliver_progress(self) -> None:
        """Deliver a SIP's progress message at once, so that progress messages do not queue up during a long window. The
        message may overtake others, since the broker only records it.
        """
        last = self._mail.last
        if last is None or last[1] != BROKER:
            return
        sender, _, frame = last
        if isinstance(decode_for_broker(frame), Progress):
            self._mail.drop_last()
            self._to_broker(sender, frame)

    def _must_end(self) -> bool:
        self._deliver_progress()
        self._answer_status_request()
        return self._signals.reason() is not None


def _spec(rank: int, scratch_dir: str) -> SipProcessSpec:
    artifacts = rank_folder(scratch_dir, rank)
    return SipProcessSpec(rank=rank, broker="inproc", endpoint="inproc", artifact_dir=artifacts)


@ENGINES.register("inproc")
def run_in_process(run: Run, signals: StopSignals) -> Outcome:
    """All SIPs in this process, for debugging; same results as ``local``."""
    engine = InProcess(run, signals)
    every_s = max(LEAST_ALARM_S, min(ALARM_S, run.options.progress_timeout_s / 4))
    signals.force_interrupt(every_s, engine.on_alarm)
    streams, folder = (sys.stdout, sys.stderr), os.getcwd()
    try:
        with own_children_ended(engine.note_left), watched(engine.note_fork):
            return engine.run()
    finally:
        # Scripts may have replaced the streams; the result is written later.
        sys.stdout, sys.stderr = streams
        with contextlib.suppress(OSError):
            os.chdir(folder)
        for member in engine.members:
            member.stop_tasks()
