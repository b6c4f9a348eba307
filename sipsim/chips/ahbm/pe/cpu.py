"""PE_CPU: the core that runs a kernel, and its time for the commands that it issues.

It is an in-order core that does one thing at a time. A command costs ``pe_cpu.issue_ns`` (a descriptor is made and
handed over), and reaches its engine when that has passed; the next one is issued after that. The code of a kernel
between its commands takes no time: that is the limit of the model.

No event is spent on an issue where another one knows its end: an engine that ``starts_later`` is told when its command
reaches it, and a send is decided when its issue begins, and its bytes leave when it ends. Until then the kernel may go
on to its next command, which is issued after it.
"""

from sipsim.chips.ahbm.parts import SipParts
from sipsim.core.task import Task
from sipsim.core.units import ns_to_ps

Ps = int
ISSUE = "pe_cpu.issue"
"""The span of a command's issue."""
ROOM = "pe_scheduler.queue"
"""The span of the wait for a place in an engine's queue."""


class PeCpu:
    """PE_CPU of one PE, called ``name``. ``free_ps``: when it has issued what it was given so far."""

    def __init__(self, sip: SipParts, name: str) -> None:
        self._engine = sip.engine
        self._recorder = sip.recorder
        self._name = name
        self._waited_ps = sip.recorder.waited_ps[name]
        self._issue_ps = ns_to_ps(sip.plan.resolved.components.pe_cpu.issue_ns)
        self.free_ps: Ps = 0

    @property
    def is_free_of_cost(self) -> bool:
        """Whether commands cost no time here."""
        return not self._issue_ps

    def issue(self, task: Task) -> None:
        """Issue a command of the kernel that runs; it reaches its engine at ``free_ps``."""
        issue_ps = self._issue_ps
        if issue_ps:
            start_ps = self.issued_ps()
            self.free_ps = task.since_ps = start_ps + issue_ps
            task.span = self._recorder.span(self._name, ISSUE, start_ps, start_ps + issue_ps, task.span)
            self._waited_ps[ISSUE] += issue_ps

    def catch_up(self, task: Task, what: str = ISSUE) -> None:
        """Block the kernel until what it has given is issued."""
        if self.free_ps > self._engine.now_ps:
            self._engine.at(self.free_ps, task.resume)
            task.wait(what)

    def pause_until(self, task: Task, time_ps: Ps, what: str, *facts: object, since_ps: Ps | None = None) -> None:
        """Block the kernel until a time, for a reason that is the name of a span, and has blocked it ``since_ps``."""
        start_ps = self.issued_ps() if since_ps is None else since_ps
        self.free_ps = task.since_ps = time_ps
        task.span = self._recorder.span(self._name, what, start_ps, time_ps, task.span, *facts)
        self._waited_ps[what] += time_ps - start_ps
        self.catch_up(task, what)

    def pause_for(self, task: Task, stall_ps: Ps, what: str, *facts: object) -> None:
        """Block the kernel for a time, once it has issued what it gave before."""
        self.pause_until(task, self.issued_ps() + stall_ps, what, *facts)

    def issued_ps(self) -> Ps:
        """When it has issued what its kernel gave it, now at the soonest: the kernel's own time."""
        now_ps = self._engine.now_ps
        return self.free_ps if self.free_ps > now_ps else now_ps
