"""Interface of a chip kind, which builds a SIP: its plan, its parts, its host program.

Session, sync client, engine, broker and launcher use only a :class:`~sipsim.chips.api.run_plan.RunPlan` and a
:class:`Chip`. ``system.chip`` selects the kind: a name, or a module on the import path that registers its kind under
the module's name.
"""

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from broker.wire import PacketBatch
from sipsim.chips.api.bridge import Bridge
from sipsim.chips.api.host_program import HostProgram
from sipsim.chips.api.run_plan import RunPlan
from sipsim.collectives.call import GroupCall, OpenCall
from sipsim.config.check import Problem, Rule
from sipsim.config.load import Override
from sipsim.config.schema import NoParams, Resolved, Section
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry, UnknownName
from sipsim.core.session import Session
from sipsim.core.task import MakeTask, Task
from sipsim.fabric.links.outages import OutageUse
from sipsim.records.dump import BlockedResource, SipDump, task_state
from sipsim.records.job import Job, JobRequest
from sipsim.records.replay import MakeSecondPass, Verdict
from sipsim.records.report import LaunchRecord, RunRecord, Unread, Usage

PlanType = TypeVar("PlanType", bound=RunPlan)


class ChipContext(NamedTuple, Generic[PlanType]):
    """Arguments for building a chip. ``plan``: of its kind. ``send`` takes packets for other SIPs.

    ``make_task`` creates the tasks of user code. ``artifact_dir``: the rank's folder for artifacts, which the chip
    creates if needed. ``bridge``: runs host code; None for a :class:`GreenletBridge`. ``second_pass`` creates the
    second pass of a SIP; None if the job has none.
    """

    rank: int
    plan: PlanType
    job: Job
    send: Callable[[int, PacketBatch], None]
    make_task: MakeTask = Task
    artifact_dir: str = ""
    bridge: Bridge | None = None
    second_pass: MakeSecondPass | None = None


class ChipResults(NamedTuple):
    """Results of a SIP, as fields of ``RankOutcome``. ``bytes_sent``: data bytes over links. ``runs``, ``calls``: the
    collectives that ran and were called. ``unread``: messages that were not received. ``peak_pss_mib``: sampled peak
    memory on the host, in MiB. ``usage``: of its parts, per run or in all. ``launch_records``: the first of its
    ``launches``. ``verdict``: of its second pass. ``outages``: cost of outages of its outgoing links. ``left``: lines
    about servers with unfinished work. ``results``: hashes that a race search compares, by name.
    """

    tensor_sha256: str
    oplog_sha256: str
    bytes_sent: int = 0
    runs: tuple[RunRecord, ...] = ()
    calls: tuple[GroupCall, ...] = ()
    unread: tuple[Unread, ...] = ()
    peak_pss_mib: float = 0.0
    usage: tuple[Usage, ...] = ()
    launches: int = 0
    launch_records: tuple[LaunchRecord, ...] = ()
    verdict: Verdict | None = None
    outages: tuple[OutageUse, ...] = ()
    left: tuple[str, ...] = ()
    results: Mapping[str, str] = {}


class StackBound(NamedTuple):
    """Upper bound, in GB/s, of the rate at which PEs stream their slices of a memory stack, and the published rate.

    ``what``: the bottleneck, with its config ``keys``.
    """

    published_GBps: float
    GBps: float
    what: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """Text of the bottleneck, with its keys."""
        return f"{self.what} [{', '.join(self.keys)}]"


