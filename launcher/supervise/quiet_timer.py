"""How long a run has made no progress, by checks that come again and again. Pure."""


class QuietTimer:
    """``step_s``: the most that counts between two checks: after a longer gap the process itself was suspended."""

    def __init__(self, step_s: float, now_s: float) -> None:
        self._step_s = step_s
        self._last_s = now_s
        self._progress: object = None
        self.quiet_s = 0.0

    def check(self, progress: object, now_s: float) -> float:
        """Seconds since ``progress`` was another value than now."""
        passed_s, self._last_s = min(max(now_s - self._last_s, 0.0), self._step_s), now_s
        self.quiet_s = self.quiet_s + passed_s if progress == self._progress else 0.0
        self._progress = progress
        return self.quiet_s
