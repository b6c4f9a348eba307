"""PE_CPU: the core that runs a kernel, and its time for the commands that it issues.

PE_CPU is an in-order core that does one thing at a time. The issue of a command takes ``pe_cpu.issue_ns`` (it writes
a descriptor and hands it over); then the command reaches its engine and the next issue begins. Limit of the model: the
code of a kernel between its commands takes no time.

Most issues need no simulator event. An engine that ``starts_later`` gets its command early, with the time at which the
command reaches it. A send claims a slot when its issue begins; its bytes leave when the issue ends. Meanwhile the
kernel code may run on to its next command, whose issue begins when this one has ended.
"""

from sipsim.chips.ahbm.parts import SipParts
from sipsim.core.task import Task
from sipsim.core.units import ns_to_ps

Ps = int
ISSUE = "pe_cpu.issue"
"""Name of the span of a command's issue."""
ROOM = "pe_scheduler.queue"
"""Name of the span of the wait for a free slot in an engine's queue."""


class PeCpu:
    """PE_CPU of the PE ``name``. ``free_ps``: time at which all commands so far are issued."""

    def __init__(self, sip: SipParts, name: str) -> None:
        self._engine = sip.engine
        self._recorder = sip.recorder
        self._name = name
        self._waited_ps = sip.recorder.waited_ps[name]
        self._issue_ps = ns_to_ps(sip.plan.resolved.components.pe_cpu.issue_ns)
        self.free_ps: Ps = 0

    @property
    def is_free_of_cost(self) -> bool:
        """Whether an issue takes no time."""
        return not self._issue_ps

    def issue(self, task: Task) -> None:
        """Issue a command of the running kernel; the command reaches its engine at ``free_ps``."""
        issue_ps = self._issue_ps
        if issue_ps:
            start_ps = self.issued_ps()
            self.free_ps = task.since_ps = start_ps + issue_ps
            task.span = self._recorder.span(self._name, ISSUE, start_ps, start_ps + issue_ps, task.span)
            self._waited_ps[ISSUE] += issue_ps

    def catch_up(self, task: Task, what: str = ISSUE) -> None:
        """Block the kernel until all its commands are issued."""
        if self.free_ps > self._engine.now_ps:
            self._engine.at(self.free_ps, task.resume)
            task.wait(what)

    def pause_until(self, task: Task, time_ps: Ps, what: str, *facts: object, since_ps: Ps | None = None) -> None:
        """Block the kernel until ``time_ps``. Record span ``what`` from ``since_ps``, or from the end of all issues."""
        start_ps = self.issued_ps() if since_ps is None else since_ps
        self.free_ps = task.since_ps = time_ps
        task.span = self._recorder.span(self._name, what, start_ps, time_ps, task.span, *facts)
        self._waited_ps[what] += time_ps - start_ps
        self.catch_up(task, what)

    def pause_for(self, task: Task, stall_ps: Ps, what: str, *facts: object) -> None:
        """Block the kernel for ``stall_ps`` after all its commands are issued."""
        self.pause_until(task, self.issued_ps() + stall_ps, what, *facts)

    def issued_ps(self) -> Ps:
        """Return the kernel's time: when all its commands are issued, but not before now."""
        now_ps = self._engine.now_ps
        return self.free_ps if self.free_ps > now_ps else now_ps
