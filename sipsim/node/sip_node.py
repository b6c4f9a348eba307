"""One rank of a run: a chip and its host program behind a ``SyncClient``, its launch parameters and its outcome."""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import msgspec
from msgspec.structs import replace

from broker.ids import PROTOCOL
from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S, Mail
from broker.security import SipKeys
from broker.wire import Failed, Join, Record
from sipsim import VERSION
from sipsim.chips.api.bridge import Bridge
from sipsim.chips.api.chip import ChipContext, kind_of
from sipsim.chips.api.run_plan import RunPlan
from sipsim.core.errors import InvariantViolation, note
from sipsim.core.registry import source_lines
from sipsim.core.task import MakeTask, Task, TaskFailed
from sipsim.node.client import SyncClient
from sipsim.node.failure import describe
from sipsim.node.faults import FaultPlan, install
from sipsim.node.packet_log import PacketLog
from sipsim.node.script import ScriptNamespace, ScriptTask, find_script
from sipsim.records.dump import SipDump
from sipsim.records.job import Job
from sipsim.records.replay import MakeSecondPass
from sipsim.records.report import PeakMemory, RankOutcome, RunRecord, cpu_seconds


class SipProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Launch parameters of one SIP process, besides the plan and the job. Plain data.

    ``broker`` and ``endpoint``: endpoints of the broker and of this SIP; a TCP port may be ``*``.

    ``shared_cpu_seed``: any number, equal for all SIPs of a run on this host; None if they never share a processor.
    ``keys``: the CURVE keys of this SIP; None if only processes of this user can connect.
    ``packet_log_dir``: folder of the packet logs, for restarts; "" for no log.
    ``artifact_dir``: the rank's artifact folder, which its process makes; "" for no artifacts.
    ``faults``: ``--fault`` specs.
    ``silence_s``: time without heartbeats after which a TCP peer counts as lost; None for no limit.
    ``join_timeout_s``: limit on the time until the broker answers.
    """

    rank: int
    broker: str
    endpoint: str
    incarnation: int = 0
    shared_cpu_seed: int | None = None
    keys: SipKeys | None = None
    packet_log_dir: str = ""
    artifact_dir: str = ""
    faults: tuple[str, ...] = ()
    silence_s: float | None = SILENCE_S
    join_timeout_s: float = JOIN_TIMEOUT_S


class SipNode(SyncClient):
    """SIP ``spec.rank`` of ``plan``: its chip and its host program.

    ``bridge`` runs the host program (default: as a greenlet). Other arguments: as in ``SyncClient``.
    """

    def __init__(
        self,
        spec: SipProcessSpec,
        plan: RunPlan,
        job: Job,
        mail: Mail,
        interrupted: Callable[[], bool] = lambda: False,
        colocate: Callable[[bool], None] = lambda _together: None,
        bridge: Bridge | None = None,
    ) -> None:
        rank = spec.rank
        super().__init__(rank, mail, interrupted, colocate)
        self._incarnation = spec.incarnation
        self.plan = plan
        self.job = job
        self._started_s = time.perf_counter()
        self._memory = PeakMemory()
        self._namespace = _script_namespace(job, rank)
        make_task: MakeTask = Task if self._namespace is None else partial(ScriptTask, namespace=self._namespace)
        second_pass, folder = _second_pass(job), spec.artifact_dir
        self.chip = kind_of(plan.resolved).build(
            ChipContext(rank, plan, job, self.send_batch, make_task, folder, bridge, second_pass)
        )
        self.chip.host.bridge.on_call_end = self.note_progress
        self.chip.on_record = self._send_record
        self._records = 0
        self.session = self.chip.session
        self._digest = run_digest(plan.digest, job)
        faults = FaultPlan.of(spec.faults).for_process(rank, spec.incarnation)
        self._faults = install(self.session.engine, faults)
        if spec.packet_log_dir:
            self.log = PacketLog(spec.packet_log_dir, rank, self._digest)
            if self.log.notice:
                note(self.log.notice)

    def join(self) -> None:
        if self._faults is not None:
            self._faults.before_join()
        super().join()

    def identity(self) -> Join:
        return Join(
            PROTOCOL,
            self.rank,
            self.plan.system.n_sips,
            VERSION,
            self._digest,
            os.getpid(),
            socket.gethostname(),
            self._mail.endpoint,
            self._incarnation,
        )

    def start_program(self) -> None:
        host = self.chip.host
        host.start(self._host_program)
        if any(not task.ended and task not in self.chip.tasks() for task in host.tasks):
            what = "leaves out the task of the host program, which would hide hangs of the program; add self.host.tasks"
            raise InvariantViolation(f"{type(self.chip).__name__}.tasks {what}")

    def _send_record(self, record: RunRecord) -> None:
        self._send(Record(self._records, msgspec.json.encode(record)))
        self._records += 1

    def stop_tasks(self) -> None:
        """Stop waiting tasks and close the chip, after a run in a process that continues to be used."""
        # Without this, host code in a thread would wait forever for the host task.
        self.chip.host.bridge.close()
        for task in self.chip.tasks():
            if not task.ended:
                # Errors of a task's cleanup code are no part of the run.
                with contextlib.suppress(TaskFailed):
                    task.stop()
        self.chip.close()
        if self._namespace is not None:
            self._namespace.leave()

    def dump_waiting(self) -> bytes:
        return self.chip.dump()

    def tasks_dump(self, frame: FrameType | None = None) -> SipDump:
        """Return the code positions of all tasks. ``frame``: the innermost frame of the running task."""
        return self.chip.tasks_dump(frame)

    def failure(self, error: BaseException) -> Failed:
        now_ps = self.session.engine.now_ps
        found = describe(error, self.rank, now_ps)
        return Failed(found.kind, found.message, found.detail, now_ps, found.where, found.blames)

    def _host_program(self) -> None:
        if self._namespace is None:
            jobs = kind_of(self.plan.resolved).jobs
            assert jobs is not None, "a chip without built-in jobs has a script"
            jobs.run(self.job, self.chip)
        else:
            self._namespace.run_worker(self.rank, self.plan.system.n_sips, self.chip.api, self.job.spawn)

    def outcome(self) -> bytes:
        self.chip.close()
        self._memory.sample()
        session, results = self.session, self.chip.results()
        outcome = RankOutcome(
            rank=self.rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            sim_end_ps=session.engine.now_ps,
            events=session.engine.events,
            grants=session.grants,
            packets_sent=session.packets_sent,
            packets_received=session.packets_taken,
            wall_s=time.perf_counter() - self._started_s,
            cpu_s=cpu_seconds(),
            run_s=self.run_ns / 1e9,
            send_s=self.send_ns / 1e9,
            wait_s=self.wait_ns / 1e9,
            read=tuple(sorted(self.plan.resolved.reads.seen)),
            **results._replace(peak_pss_mib=max(self._memory.mib, results.peak_pss_mib))._asdict(),
        )
        return msgspec.json.encode(outcome)

    def _post(self, to: int, frame: bytes) -> None:
        if self._faults is None or not self._faults.mute:
            super()._post(to, frame)


def run_digest(plan_digest: str, job: Job) -> str:
    """SHA-256 of plan, job, and sources of script and collective; equal in all processes that may join one run."""
    shared = replace(job, records=())
    source = find_script(job.script, job.as_module).read_bytes() if job.script is not None else b""
    own = [line.encode() for line in source_lines([job.collective])]
    return hashlib.sha256(b"\n".join([plan_digest.encode(), msgspec.json.encode(shared), source, *own])).hexdigest()


def _second_pass(job: Job) -> MakeSecondPass | None:
    if not job.verify_data:
        return None
    from sipsim.insight.replay.second_pass import SecondPass

    return SecondPass


def _script_namespace(job: Job, rank: int) -> ScriptNamespace | None:
    if job.script is None:
        return None
    package = job.script.rpartition(".")[0] if job.as_module else ""
    return ScriptNamespace(find_script(job.script, job.as_module), job.script_args, job.seed, rank, package)
