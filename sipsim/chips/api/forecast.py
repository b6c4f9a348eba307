"""What a job will take, as it is known before the job runs: commands, and simulated time where nothing contends."""

import msgspec

Ps = int
STEPS = 64
"""Points of the curve from commands that have ended to simulated time."""


class SizeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration of one size on all SIPs. ``counts``: commands by kind, ``commands`` their sum.

    ``duration_ps``: simulated time without contention; ``curve_ps``: when each ``STEPS``-th part of the commands has
    ended, from 0 to ``duration_ps``. ``nbytes``: of a rank's tensors; ``elements``: of its source.
    """

    n_elem: int
    nbytes: int
    elements: int
    counts: dict[str, int]
    commands: int
    duration_ps: Ps
    curve_ps: tuple[Ps, ...]

    def time_ps(self, commands: int) -> Ps:
        """The simulated time at which so many of its commands have ended."""
        step, rest = divmod(commands * STEPS, self.commands)
        low_ps, high_ps = self.curve_ps[step], self.curve_ps[min(step + 1, STEPS)]
        return low_ps + (high_ps - low_ps) * rest // self.commands


class JobForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in their order, each ``iterations`` times; ``gap_ps``: between the end of one and the start of the next."""

    sizes: tuple[SizeForecast, ...]
    iterations: int
    gap_ps: Ps

    @property
    def commands(self) -> int:
        """Of the whole job."""
        return self.iterations * sum(size.commands for size in self.sizes)

    @property
    def duration_ps(self) -> Ps:
        """Simulated time of the whole job, without contention."""
        runs = self.iterations * len(self.sizes)
        return self.iterations * sum(size.duration_ps for size in self.sizes) + max(runs - 1, 0) * self.gap_ps

    def time_ps(self, commands: int) -> Ps:
        """The simulated time at which so many commands have ended."""
        start_ps = 0
        for size in self.sizes:
            whole = size.commands * self.iterations
            if commands < whole:
                done, left = divmod(commands, size.commands)
                return start_ps + done * (size.duration_ps + self.gap_ps) + size.time_ps(left)
            commands -= whole
            start_ps += self.iterations * (size.duration_ps + self.gap_ps)
        return self.duration_ps
