"""The interface of a chip kind, the one place where a SIP is put together: its plan, its parts, its host program.

Session, sync client, engine, broker and launcher see a :class:`~sipsim.chips.api.run_plan.RunPlan` and a
:class:`Chip`, whatever the kind. ``system.chip`` chooses it: a name, or a module on the import path that registers its
kind under its own name.
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
    """What a chip is built from. ``plan`` is its kind's own; ``send`` takes packets for other SIPs.

    ``make_task`` makes the tasks of user code. ``artifact_dir``: the rank's folder for files that it leaves, which the
    chip makes if it needs it. ``bridge``: the way of host code, None for the usual one. ``second_pass`` makes that of
    a SIP; None where the job has none.
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
    """What a SIP leaves, as fields of ``RankOutcome``. ``bytes_sent``: data bytes over links. ``runs``, ``calls``: the
    collectives that it ran and called. ``unread``: messages left unread. ``peak_pss_mib``: peak memory on the host in
    MiB, as sampled. ``usage``: of its parts, in each run or in all. ``launch_records``: the first of its ``launches``.
    ``verdict``: that of its second pass. ``outages``: what outages of its outgoing links cost. ``left``: lines about
    servers that had work left. ``results``: hashes that a race search compares, by name.
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
    """What PEs that stream their slices of a stack of memory get at most, in GB/s, of what it publishes.

    ``what`` binds them, and the config ``keys`` of that.
    """

    published_GBps: float
    GBps: float
    what: str
    keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """What binds, with the keys."""
        return f"{self.what} [{', '.join(self.keys)}]"


class Chip(ABC):
    """One simulated SIP behind its ``session``. ``api``: what a host script gets as its third argument.

    ``host``: its host program. ``on_record``: called with each collective that ends here, in order, as it is in the
    results' ``runs``.
    """

    session: Session
    host: HostProgram
    api: object
    on_record: Callable[[RunRecord], None] = staticmethod(lambda _record: None)

    def tasks(self) -> list[Task]:
        """The tasks that may not have ended, that of the host program and servers included. A task that is missing here
        does not keep the run from its end, and no report of a hang names it. A chip with more tasks adds them.
        """
        return self.host.tasks

    def unfinished(self) -> list[Task]:
        """The tasks that have not ended, servers aside: while there are any, the run is not at its end."""
        return [task for task in self.tasks() if not (task.ended or task.is_server)]

    def waiting(self) -> int:
        """The number of unfinished tasks, for a chip that is its session's model."""
        return len(self.unfinished())

    def shown_in_dumps(self) -> list[Task]:
        """The tasks that a report of a deadlock names: those that have not ended, and servers that say what they wait
        for.
        """
        return self.unfinished()

    def blocked(self) -> Iterable[BlockedResource]:
        """The parts of it that cannot go on, besides its tasks, when nothing can happen any more: by whom they are
        held up, so that a report finds the cycle, across SIPs too.
        """
        return ()

    def calls(self) -> Sequence[GroupCall]:
        """The collectives and groups that the host script has called."""
        return ()

    def open_calls(self) -> Iterable[OpenCall]:
        """Of these collectives those that have not ended."""
        return ()

    def tasks_dump(self, frame: FrameType | None = None) -> SipDump:
        """The tasks that have not ended, and where their code is. ``frame``: the innermost one of what runs now."""
        rank, states = self.session.rank, []
        chip_file = getattr(sys.modules.get(type(self).__module__), "__file__", None) or ""
        for task in self.shown_in_dumps():
            own = frame if task.is_current else task.frame
            if task is self.host.task:
                own = self.host.bridge.host_frame(own)
            states.append(task_state(rank, task, own, chip_file))
        made = dict(Counter(call.group for call in self.calls()))
        return SipDump(rank, self.session.engine.now_ps, (), tuple(states), made, tuple(self.open_calls()))

    def dump(self) -> bytes:
        """What waits, for a deadlock report: a ``SipDump`` as JSON. Of a chip without queues, its tasks and what else
        is blocked.
        """
        return msgspec.json.encode(replace(self.tasks_dump(), blocked=tuple(self.blocked())))

    @abstractmethod
    def results(self) -> ChipResults:
        """What the SIP leaves, at the end of the run, when it is closed."""

    def close(self) -> None:
        """Close the bridge, and files: the run is over, perhaps before its program. It may be closed again."""
        self.host.bridge.close()