class Chip(ABC):
    """Simulated SIP behind its ``session``. ``api``: third argument of a host script.

    ``host``: its host program. ``on_record``: called with the record of each collective that ends on this SIP, in
    order, as in ``runs`` of the results.
    """

    session: Session
    host: HostProgram
    api: object
    on_record: Callable[[RunRecord], None] = staticmethod(lambda _record: None)

    def tasks(self) -> list[Task]:
        """Return the tasks that may not have ended, including the host program and servers. The run's end does not
        wait for other tasks, and hang reports do not show them. Override this for a chip with more tasks.
        """
        return self.host.tasks

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, without servers: the run ends when there are none."""
        return [task for task in self.tasks() if not (task.ended or task.is_server)]

    def waiting(self) -> int:
        """Return the number of unfinished tasks, for a chip that is its session's model."""
        return len(self.unfinished())

    def tasks_for_dump(self) -> list[Task]:
        """Return the tasks for a deadlock report: unfinished ones, and servers that state what they wait for."""
        return self.unfinished()

    def blocked(self) -> Iterable[BlockedResource]:
        """Return the parts that are blocked in a deadlock, in addition to tasks, with the holders that block them, so
        that a report finds the cycle, across SIPs too.
        """
        return ()

    def calls(self) -> Sequence[GroupCall]:
        """Return the collectives and groups that the host script has called."""
        return ()

    def open_calls(self) -> Iterable[OpenCall]:
        """Return the called collectives that have not ended."""
        return ()

    def tasks_dump(self, frame: FrameType | None = None) -> SipDump:
        """Return the unfinished tasks and their code locations. ``frame``: innermost frame of the running code."""
        rank, states = self.session.rank, []
        chip_file = getattr(sys.modules.get(type(self).__module__), "__file__", None) or ""
        for task in self.tasks_for_dump():
            own = frame if task.is_current else task.frame
            if task is self.host.task:
                own = self.host.bridge.host_frame(own)
            states.append(task_state(rank, task, own, chip_file))
        made = dict(Counter(call.group for call in self.calls()))
        return SipDump(rank, self.session.engine.now_ps, (), tuple(states), made, tuple(self.open_calls()))

    def dump(self) -> bytes:
        """Return the waiting tasks and resources for a deadlock report, a ``SipDump`` as JSON. By default: the tasks
        and :meth:`blocked`; a chip with queues adds them.
        """
        return msgspec.json.encode(replace(self.tasks_dump(), blocked=tuple(self.blocked())))

    @abstractmethod
    def results(self) -> ChipResults:
        """Return the SIP's results at the end of the run, when the SIP is closed."""

    def close(self) -> None:
        """Close the bridge, and files, at the end of the run, even if the host program has not ended. Idempotent."""
        self.host.bridge.close()


