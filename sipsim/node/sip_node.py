"""One rank of a run: a SIP's hardware and host program behind a ``SyncClient``, and its outcome."""

import hashlib
import os
import socket
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from broker.ids import PROTOCOL
from broker.mail.base import Mail
from broker.wire import Failed, Join
from sipsim import VERSION
from sipsim.ccl.diagnostics import dump
from sipsim.faults.inject import install
from sipsim.faults.plan import FaultPlan
from sipsim.host.bridge.base import Bridge
from sipsim.host.collective_job import CollectiveJob
from sipsim.host.script import ScriptNamespace, ScriptTask, find_script
from sipsim.host.torch_api import Torch
from sipsim.node.failure import describe
from sipsim.node.process_spec import SipProcessSpec
from sipsim.plan.job import Job, RankOutcome, to_bytes
from sipsim.plan.plan import Plan
from sipsim.record.artifacts import RECORDED_IO, made
from sipsim.record.resources import cpu_seconds
from sipsim.record.trace import TRACE_FILE, TraceFile
from sipsim.recovery.packet_log import PacketLog
from sipsim.sip.sip import Sip
from sipsim.sync.client import SyncClient
from sipsim.task import Task


class SipNode(SyncClient):
    """SIP ``spec.rank`` of ``plan``, listening at ``endpoint``; ``bridge`` runs its host program, as a greenlet
    unless given; the other arguments are those of ``SyncClient``.
    """

    def __init__(
        self,
        spec: SipProcessSpec,
        plan: Plan,
        job: Job,
        mail: Mail,
        endpoint: str = "",
        interrupted: Callable[[], bool] = lambda: False,
        colocate: Callable[[bool], None] = lambda _together: None,
        keep_oplog: bool = False,
        bridge: Bridge | None = None,
    ) -> None:
        rank = spec.rank
        super().__init__(rank, mail, interrupted, colocate)
        self._incarnation = spec.incarnation
        self.plan = plan
        self.job = job
        self._endpoint = endpoint
        self._started_s = time.perf_counter()
        self.sip = Sip(rank, plan, self.send_batch, keep_oplog, job.check_invariants)
        self._trace = TraceFile(made(spec.artifact_dir) / TRACE_FILE) if job.trace else None
        if self._trace is not None:
            self.sip.tracer = self._trace.append
        self.session = self.sip.session
        recorded_io_dir = str(made(spec.artifact_dir, RECORDED_IO)) if job.record_io else ""
        self.torch = Torch(self.sip, recorded_io_dir, bridge)
        self.torch.bridge.on_call_end = self.note_progress
        self._namespace = _script_namespace(job, rank)
        self._shares_process = spec.broker == "inproc"
        if self._namespace is not None:
            self.sip.make_task = partial(ScriptTask, namespace=self._namespace)
        self._digest = run_digest(plan.digest, job)
        faults = FaultPlan.of(spec.faults).for_process(rank, spec.incarnation)
        self._faults = install(self.sip.engine, faults)
        if spec.packet_log_dir:
            self.log = PacketLog(spec.packet_log_dir, rank, self._digest)

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
            self._endpoint,
            self._incarnation,
        )

    def start_program(self) -> None:
        name, loop, namespace = "host script", self.sip.loop, self._namespace
        program = self.torch.bridge.body(self._host_program)
        task = Task(name, program, loop) if namespace is None else ScriptTask(name, program, loop, namespace=namespace)
        self.torch.kernels.host = task
        self.sip.tasks.append(task)
        task.resume()

    def handle(self, frame: bytes) -> None:
        try:
            super().handle(frame)
        finally:
            # A process with one SIP never switches: a switch costs more than a small window.
            if self._namespace is not None and self._shares_process:
                self._namespace.leave()

    def dump_waiting(self) -> bytes:
        return dump(self.sip)

    def failure(self, error: Exception) -> Failed:
        now_ps = self.sip.engine.now_ps
        found = describe(error, self.rank, now_ps)
        return Failed(found.kind, found.message, found.detail, now_ps, found.where)

    def _host_program(self) -> None:
        world_size = self.plan.system.n_sips
        if self._namespace is None:
            CollectiveJob(self.job, self.torch, self.rank, world_size, self.plan.system.n_cubes).run()
        else:
            self._namespace.run_worker(self.rank, world_size, self.torch)

    def outcome(self) -> bytes:
        sip = self.sip
        self.torch.bridge.close()
        if self._trace is not None:
            self._trace.close()
        self.torch.distributed.memory.sample()
        outcome = RankOutcome(
            rank=self.rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            sim_end_ps=sip.engine.now_ps,
            events=sip.engine.events,
            grants=sip.session.grants,
            packets_sent=sip.session.packets_sent,
            packets_received=sip.session.packets_taken,
            bytes_sent=sip.network.ports.bytes_sent,
            tensor_sha256=self.torch.space.sha256(),
            oplog_sha256=sip.oplog.sha256(),
            wall_s=time.perf_counter() - self._started_s,
            cpu_s=cpu_seconds(),
            peak_pss_mib=self.torch.distributed.memory.mib,
            run_s=self.run_ns / 1e9,
            send_s=self.send_ns / 1e9,
            wait_s=self.wait_ns / 1e9,
            runs=tuple(self.torch.distributed.runs),
            calls=tuple(self.torch.distributed.calls),
            unread=tuple(each for pe in sip.pes_in_use() for each in pe.ipcq.unread()),
        )
        return to_bytes(outcome)

    def _post(self, to: int, frame: bytes) -> None:
        if self._faults is None or not self._faults.mute:
            super()._post(to, frame)


def run_digest(plan_digest: str, job: Job) -> str:
    """SHA-256 over plan, job and the script's source: they must be equal in all processes of a run."""
    shared = replace(job, record_io=False, trace=False)
    source = find_script(job.script, job.as_module).read_bytes() if job.script is not None else b""
    return hashlib.sha256(b"\n".join([plan_digest.encode(), to_bytes(shared), source])).hexdigest()


def _script_namespace(job: Job, rank: int) -> ScriptNamespace | None:
    if job.script is None:
        return None
    package = job.script.rpartition(".")[0] if job.as_module else ""
    return ScriptNamespace(find_script(job.script, job.as_module), job.script_args, job.seed, rank, package)
