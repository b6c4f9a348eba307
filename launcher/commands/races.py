"""Command ``ahbm-races``: search for races in a host script, by runs with several seeds of jitter.

Jitter changes times and orders, and therefore the digest of a run. A program without races still ends and computes the
same results as without jitter.
"""

import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from launcher import options
from launcher.commands import until_stopped
from launcher.isolation import isolated
from launcher.options import USAGE_EXIT, ParserExit
from launcher.result.document import RunOutcome
from launcher.run.run import checked, run_checked
from sipsim.core.errors import ERROR_KINDS, AhbmError
from sipsim.core.units import format_time_ps


class SearchRun(NamedTuple):
    """Outcome of one run of the search. ``failure``: kind and message; empty after success. ``results``: hash of each
    result by rank and name. ``end_ps``: latest end of a rank. ``exit_code``: exit code that ``ahbm-launch`` would have.
    """

    failure: str
    results: Mapping[tuple[int, str], str]
    end_ps: int
    exit_code: int = 0


class Race(NamedTuple):
    """A race: ``seed`` of a run that differs from the run without jitter, and the difference as text."""

    seed: int
    what: str


def search_run(outcome: RunOutcome) -> SearchRun:
    """Return failure, result hashes and end time of a run, which the search compares, from the run's document."""
    error = outcome.error
    failure = "" if error is None else f"{error['kind']}: {error['message']}"
    results = {(row["rank"], name): sha for row in outcome.ranks for name, sha in row["results"].items()}
    end_ps = max((row["sim_end_ps"] for row in outcome.ranks), default=0)
    return SearchRun(failure, results, end_ps, outcome.exit_code)


def first_race(baseline: SearchRun, run: Callable[[int], SearchRun], seeds: Iterable[int]) -> Race | None:
    """Return the first seed whose run fails or whose results differ from those of ``baseline``; None without one."""
    for seed in seeds:
        what = difference(baseline, run(seed))
        if what:
            return Race(seed, what)
    return None


def difference(baseline: SearchRun, other: SearchRun) -> str:
    """Return how a run differs from the baseline: its failure or the names of results that differ; empty if equal."""
    if other.failure:
        return other.failure
    names = sorted({*baseline.results, *other.results})
    found = [f"{name} of rank {rank}" for rank, name in names if _sha(baseline, rank, name) != _sha(other, rank, name)]
    return f"different results: {', '.join(found)}" if found else ""


def _sha(run: SearchRun, rank: int, name: str) -> str | None:
    return run.results.get((rank, name))


