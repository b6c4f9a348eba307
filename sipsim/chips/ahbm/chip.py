"""Chip ``ahbm``: a mesh of HBM cubes with PEs that communicate through IPCQ; host scripts use a subset of PyTorch."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from sipsim.chips.ahbm.collectives import rules as ccl_rules
from sipsim.chips.ahbm.collectives.cube_trees import kernel as tree_kernel
from sipsim.chips.ahbm.collectives.queue_dump import dump
from sipsim.chips.ahbm.costs.stack import PRESET
from sipsim.chips.ahbm.history import write_history
from sipsim.chips.ahbm.host.builtin_job import (
    BuiltinJob,
    collective_job,
    group_choices,
    group_estimates_ps,
    group_notes,
    tensor_bytes,
)
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.memory.store import HostLog
from sipsim.chips.ahbm.pe.engine import ENGINES
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.rules import RULES, unused_keys
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.api.chip import CHIPS, BuiltInJobs, Chip, ChipContext, ChipKind, ChipResults, StackBound
from sipsim.chips.api.host_program import HostProgram
from sipsim.collectives.call import GroupCall, OpenCall
from sipsim.config.check import Problem
from sipsim.config.load import Override
from sipsim.config.schema import Resolved
from sipsim.core.dtypes import DTYPES
from sipsim.core.task import Task
from sipsim.fabric.flows import UNSHOWN
from sipsim.fabric.graph import PORTS
from sipsim.fabric.open import delayed_transfers
from sipsim.records.artifacts import RECORDED_IO, make_artifact_folder
from sipsim.records.job import Job, JobRequest
from sipsim.records.oplog import TRACE_FILE, LineFile, TraceFile, oplog_file


class AhbmChip(Chip):
    """SIP of chip ``ahbm``. ``sip``: the hardware and the kernels' tasks. ``api``: the object ``torch`` of scripts."""

    def __init__(self, context: ChipContext[Plan]) -> None:
        job: Job = context.job
        keep_oplog = "records" in job.records
        keep_spans = keep_oplog or "explain" in job.records
        self.sip = Sip(
            context.rank,
            context.plan,
            context.send,
            keep_oplog,
            job.check_invariants,
            keep_spans,
            context.second_pass,
        )
        self._history_dir = make_artifact_folder(context.artifact_dir) if "explain" in job.records else None
        self.sip.make_task = context.make_task
        self.session = self.sip.session
        self._trace = (
            TraceFile(make_artifact_folder(context.artifact_dir) / TRACE_FILE) if "trace" in job.records else None
        )
        if self._trace is not None:
            self.sip.recorder.tracer = self._trace.append
        self._log_file = self._write_oplog(context.artifact_dir) if "oplog" in job.records else None
        recorded_io_dir = str(make_artifact_folder(context.artifact_dir, RECORDED_IO)) if "data" in job.records else ""
        self.api = self.torch = Torch(self.sip, recorded_io_dir, context.bridge)
        self.torch.distributed.records.on_record = lambda record: self.on_record(record)
        self.host = HostProgram(self.torch.bridge, context.make_task, self.sip.engine)
        self.host.on_start = self._add_host_task
        self.host.on_end = lambda: self.sip.processes.note_end()

    def _write_oplog(self, folder: str) -> LineFile:
        sip = self.sip
        sip.memory.listeners.append(HostLog(sip.oplog, lambda: sip.engine.now_ps))
        return oplog_file(sip.oplog, folder)

    def _add_host_task(self, task: Task) -> None:
        self.torch.kernels.host = task
        self.sip.tasks[task] = None

    def tasks(self) -> list[Task]:
        return [*self.sip.tasks, *self.sip.engine.env.processes]

    def calls(self) -> Sequence[GroupCall]:
        return self.torch.distributed.calls

    def open_calls(self) -> Iterable[OpenCall]:
        return self.torch.distributed.open_calls()

    def dump(self) -> bytes:
        return dump(self.tasks_dump(), self.sip)

    def close(self) -> None:
        super().close()
        for file in (self._trace, self._log_file):
            if file is not None:
                file.close()

    def results(self) -> ChipResults:
        dist, counted = self.torch.distributed, self.sip.usage.so_far_of_parts()
        if self._history_dir is not None:
            sip = self.sip
            later = sip.generations.installed or []
            write_history(self._history_dir, sip.recorder, delayed_transfers(sip.fabric), sip.memory_waits or [], later)
        return ChipResults(
            tensor_sha256=self.torch.space.sha256(),
            oplog_sha256=self.sip.oplog.sha256(),
            bytes_sent=sum(data for data, _ in counted.sent_bytes.values()),
            runs=tuple(dist.records.runs),
            calls=tuple(dist.calls),
            unread=tuple(each for pe in self.sip.pes_in_use() for each in pe.ipcq.generations.unread()),
            peak_pss_mib=dist.records.memory.mib,
            usage=self.sip.usage.measured(),
            launches=self.torch.kernels.ended,
            launch_records=tuple(self.torch.kernels.records),
            verdict=self.sip.verdict(),
            outages=counted.outages,
        )