class BuiltInJobs(ABC, Generic[PlanType]):
    """Jobs of a chip kind that run without a script."""

    @abstractmethod
    def job(self, request: JobRequest, plan: PlanType) -> Job:
        """Return the job of a run, which :meth:`run` runs on each SIP.

        Raises:
            ConfigError: for a job that cannot run.
        """

    @abstractmethod
    def run(self, job: Job, chip: Any) -> None:
        """Run a job on a chip of this kind, as its host program."""

    def describe(self, job: Job) -> str:
        """Return a job in a few words."""
        return job.collective

    def check_overrides(self, job: Job, plan: PlanType, overrides: Sequence[Override]) -> None:
        """Refuse an override that affects host scripts but not this job.

        Raises:
            ConfigError: with the reason.
        """
        return

    def choices(self, job: Job, plan: PlanType) -> list[str]:
        """Return lines about the algorithms that were chosen for a job by their cost, with the reasons."""
        return []

    def tensor_bytes(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """Return the bytes of all tensors of a rank, for each row of a job in order."""
        return ()

    def estimates_ps(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """Return the estimated time of an iteration for each row of a job, in ps; empty if short runs predict it."""
        return ()

    def short_elements(self, job: Job, plan: PlanType) -> int | None:
        """Return the size, as in ``n_elems`` of a job, that fills its longest messages: for larger sizes times grow
        linearly. None if short runs do not predict a long run.
        """
        return None


class ChipKind(ABC, Generic[PlanType]):
    """Chip kind. ``about``: a line for ``--list chips``. ``jobs``: its built-in jobs, if any. ``explainer``: name of a
    module with ``explain(plan, folders, rows)``, for ``--explain``, or ""; a chip does not import this module.
    ``traces``: whether its collectives can be traced. ``verifies``: whether it supports ``--verify-data`` and
    ``--check-invariants``. ``Params``: schema of ``system.chip_params``. ``rules``: more rules for a config with this
    chip. ``link``: default preset of its links.
    """

    about: ClassVar[str] = ""
    jobs: BuiltInJobs[PlanType] | None = None
    explainer: ClassVar[str] = ""
    traces: ClassVar[bool] = False
    verifies: ClassVar[bool] = False
    Params: ClassVar[type[Section]] = NoParams
    rules: ClassVar[tuple[Rule, ...]] = ()
    link: str | None = None

    def params_of(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``system.chip_params`` for the check against ``Params``: merged over the kind's defaults, if any."""
        return given

    def check_overrides(self, resolved: Resolved, overrides: Sequence[Override]) -> None:
        """Refuse an override that has no effect on a valid config.

        Raises:
            ConfigError: with the reason.
        """
        return

    def without_effect(self, plan: PlanType, ran: Collection[str], has_kernels: bool) -> Mapping[tuple[str, ...], str]:
        """Return the config values that a run read but that had no effect: path to reason. ``ran``: the algorithms of
        its collectives; ``has_kernels``: whether a script's own kernels ran.
        """
        return {}

    def ports(self, resolved: Resolved) -> Collection[str] | None:
        """Return the ports of its SIPs; None: any port of the topology."""
        return None

    def unused(self, resolved: Resolved) -> Iterable[Problem]:
        """Return the values without effect, which are refused unless they are those of the default config."""
        return ()

    @abstractmethod
    def plan(self, resolved: Resolved) -> PlanType:
        """Return the plan of a run, equal in every process.

        Raises:
            ConfigError: for a config that cannot run.
        """

    def notes(self, job: Job, plan: PlanType, ran: Collection[str] = ()) -> list[str]:
        """Return lines about a run for the user. ``ran``: the algorithms of the collectives that have ended."""
        return plan.notes()

    def unshown(self, plan: PlanType) -> str:
        """Return a text for the user: what the model of busy edges leaves out; empty if nothing."""
        return ""

    def cautions(self, plan: PlanType) -> list[str]:
        """Return warnings for the user before a run: settings that cannot have their stated effect."""
        return []

    def stack_bound(self, plan: PlanType, slices: int) -> StackBound | None:
        """Return the bound of PEs that stream ``slices`` slices of a stack; None without a published bandwidth."""
        return None

    @abstractmethod
    def build(self, context: ChipContext[PlanType]) -> Chip:
        """Build one SIP, in its process: a :class:`Chip` with all its attributes.

        Create the engine; the session of ``context.rank`` with this engine, ``plan.channels``, ``context.send`` and
        ``plan.reactions_ps[rank]``; the session's ``model``, which takes the packets that arrive; and the host program,
        from ``context.bridge`` and ``context.make_task``. Start nothing: for a task that exists from the beginning,
        schedule ``engine.at(0, task.resume)``. The caller starts the host program.
        """


CHIPS: Registry[ChipKind[Any]] = Registry(
    "chip",
    {
        "sipsim.chips.ahbm.chip": ("ahbm",),
        "sipsim.chips.tensix.chip": (
            "blackhole",
            "wormhole",
        ),
    },
    objects_of=ChipKind,
)


def kind_of(resolved: Resolved) -> ChipKind[Any]:
    """Return the chip kind of a checked config."""
    return CHIPS.get(resolved.topology.system.chip)


def plan_of(resolved: Resolved) -> RunPlan:
    """Return the plan of a config that was checked, perhaps on another machine.

    Raises:
        ConfigError: for a config that cannot run, or a user's module that is missing on this machine.
    """
    try:
        # This imports users' modules that the plan itself may not need.
        return planned(resolved)
    except UnknownName as error:
        raise ConfigError(f"the run uses a definition that this host lacks: {error}") from None


def planned(resolved: Resolved) -> RunPlan:
    """Return the plan of a checked config with its derived values computed, so that their errors are raised here.

    Raises:
        ConfigError: for a config that cannot run.
        UnknownName: for a user's module that is missing.
    """
    kind, reads = kind_of(resolved), resolved.reads
    # Count config reads from now on: values are derived once per run, and its processes share them.
    reads.is_counting = True
    plan = kind.plan(resolved)
    if not isinstance(plan, RunPlan):
        raise ConfigError(f"{type(kind).__name__}.plan returned {plan!r}; must be a RunPlan")
    _ = plan.channels, plan.reactions_ps
    with reads.apart():
        _ = plan.digest
    return plan