SEEDS = "1-20"
MOST_SEEDS = 10_000
SLOWER, SLOWER_PS = 10, 10**9
"""Limit of the simulated time with jitter: ``SLOWER`` times the time without, plus 1 ms. A longer run hangs."""
STOPPED = "timeout: "
"""Prefix of the failure of a run that reached the limit."""
EXAMPLES = options.closing(
    "docs/tensix-guide.md",
    "ahbm-races --topology n300 my_script.py",
    "ahbm-races --seeds 20 --topology n300 my_script.py its own arguments",
    "ahbm-races --seeds 7-9 --topology t3000 --engine inproc my_script.py",
)
HELP = f"""usage: ahbm-races [--seeds N or A-B] [options of ahbm-launch] [--] script.py [script args]

Searches for races in a host script of chips wormhole and blackhole: runs the script without jitter, then once per seed
of jitter ({SEEDS}), and compares the results that the script declares with tt.declare_result; if the script declares no
results, the memories of workers and DRAM. Stops at the first seed whose run fails or has different results (exit code
{ERROR_KINDS["wrong_numbers"]}), and prints the command that repeats this run.
If the run without jitter fails, the exit code is that of ahbm-launch; for a mistake in the command line: {USAGE_EXIT}.

{EXAMPLES}"""
FORBIDDEN = {"jitter", *(name for name, flag in options.FLAGS.items() if flag.alone)}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0 if no race is found, the exit code of wrong numbers if a race is found, 2 for a
    mistake in the command line, or the exit code of ``ahbm-launch`` if the run without jitter fails.
    """
    arguments = sys.argv[1:] if argv is None else argv
    return until_stopped("ahbm-races", lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    try:
        seeds, rest = _seeds_of(arguments)
        _check(rest)
        return _search(seeds, rest)
    except ParserExit as usage:
        text = usage.text.replace("ahbm-launch:", "ahbm-races:", 1)
        print(text, file=sys.stderr if usage.exit_code else sys.stdout)
        return usage.exit_code
    except AhbmError as error:
        print(f"ahbm-races: {error}", file=sys.stderr)
        return error.exit_code


def _seeds_of(arguments: Sequence[str]) -> tuple[range, list[str]]:
    """Return the seeds of ``--seeds``, and the remaining arguments, which are for ``ahbm-launch``."""
    if arguments[:1] in (["-h"], ["--help"]):
        raise ParserExit(HELP, 0)
    text, rest = SEEDS, list(arguments)
    if rest[:1] == ["--seeds"]:
        text, rest = (rest[1] if len(rest) > 1 else ""), rest[2:]
    elif rest and rest[0].startswith("--seeds="):
        text, rest = rest[0].partition("=")[2], rest[1:]
    found = re.fullmatch("([0-9]{1,18})(?:-([0-9]{1,18}))?", text)
    if found is None:
        raise ParserExit(f"ahbm-races: --seeds {text!r}: write N for 1 to N, or A-B", USAGE_EXIT)
    first, last = (int(found[1]), int(found[2])) if found[2] else (1, int(found[1]))
    if not 0 <= last - first < MOST_SEEDS:
        raise ParserExit(f"ahbm-races: --seeds {text}: give at most {MOST_SEEDS} seeds, as A-B", USAGE_EXIT)
    return range(first, last + 1), rest


def _check(rest: list[str]) -> None:
    given = options.given_options(rest)
    for name, flag in given.items():
        if name in FORBIDDEN:
            raise ParserExit(f"ahbm-races: {flag}: is for single runs of ahbm-launch; leave the flag out", USAGE_EXIT)
    if "script" not in given:
        raise ParserExit("ahbm-races: the script is missing; see ahbm-races --help", USAGE_EXIT)


def _search(seeds: range, rest: list[str]) -> int:
    with isolated():
        # A chip without jitter is refused before anything runs.
        checked(options.parse([f"--jitter={seeds[0]}", *rest]), rest)
    baseline = _run(rest)
    if baseline.failure:
        print(f"ahbm-races: the script fails without jitter, too: {baseline.failure}", file=sys.stderr)
        return baseline.exit_code
    compared = ", ".join(dict.fromkeys(name for _, name in baseline.results)) or "nothing"
    print(f"without jitter: ok, ends at {format_time_ps(baseline.end_ps)}; compared: {compared}", flush=True)
    given = options.given_options(rest)
    limit = [] if "max_sim_ps" in given else [f"--max-sim-time={SLOWER * baseline.end_ps + SLOWER_PS}ps"]
    started: list[int] = []

    def run_with(seed: int) -> SearchRun:
        started.append(seed)
        return _run([f"--jitter={seed}", *limit, *rest])

    try:
        race = first_race(baseline, run_with, seeds)
    except KeyboardInterrupt:
        if len(started) > 1:
            print(f"seeds {started[0]} to {started[-2]}: the same; partial result")
        raise
    if race is None:
        print(f"seeds {seeds[0]} to {seeds[-1]}: the same")
        return 0
    _print_race(race, seeds, limit, rest)
    return ERROR_KINDS["wrong_numbers"]


def _print_race(race: Race, seeds: range, limit: list[str], rest: list[str]) -> None:
    if race.seed > seeds[0]:
        print(f"seeds {seeds[0]} to {race.seed - 1}: the same")
    print(f"seed {race.seed}: {race.what}")
    is_endless = race.what.startswith(STOPPED)
    print(f"again: {shlex.join(['ahbm-launch', '--jitter', str(race.seed), *(limit if is_endless else []), *rest])}")


def _run(argv: list[str]) -> SearchRun:
    """Make one run, in this process unless ``argv`` names another engine; the run's output is not shown.

    Raises:
        ConfigError: if a run with the flags in ``argv`` cannot start.
    """
    started_s = time.monotonic()
    argv = ["--engine=inproc", *argv]
    with isolated():
        outcome = run_checked(checked(options.parse(argv), argv), argv, started_s)
    if outcome.signal:
        # The run has handled the signal; raise it again to end the search.
        signal.raise_signal(outcome.signal)
    return search_run(outcome)


if __name__ == "__main__":
    sys.exit(main())