class AhbmJobs(BuiltInJobs[Plan]):
    """Built-in jobs: collectives of all cubes, or of groups of PEs."""

    def job(self, request: JobRequest, plan: Plan) -> Job:
        return collective_job(request, plan)

    def run(self, job: Job, chip: AhbmChip) -> None:
        BuiltinJob(job, chip.torch, chip.sip.plan, chip.sip.sip).run()

    def describe(self, job: Job) -> str:
        each = "per rank" if job.algorithms else "per cube"
        return f"{job.collective} of {', '.join(map(str, job.n_elems))} elements {each}, {job.dtype}"

    def check_overrides(self, job: Job, plan: Plan, overrides: Sequence[Override]) -> None:
        names = list(dict.fromkeys(chain(*job.algorithms))) or [plan.algorithm.name]
        ccl_rules.check_overrides_of_job(plan.resolved, overrides, names)

    def choices(self, job: Job, plan: Plan) -> list[str]:
        return group_choices(job, plan) if job.algorithms and job.is_auto else []

    def tensor_bytes(self, job: Job, plan: Plan) -> tuple[int, ...]:
        return tensor_bytes(job, plan)

    def estimates_ps(self, job: Job, plan: Plan) -> tuple[int, ...]:
        return group_estimates_ps(job, plan) if job.algorithms else ()

    def short_elements(self, job: Job, plan: Plan) -> int | None:
        if plan.algorithm.kernel is tree_kernel:
            # A longer row has more units in a tree, up to the number of owners, then longer units: times do not scale.
            return None
        return max(plan.ipcq.slot_size // DTYPES[job.dtype].itemsize, 1)


class Ahbm(ChipKind[Plan]):
    """Chip kind ``ahbm``, configured by ``sip``, ``cube``, ``components.yaml`` and ``ccl.yaml``; no ``chip_params``."""

    about = "a mesh of HBM cubes with PEs, which talk through IPCQ"
    jobs = AhbmJobs()
    explainer = "sipsim.insight.explain.critical_path"
    traces = compares = verifies = has_queues = True
    rules = (*RULES, *ccl_rules.RULES)

    def check_overrides(self, resolved: Resolved, overrides: Sequence[Override]) -> None:
        ccl_rules.check_overrides(resolved, overrides)

    def without_effect(self, plan: Plan, ran: Collection[str], has_kernels: bool) -> Mapping[tuple[str, ...], str]:
        why: dict[tuple[str, ...], str] = {}
        if plan.algorithm.elects_root:
            why["algorithms", plan.algorithm.name, "root_cube"] = "its kernel elects the root cube"
        if not has_kernels and not ran:
            why["defaults", "buffer_kind"] = "nothing uses the wired queue pairs"
        return why

    def ports(self, resolved: Resolved) -> Collection[str]:
        return PORTS

    def unused(self, resolved: Resolved) -> Iterable[Problem]:
        return unused_keys(resolved)

    def plan(self, resolved: Resolved) -> Plan:
        # Import all engines here, so that the processes of a run, which are forked later, share them.
        ENGINES.names()
        return Plan(resolved)

    def notes(self, job: Job, plan: Plan, ran: Collection[str] = ()) -> list[str]:
        """Return the plan's lines for the report; an empty list if the script does not use the wired algorithm."""
        if job.script is not None and plan.algorithm.name not in ran:
            return []
        return group_notes(job, plan) if job.algorithms else plan.notes()

    def unshown(self, plan: Plan) -> str:
        return "" if plan.system.has_buffers else f"{UNSHOWN}; router.buffer_packets is the model of these"

    def cautions(self, plan: Plan) -> list[str]:
        chosen = next((each for each in plan.resolved.reads.changes if each.path == PRESET), None)
        return [] if chosen is None or plan.stack is None else plan.stack.caution(chosen)

    def stack_bound(self, plan: Plan, slices: int) -> StackBound | None:
        return None if plan.stack is None else plan.stack.bound(slices)

    def build(self, context: ChipContext[Plan]) -> AhbmChip:
        return AhbmChip(context)


CHIPS.register("ahbm")(Ahbm())
