"""A SIP as a member of a run: it joins, obeys the broker, runs its host program, and answers. No sockets.

The engines hand it letters and a ``Mail`` to answer with; that is the whole difference between one process for all
SIPs and one for each.
"""

import os
import socket
import time
from collections.abc import Callable

from broker.mail import Mail
from broker.wire import (
    BROKER,
    PROTOCOL,
    Abort,
    AskDump,
    Dump,
    End,
    Failed,
    Grant,
    Join,
    Message,
    Packet,
    Refused,
    Result,
    Start,
    decode_for_sip,
    encode,
)
from sipsim import VERSION
from sipsim.ccl.diagnostics import dump
from sipsim.failure import describe
from sipsim.host.collective_job import CollectiveJob
from sipsim.host.script import HostTask, ScriptWorld, find_script
from sipsim.host.torch_api import Torch
from sipsim.job import Job, RankOutcome, to_bytes
from sipsim.pe.task import Task
from sipsim.plan import Plan
from sipsim.resources import cpu_seconds
from sipsim.sip import Sip


class Member:
    """SIP ``rank`` of ``plan``. ``interrupted`` is asked between batches of events whether an ``Abort`` has come."""

    def __init__(
        self,
        rank: int,
        plan: Plan,
        job: Job,
        mail: Mail,
        endpoint: str = "",
        interrupted: Callable[[], bool] = lambda: False,
        keep_oplog: bool = False,
    ) -> None:
        self.rank = rank
        self.plan = plan
        self.job = job
        self.done = False
        self._mail = mail
        self._endpoint = endpoint
        self._interrupted = interrupted
        self._started_s = time.perf_counter()
        self.sip = Sip(rank, plan, lambda dst, packet: mail.send(dst, encode(packet)), keep_oplog)
        self.torch = Torch(self.sip, job.evidence_dir)
        self._world = _script_world(job, rank)

    def join(self) -> None:
        """Tell the broker that this SIP is ready."""
        system = self.plan.system
        self._send(
            Join(
                PROTOCOL,
                self.rank,
                system.n_sips,
                VERSION,
                self.plan.digest,
                os.getpid(),
                socket.gethostname(),
                self._endpoint,
            )
        )

    def handle(self, frame: bytes) -> None:
        """Take one letter and do all that it makes possible. A failure is told to the broker, never raised."""
        try:
            self._obey(frame)
        except Exception as error:
            failure = describe(error, self.rank, self.sip.engine.now_ps)
            self._send(Failed(failure.kind, failure.message, failure.detail, self.sip.engine.now_ps))
            self._answer(partial=True)

    def _obey(self, frame: bytes) -> None:
        message = decode_for_sip(frame)
        session = self.sip.session
        match message:
            case Packet():
                session.take(message)
            case Grant():
                session.grant(message)
            case Start():
                self._mail.meet(message.endpoints)
                self._start_host()
                return
            case AskDump():
                self._send(Dump(dump(self.sip)))
            case End():
                self._answer(partial=False)
            case Abort() | Refused():
                self._answer(partial=True)
        if session.is_ready() and not self.done:
            self._run_window()

    def _run_window(self) -> None:
        session = self.sip.session
        session.begin()
        while (report := session.advance()) is None:
            if self._interrupted():
                return
        self._send(report)

    def _start_host(self) -> None:
        """Run the host program until it first waits, at time 0; then the first report."""
        name, program, loop = "host script", self._host_program, self.sip.loop
        task = Task(name, program, loop) if self._world is None else HostTask(name, program, loop, self._world)
        self.torch.kernels.host = task
        self.sip.tasks.append(task)
        task.resume()
        self._send(self.sip.session.report())

    def _host_program(self) -> None:
        world_size = self.plan.system.n_sips
        if self._world is None:
            CollectiveJob(self.job, self.torch, self.rank, world_size, self.plan.system.n_cubes).run()
        else:
            self._world.run_worker(self.rank, world_size, self.torch)

    def _answer(self, partial: bool) -> None:
        if not self.done:
            self.done = True
            self._send(Result(to_bytes(self._outcome()), partial))

    def _outcome(self) -> RankOutcome:
        sip = self.sip
        self.torch.distributed.memory.look()
        return RankOutcome(
            rank=self.rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            sim_end_ps=sip.engine.now_ps,
            events=sip.engine.events,
            grants=sip.session.grants,
            packets_sent=sip.session.packets_sent,
            packets_received=sip.session.packets_taken,
            bytes_sent=sip.carrier.bytes_sent,
            tensor_sha256=self.torch.tensors_sha256(),
            oplog_sha256=sip.oplog.sha256(),
            wall_s=time.perf_counter() - self._started_s,
            cpu_s=cpu_seconds(),
            peak_pss_mib=self.torch.distributed.memory.mib,
            runs=tuple(self.torch.distributed.runs),
        )

    def _send(self, message: Message) -> None:
        self._mail.send(BROKER, encode(message))


def _script_world(job: Job, rank: int) -> ScriptWorld | None:
    if job.script is None:
        return None
    package = job.script.rpartition(".")[0] if job.as_module else ""
    return ScriptWorld(find_script(job.script, job.as_module), job.script_args, job.seed, rank, package)
