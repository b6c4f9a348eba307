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
    """Arguments for building a chip. ``plan``: the run's plan. ``send(rank, batch)`` sends packets to another SIP.

    ``make_task`` creates the tasks of user code. ``artifact_dir``: the rank's folder for artifacts, which the chip
    creates if needed. ``bridge`` runs host code; if it is None, a :class:`GreenletBridge` does. ``second_pass`` creates
    the second pass of a SIP; it is None if the job has no second pass.
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
    """Results of a SIP, as fields of ``RankOutcome``. ``bytes_sent``: data bytes sent over links. ``runs``: collectives
    that ran; ``calls``: collectives that the script called. ``unread``: messages never received. ``peak_pss_mib``: peak
    of the process's sampled memory, in MiB. ``usage``: use of the SIP's parts per stretch. ``launches``: launch count;
    ``launch_records``: records of the first ones. ``verdict``: result of the second pass. ``outages``: cost of outages
    per outgoing link. ``left``: lines about servers with unfinished work. ``results``: hashes by name, for race search.
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
    """Upper bound ``GBps`` of the rate at which PEs stream their slices of a memory stack, and the published rate.

    ``what``: name of the bottleneck. ``keys``: config keys that set the bottleneck's rate.
    """

    published_GBps: float
    GBps: float
    what: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """Text for the user: the bottleneck and its config keys."""
        return f"{self.what} [{', '.join(self.keys)}]"


class Chip(ABC):
    """Simulated SIP, which its ``session`` runs. ``api``: third argument of a host script.

    ``host``: the SIP's host program. ``on_record(record)`` is called when a collective ends on this SIP; the records
    and their order are equal to ``runs`` of the results.
    """

    session: Session
    host: HostProgram
    api: object
    on_record: Callable[[RunRecord], None] = staticmethod(lambda _record: None)

    def tasks(self) -> list[Task]:
        """Return all unfinished tasks, including the host program and servers; ended tasks are allowed. The run's end
        and hang reports ignore tasks that are not returned. Override this for a chip with more tasks.
        """
        return self.host.tasks

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, without servers: the run ends when this list is empty."""
        return [task for task in self.tasks() if not (task.ended or task.is_server)]

    def waiting(self) -> int:
        """Return the number of unfinished tasks, for a chip that is its session's model."""
        return len(self.unfinished())

    def tasks_for_dump(self) -> list[Task]:
        """Return the tasks for a deadlock report: unfinished tasks, and servers that state what they wait for."""
        return self.unfinished()

    def blocked(self) -> Iterable[BlockedResource]:
        """Return the blocked parts that are not tasks, each with the holder that blocks the part, so that a deadlock
        report finds the cycle, also across SIPs.
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
        """Return a ``SipDump`` as JSON for a deadlock report: by default the waiting tasks and :meth:`blocked`; a chip
        with queues adds its queues.
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
        """Return a short description of a job for the user."""
        return job.collective

    def check_overrides(self, job: Job, plan: PlanType, overrides: Sequence[Override]) -> None:
        """Refuse an override that affects host scripts but not this job.

        Raises:
            ConfigError: with the reason.
        """
        return

    def choices(self, job: Job, plan: PlanType) -> list[str]:
        """Return lines that state which algorithms ``auto`` chose for a job by cost, and why."""
        return []

    def tensor_bytes(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """Return, for each row of a job in order, the total bytes of the tensors of one rank."""
        return ()

    def estimates_ps(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """Return the estimated time of an iteration for each row of a job, in ps; empty if short runs predict it."""
        return ()

    def short_elements(self, job: Job, plan: PlanType) -> int | None:
        """Return the size, in elements like ``n_elems`` of a job, from which a run's time grows linearly: messages have
        their full length. Return None if short runs do not predict a long run.
        """
        return None


class ChipKind(ABC, Generic[PlanType]):
    """Chip kind. ``about``: a line for ``--list chips``. ``jobs``: the built-in jobs, or None. ``explainer``: name of a
    module with ``explain(plan, folders, rows)``, for ``--explain``, or ""; a chip does not import this module.
    ``traces``: whether runs of the kind can be traced. ``compares``: whether runs of the kind record the results of
    collectives, to compare them with computed ones. ``verifies``: whether the kind has a second pass
    (``--verify-data``).
    ``has_queues``: whether the kind has IPCQ queues, for ``--check-invariants``. ``Params``: schema of
    ``system.chip_params``. ``rules``: more rules for a config with this chip. ``link``: default preset of the links, or
    None.
    """

    about: ClassVar[str] = ""
    jobs: BuiltInJobs[PlanType] | None = None
    explainer: ClassVar[str] = ""
    traces: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    verifies: ClassVar[bool] = False
    has_queues: ClassVar[bool] = False
    Params: ClassVar[type[Section]] = NoParams
    rules: ClassVar[tuple[Rule, ...]] = ()
    link: str | None = None

    def params_of(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``given``, which is ``system.chip_params``, merged over the kind's defaults if the kind has any."""
        return given

    def check_overrides(self, resolved: Resolved, overrides: Sequence[Override]) -> None:
        """Refuse an override that has no effect on a valid config.

        Raises:
            ConfigError: with the reason.
        """
        return

    def without_effect(self, plan: PlanType, ran: Collection[str], has_kernels: bool) -> Mapping[tuple[str, ...], str]:
        """Return the config values that a run read but that had no effect: config path to reason. ``ran``: names of the
        algorithms that ran; ``has_kernels``: whether kernels of a script ran.
        """
        return {}

    def ports(self, resolved: Resolved) -> Collection[str] | None:
        """Return the port names of a SIP; None if a SIP of this kind has every port that the topology uses."""
        return None

    def unused(self, resolved: Resolved) -> Iterable[Problem]:
        """Return a problem per config value without effect; the caller refuses values that differ from the default."""
        return ()

    @abstractmethod
    def plan(self, resolved: Resolved) -> PlanType:
        """Return the plan of a run, which is equal in every process.

        Raises:
            ConfigError: for a config that cannot run.
        """

    def notes(self, job: Job, plan: PlanType, ran: Collection[str] = ()) -> list[str]:
        """Return lines about a run for the user. ``ran``: names of the algorithms whose collectives have ended."""
        return plan.notes()

    def unshown(self, plan: PlanType) -> str:
        """Return a text that states which effects the model of busy edges leaves out; empty if there are none."""
        return ""

    def cautions(self, plan: PlanType) -> list[str]:
        """Return warnings for the user before a run: settings that cannot have their stated effect."""
        return []

    def stack_bound(self, plan: PlanType, slices: int) -> StackBound | None:
        """Return the rate bound of PEs that stream ``slices`` slices of a stack; None without a published bandwidth."""
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
        # The call also imports users' modules that the plan itself may not need.
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
        raise ConfigError(f"{type(kind).__name__}.plan returned {plan!r}; return a RunPlan")
    _ = plan.channels, plan.reactions_ps
    with reads.apart():
        _ = plan.digest
    return plan
