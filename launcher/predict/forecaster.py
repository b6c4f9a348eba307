"""Forecaster, a separate process that predicts a run, and the text of a prediction for ``--dry-run``."""

import contextlib
import gc
import os
import resource
import select
import signal
import sys
import time

import msgspec

from launcher.predict.prediction import predict
from launcher.processes.fork_server import as_child, set_parent_death_signal, set_process_name
from launcher.report.progress import Prediction, estimate
from launcher.supervise.run import Run
from sipsim.core.forks import watched
from sipsim.core.units import format_time_ps
from sipsim.records.report import pss_mib

END = b"\n"
"""The last byte of the answer."""
LONGEST_S = 20.0
"""The most seconds of wall time and of CPU time of a prediction, which runs a user's, perhaps endless, kernels."""


class Forecaster:
    """Process that computes a prediction; the caller polls for the result.

    The process executes a user's kernels: output is discarded, and an endless kernel does not delay the run. The
    process is forked before the run's other processes, waits for a request, and exits with the launcher.

    ``started_s``: monotonic start of the command. ``is_beside_run``: whether the run uses the host at the same time.
    """

    def __init__(self, run: Run, started_s: float, is_beside_run: bool = True) -> None:
        self._answer, answer = os.pipe()
        request, self._request = os.pipe()
        self._received = b""
        self._prediction: Prediction | None = None
        self._has_ended = False
        parent, loaded_mib, began_s = os.getpid(), pss_mib(), time.monotonic() - started_s
        self._pid = os.fork()
        if self._pid == 0:
            # Kernels may start processes.
            os.setpgid(0, 0)
            set_parent_death_signal(parent, signal.SIGKILL)
            for end in (self._answer, self._request):
                os.close(end)
            as_child(lambda: _forecast(run, is_beside_run, began_s, loaded_mib, request, answer))
        for end in (request, answer):
            os.close(end)

    def ask(self) -> None:
        """Request the prediction; repeated requests have no effect."""
        with contextlib.suppress(OSError):
            os.write(self._request, b"?")

    def prediction(self, wait_s: float = 0.0) -> Prediction | None:
        """Wait up to ``wait_s`` seconds; return the prediction; None if not known yet or not possible."""
        deadline_s = time.monotonic() + wait_s
        while not self._has_ended and self._readable(max(deadline_s - time.monotonic(), 0.0)):
            part = os.read(self._answer, 65536)
            self._received += part
            if not part or part.endswith(END):
                # Processes that kernels have forked may keep the pipe open.
                self._has_ended = True
                self._prediction = _decoded(self._received)
        return self._prediction

    @property
    def is_pending(self) -> bool:
        """Whether a prediction may still arrive."""
        return not self._has_ended

    def close(self) -> None:
        """Kill the forecaster process and the processes that its kernels have started."""
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError):
                kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._answer)
        os.close(self._request)

    def _readable(self, wait_s: float) -> bool:
        return bool(select.select([self._answer], [], [], wait_s)[0])


def _forecast(run: Run, is_beside_run: bool, began_s: float, loaded_mib: float, request: int, answer: int) -> int:
    """Program of the forecaster process: wait for the request, predict, write the answer; return the exit code."""
    set_process_name("forecast")
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if not os.read(request, 1):
        return 0
    resource.setrlimit(resource.RLIMIT_CPU, (int(LONGEST_S), int(LONGEST_S)))
    gc.disable()
    with watched():
        prediction = predict(run, began_s, loaded_mib, is_beside_run)
    with open(answer, "wb") as pipe:
        if prediction is not None:
            pipe.write(msgspec.json.encode(prediction))
        pipe.write(END)
    return 0


def _decoded(data: bytes) -> Prediction | None:
    # The process may have been killed while it wrote.
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=Prediction)
    return None


def expectation(run: Run, started_s: float) -> str:
    """Return a line with a run's prediction, or the reason for none. ``started_s``: monotonic start of the command."""
    if run.job.script is not None:
        return "wall time and memory of a script are not known before the script runs"
    forecaster = Forecaster(run, started_s, is_beside_run=False)
    try:
        forecaster.ask()
        prediction, has_ended = forecaster.prediction(LONGEST_S), not forecaster.is_pending
    finally:
        forecaster.close()
    if not has_ended:
        return (
            f"no prediction: a short run had not ended after {LONGEST_S:g} s; if a kernel loops for ever, a run with "
            f"--progress-timeout 5 reports the kernel"
        )
    if prediction is None:
        return "no prediction: short runs do not apply, failed, or would take too long"
    return described(prediction, run.options.max_sim_ps)


def described(prediction: Prediction, limit_ps: int | None = None) -> str:
    """Return a prediction as text. ``limit_ps``: value of ``--max-sim-time``, None without a limit."""
    found = estimate(prediction, 0.0, 0, limit_ps)
    parts = [f"about {format_time_ps(found.total_ps)} of simulated time, by {prediction.source}"]
    if found.left_s is not None:
        parts.append(f"{_rounded(prediction.startup_s + found.left_s)} s of wall time")
    if prediction.memory_MiB:
        processes = "1 process" if prediction.processes == 1 else f"{prediction.processes} processes"
        parts.append(f"{round(prediction.memory_MiB)} MiB in {processes}")
    return "; ".join(parts)


def _rounded(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