class BuiltInJobs(ABC, Generic[PlanType]):
    """The runs without a script of a kind of chip."""

    @abstractmethod
    def job(self, request: JobRequest, plan: PlanType) -> Job:
        """The job of a run, which :meth:`run` runs on each SIP.

        Raises:
            ConfigError: for what cannot run.
        """

    @abstractmethod
    def run(self, job: Job, chip: Any) -> None:
        """The host program of such a job on a chip of its kind."""

    def describe(self, job: Job) -> str:
        """A job in a few words."""
        return job.collective

    def check_overrides(self, job: Job, plan: PlanType, overrides: Sequence[Override]) -> None:
        """Refuse an override that has an effect on host scripts, and none on a job.

        Raises:
            ConfigError: that says why.
        """
        return

    def choices(self, job: Job, plan: PlanType) -> list[str]:
        """Lines about what was chosen for a job by its cost, and why."""
        return []

    def tensor_bytes(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """The bytes of all tensors of a rank, for each row of a job, in their order."""
        return ()

    def estimates_ps(self, job: Job, plan: PlanType) -> tuple[int, ...]:
        """The estimated simulated time of an iteration, for each row of a job; empty where short runs predict it."""
        return ()

    def short_elements(self, job: Job, plan: PlanType) -> int | None:
        """The size, as in ``n_elems`` of a job, that fills its longest messages: from there on times grow linearly.
        None where short runs do not predict a long run.
        """
        return None


class ChipKind(ABC, Generic[PlanType]):
    """A kind of chip. ``about``: a line for ``--list chips``. ``jobs``: its runs without a script, if it has any.
    ``explainer``: the name of a module with ``explain(plan, folders, rows)``, for ``--explain``, "" without one; a chip
    does not import it. ``traces``: whether its collectives can be traced. ``verifies``: whether its runs are performed
    again, or checked otherwise, as ``--verify-data`` and ``--check-invariants`` ask for. ``Params``: what
    ``system.chip_params`` may hold; ``rules``: what else must hold of a config with it. ``link``: the preset of its
    links where a config names none.
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
        """``system.chip_params`` as they are checked against ``Params``: over the kind's own defaults, if any."""
        return given

    def check_overrides(self, resolved: Resolved, overrides: Sequence[Override]) -> None:
        """Refuse an override that has no effect on a config that keeps the rules.

        Raises:
            ConfigError: that says why.
        """
        return

    def without_effect(self, plan: PlanType, ran: Collection[str], has_kernels: bool) -> Mapping[tuple[str, ...], str]:
        """Values that a run has read and that had no effect on it, by their paths: why. ``ran``: the algorithms of its
        collectives; ``has_kernels``: whether kernels of a script ran, too.
        """
        return {}

    def ports(self, resolved: Resolved) -> Collection[str] | None:
        """The ports that its SIPs have; None: whatever the topology names."""
        return None

    def unused(self, resolved: Resolved) -> Iterable[Problem]:
        """The values without effect, which are refused where they are not those of the default config."""
        return ()

    @abstractmethod
    def plan(self, resolved: Resolved) -> PlanType:
        """The plan of a run, the same in every process.

        Raises:
            ConfigError: for what cannot run.
        """

    def notes(self, job: Job, plan: PlanType, ran: Collection[str] = ()) -> list[str]:
        """Lines about a run for the user. ``ran``: the algorithms of the collectives that have ended."""
        return plan.notes()

    def unshown(self, plan: PlanType) -> str:
        """What its model of edges leaves out where one of them is busy, for the user; empty if nothing need be said."""
        return ""

    def cautions(self, plan: PlanType) -> list[str]:
        """Lines for the user before a run: what of the config cannot do what it says."""
        return []

    def stack_bound(self, plan: PlanType, slices: int) -> StackBound | None:
        """What binds PEs that stream so many slices of a stack; None for a memory that publishes no bandwidth."""
        return None

    @abstractmethod
    def build(self, context: ChipContext[PlanType]) -> Chip:
        """One SIP, in its process: a :class:`Chip` with all its attributes.

        It makes the engine; the session of ``context.rank`` with that, ``plan.channels``, ``context.send`` and
        ``plan.reactions_ps[rank]``; the session's ``model``, which takes the packets that arrive; and the host program,
        from ``context.bridge`` and ``context.make_task``. It starts nothing: a task of its own that is there from the
        beginning gets an event, ``engine.at(0, task.resume)``, and whoever has built the SIP starts the host program.
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
    """The chip kind of a checked config."""
    return CHIPS.get(resolved.topology.system.chip)


def plan_of(resolved: Resolved) -> RunPlan:
    """The plan of a config that was checked, perhaps on another machine.

    Raises:
        ConfigError: for what cannot run, here without a user's module that the config names.
    """
    try:
        # Imports users' modules that the plan itself may not need.
        return planned(resolved)
    except UnknownName as error:
        raise ConfigError(f"the run needs what is missing here: {error}") from None


def planned(resolved: Resolved) -> RunPlan:
    """The plan of a checked config, with what every process derives, so that what cannot be derived is refused here.

    Raises:
        ConfigError: for what cannot run.
        UnknownName: for a user's module that is missing.
    """
    kind, reads = kind_of(resolved), resolved.reads
    # From now on: what is derived for a run is derived once, and its processes share it.
    reads.is_counting = True
    plan = kind.plan(resolved)
    if not isinstance(plan, RunPlan):
        raise ConfigError(f"{type(kind).__name__}.plan returned {plan!r}; must be a RunPlan")
    _ = plan.channels, plan.reactions_ps
    with reads.apart():
        _ = plan.digest
    return plan
