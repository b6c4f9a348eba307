"""How long a process has spent without progress, by samples of it that come again and again. Pure."""

from collections.abc import Mapping

from launcher.processes.this_host.process_state import ProcessState

STEP_S = 2.0
"""Samples are due each second."""


class QuietTimer:
    """Counts what ``ProcessState.spent_since`` tells: a loaded host does not shorten a deadline for those who compute.

    ``step_s``: the most that counts between two samples: after a longer gap whoever takes them was suspended.
    ``waited_s``: how long it had no processor meanwhile.
    """

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._last: ProcessState | None = None
        self.quiet_s = self.waited_s = 0.0

    def note(self, state: ProcessState) -> None:
        """Take a sample of the process."""
        if self._last is not None:
            spent_s = state.spent_since(self._last)
            self.quiet_s += min(spent_s, self._step_s)
            self.waited_s += max(state.at_s - self._last.at_s - spent_s, 0.0)
        self._last = state

    def moved(self, ago_s: float = 0.0) -> None:
        """The process has made its last progress ``ago_s`` ago."""
        self.quiet_s = min(self.quiet_s, ago_s)
        self.waited_s = min(self.waited_s, ago_s - self.quiet_s)


def note_samples(timers: Mapping[str, QuietTimer], states: Mapping[str, ProcessState], clock_s: float) -> None:
    """Take the samples of several processes, by name.

    Of one that no host tells anything of, such as one that was started by hand, the clock is known.
    """
    unknown = ProcessState("", 0.0, 0.0, clock_s)
    for name, timer in timers.items():
        timer.note(states.get(name, unknown))
