"""The fit of costs of Tenstorrent chips to published rows, and how a fit does on tests that it has not seen.

* **Start.** A value comes from what the hardware has to do (``STARTS``), not from the chips' files: a hold-out that
  begins with values which saw all rows is worth nothing. It stays within a quarter and four times of that.
* **Rows** of a parameter are those that it can move, and of these a few cheap ones by ``Bench.effort``.
* **Loss**: logarithms of simulated over published, squared where small, by their size where great, so that a row which
  the model cannot meet does not pull. Rows published with 5 %, or as a range of that width, count four times; a row
  whose case fails counts as ten times too great.
* **Search**, one parameter after the other: it doubles or halves a value for as long as that costs less, then takes a
  golden section between half and twice of what it found, both on a logarithmic axis. Nothing is drawn at random.
* **Hold-out.** A test is what rows name so, together with their family. Tests of a family go to folds in turn, in the
  order of a digest of their names. For each fold the parameters are fitted from the start to the rows of the others.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from launcher.bench.base import Case
from launcher.bench.benches.ccl import CclCase
from launcher.bench.machine import LINKS
from launcher.bench.published import TO_REPRODUCE, Published
from sipsim.config.load import default_dir
from tenstorrent import report
from tenstorrent.compare import NEAR, Runner, Verdict, effort_of, run_of, summary, validate
from tenstorrent.mechanisms import RAW_LINKS
from tenstorrent.rows import CHIPS, Request, request_of

Values = dict[str, float]
"""By parameter, ``CHIP:KEY``: a key of ``configs/chips/CHIP.yaml``."""
STARTS: Values = {
    "wormhole:ethernet.copy_GBps": 16,  # a port of L1 has 16 B a cycle
    "wormhole:risc.noc_command_ns": 40,  # 40 cycles: eight registers of the NoC's interface are written
    "wormhole:risc.eth_command_ns": 25,  # four registers of a transmit queue are written, one is read
    "wormhole:risc.timer_ns": 20,  # two halves of the timer are read and stored
    "wormhole:data_mover.sender_visit_ns": 30,  # six loads and stores of 5 cycles: pointers, a counter, a flag
    "wormhole:fabric.copy_bytes": 1500,  # a MAC has the whole of an Ethernet packet before it sends
    "wormhole:fabric.mux_visit_ns": 100,  # a round of the loop and a NoC command
    "wormhole:fabric.costs.round_ns": 60,  # calls and branches of a loop over five channels, twelve instructions each
    "wormhole:fabric.costs.forward_ns": 40,  # a NoC command
    "wormhole:fabric.costs.completion_ns": 25,  # an Ethernet command
    "wormhole:ccl.launch_ns": 1000,  # a kernel loads some hundred arguments and stores them, and sets up
    "wormhole:ccl.skew_ns": 1000,  # a host writes to one chip after the other; a write over PCIe takes about 1 us
    "wormhole:ccl.page_ns": 40,  # a NoC command
    "wormhole:ccl.add_GBps": 21.3,  # 32 lanes of bf16; two loads and a store an addition
    # As many cycles of 1350 MHz, if nothing else is said.
    "blackhole:risc.noc_command_ns": 29.6,
    "blackhole:fabric.costs.round_ns": 44.4,
    "blackhole:fabric.costs.look_ns": 8.9,  # 12 cycles: two loads of L1, a comparison and a branch
    "blackhole:fabric.costs.send_ns": 18.5,  # 25 cycles: an Ethernet command
    "blackhole:fabric.costs.sent_ns": 14.8,  # 20 cycles: four loads and stores of pointers and counters
    "blackhole:fabric.costs.further_ns": 29.6,  # a NoC command
    "blackhole:fabric.costs.ack_ns": 33.3,  # 45 cycles: an Ethernet command, four loads and stores
    "blackhole:fabric.revisions.2025-03.costs.round_ns": 44.4,
    "blackhole:ccl.launch_ns": 740.7,
    "blackhole:ccl.skew_ns": 1000,
    "blackhole:ccl.page_ns": 29.6,
    "blackhole:ccl.add_GBps": 28.8,
    "blackhole:ccl.read_packets": 2,  # while one is sent, the next is read
    "blackhole:ccl.copier_bytes": 2**20,  # from about what fits into the L1 of one worker
}
LEAST = {"wormhole:ethernet.copy_GBps": 12.5, "blackhole:ccl.read_packets": 1}
"""What the configuration takes, where that is more than a quarter of the start."""
FACTOR = 4.0
FOLLOWERS = {
    "wormhole:fabric.costs.send_ns": "wormhole:risc.eth_command_ns",
    "wormhole:fabric.costs.sent_ns": "wormhole:risc.eth_command_ns",
    "wormhole:fabric.costs.credit_ns": "wormhole:risc.noc_command_ns",
    "wormhole:fabric.costs.further_ns": "wormhole:risc.noc_command_ns",
    **{
        f"blackhole:{key}": f"wormhole:{key}"
        for key in (
            "risc.eth_command_ns",
            "risc.timer_ns",
            "data_mover.sender_visit_ns",
            "fabric.copy_bytes",
            "fabric.mux_visit_ns",
        )
    },
    "blackhole:fabric.costs.credit_ns": "blackhole:fabric.costs.sent_ns",
    "blackhole:fabric.costs.forward_ns": "blackhole:risc.noc_command_ns",
    "blackhole:fabric.costs.completion_ns": "blackhole:fabric.costs.sent_ns",
}
"""Keys that have the value of a parameter; times of another chip at their own clock, in whole ns."""
FOLLOWERS |= {
    name.replace("fabric.costs", f"fabric.revisions.{revision}.costs"): FOLLOWERS.get(name, name)
    for revision in ("2025-03", "2025-11")
    for cost in ("look_ns", "send_ns", "sent_ns", "credit_ns", "forward_ns", "further_ns", "completion_ns")
    for name in (f"blackhole:fabric.costs.{cost}",)
}
FOLLOWERS["blackhole:fabric.revisions.2025-11.costs.round_ns"] = "blackhole:fabric.revisions.2025-03.costs.round_ns"
FASTER = 1350 / 1000
"""Blackhole's clock over Wormhole's."""
SECTIONS = {
    "": ("eth-bandwidth", "eth-ping", "ring-latency"),
    "fabric.": ("fabric-bandwidth", "fabric-latency"),
    "fabric.mux_visit_ns": ("fabric-mux",),
    "ccl.": ("ccl",),
}
"""In the order in which they are searched: the benches whose rows a key can move, by the longest prefix that fits."""
FEW = {
    "eth-bandwidth": (8, 2),
    "fabric-bandwidth": (4, 3),
    "fabric-latency": (6, 1),
    "fabric-mux": (4, 1),
    "ccl": (8, 3),
}
"""By bench: at most how many cases of a parameter, and of which part (a half, a third) of them; else all cases."""
LEAST_POOL = 2
LINE_RATE_BYTES = 2048
TIGHT = ("~5%", "530-620")
FAILED = math.log(10)
BATCH = 2
"""Runs, of which all are done before a try can end."""
STEP = 2.0
GOLDEN = (3 - math.sqrt(5)) / 2


def settings(values: Values) -> dict[str, tuple[str, ...]]:
    """As of ``--set``, by chip; followers move with their parameter, if it has a value."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in {**values, **followed(values)}.items():
        chip, key = name.split(":")
        shown = int(value) if float(value).is_integer() else value
        found[chip] = (*found.get(chip, ()), f"system.chip_params.{key}={shown}")
    return found


def followed(values: Values) -> Values:
    """The values of keys that follow these."""
    found = {}
    for name, leader in FOLLOWERS.items():
        if leader in values:
            is_slower = name.endswith("_ns") and name.split(":")[0] != leader.split(":")[0]
            found[name] = float(round(values[leader] / FASTER)) if is_slower else values[leader]
    return found


def in_file(name: str) -> float:
    """What the chip's file has."""
    chip, key = name.split(":")
    value: Any = yaml.safe_load((default_dir() / "chips" / f"{chip}.yaml").read_text(encoding="utf-8"))
    for part in key.split("."):
        value = value[part]
    return float(value)


def rounded(name: str, value: float) -> float:
    """Whole, of what is counted; else to a tenth."""
    return float(round(value)) if name.endswith(("bytes", "packets")) else round(value, 1)


def bounded(name: str, value: float) -> float:
    """Rounded, and within what may be tried."""
    least = max(rounded(name, STARTS[name] / FACTOR), LEAST.get(name, 0))
    return min(max(rounded(name, value), least), rounded(name, STARTS[name] * FACTOR))


def section_of(name: str) -> str:
    """Its prefix in ``SECTIONS``."""
    return max((prefix for prefix in SECTIONS if name.split(":")[1].startswith(prefix)), key=len)


def rows_for(name: str, rows: Iterable[Published]) -> list[Published]:
    """The rows that a parameter is searched over; keys of raw links over the fabric, if their chip has no other."""
    asked, section = [(row, request_of(row)) for row in rows], section_of(name)
    for prefix in (section,) if section else ("", "fabric."):
        benches = SECTIONS.get(prefix, ())
        own = [(row, asks) for row, asks in asked if asks.bench in benches and can_move(name, row, asks)]
        if own:
            break
    names = sorted({asks.bench for _, asks in own})
    return [row for bench in names for row in cheap([row for row, asks in own if asks.bench == bench], FEW.get(bench))]


def can_move(name: str, row: Published, request: Request) -> bool:
    """Whether a parameter changes a row of its section, and the line rate alone does not set it."""
    chip, key = name.split(":")
    case, is_one_way = request.case, row.family in RAW_LINKS and row.metric == "GB/s" and "bi_dir" not in row.test
    if case is None or request.chip != chip or (is_one_way and (row.nbytes or 0) >= LINE_RATE_BYTES):
        return False
    if isinstance(case, CclCase):
        return {
            "ccl.add_GBps": case.test in ("reduce_scatter", "all_reduce"),
            "ccl.skew_ns": case.calls == 1,
            "ccl.copier_bytes": sum(case.sizes) >= bounded(name, 0) * case.chips * case.links,
        }.get(key, True)
    revision = getattr(case, "revision", None)
    if revision is None or ".costs." not in key:
        return True
    own = f"fabric.revisions.{revision}.costs."
    if key.startswith("fabric.revisions."):
        return key.startswith(own)
    costs = {each: leader for each, leader in FOLLOWERS.items() if each.startswith(f"{chip}:{own}")}
    return not costs or name in costs.values()


def cheap(rows: Iterable[Published], few: tuple[int, int] | None) -> list[Published]:
    """The rows of few cases: of the part of them that takes least effort, evenly spread over bytes."""
    if few is None:
        return list(rows)
    found: dict[Case, list[Published]] = {}
    efforts: dict[Case, float] = {}
    for row in sorted(rows, key=lambda row: row.id):
        request = request_of(row)
        assert request.case is not None
        found.setdefault(request.case, []).append(row)
        efforts[request.case] = effort_of(request)
    cases, part = few
    by_effort = sorted(found, key=lambda case: efforts[case])
    pool = sorted(by_effort[: max(-(-len(found) // part), LEAST_POOL)], key=lambda case: sum(case.sizes))
    last, steps = len(pool) - 1, max(cases - 1, 1)
    chosen = pool if len(pool) <= cases else [pool[last * index // steps] for index in range(cases)]
    return [row for case in chosen for row in found[case]]


def loss(verdict: Verdict) -> float:
    """Of a row: the square of small logarithms, and twice the size of great ones in units of ``NEAR``."""
    error = verdict.error
    log = FAILED if error is None or error <= -1 else math.log(error + 1)
    weight = 4.0 if verdict.row.tolerance in TIGHT else 1.0
    return weight * 2 * NEAR**2 * (math.sqrt(1 + (log / NEAR) ** 2) - 1)


class Fit:
    """A fit of parameters to rows. ``values``: from the start on; ``rows``: by parameter, what it is searched over;
    ``evaluations``: how many costs were asked for; ``runs``: cases that were simulated for it, and not known before.
    """

    def __init__(self, names: Iterable[str], rows: Sequence[Published], runner: Runner) -> None:
        self.values = {name: float(STARTS[name]) for name in names}
        self.rows = {name: rows_for(name, rows) for name in self.values}
        self.evaluations = self.runs = 0
        self._runner = runner
        self._losses: dict[str, float] = {}

    def run(self, probes: int, sweeps: int = 1) -> "Fit":
        """Search section by section, of one chip after the other. ``probes``: of the golden section, for each
        parameter. ``sweeps``: how often all are doubled or halved; what the first ones became depends on the last.
        """
        before = self._runner.runs
        for chip in LINKS:
            for section in SECTIONS:
                own = [name for name in self.values if (name.split(":")[0], section_of(name)) == (chip, section)]
                own = [name for name in own if self.rows[name]]
                for name in own * sweeps:
                    self._double_or_halve(name)
                for name in own:
                    self._refine(name, probes)
        self.runs = self._runner.runs - before
        return self

    def document(self) -> dict[str, Any]:
        """For machines."""
        rows = {name: [row.id for row in own] for name, own in self.rows.items()}
        return {"values": self.values, "evaluations": self.evaluations, "runs": self.runs, "rows": rows}

    def cost(self, name: str, value: float, limit: float = math.inf) -> float:
        """With that value, over the parameter's rows; infinite as soon as it is not below ``limit``.

        The runs with the worst rows come first, so that a bad try ends early.
        """
        self.evaluations += 1
        runs: dict[object, list[Published]] = {}
        for row in self.rows[name]:
            runs.setdefault(run_of(request_of(row)), []).append(row)
        worst = sorted(runs.values(), key=lambda run: -sum(self._losses.get(row.id, 0.0) for row in run))
        found: dict[str, float] = {}
        for first in range(0, len(worst), BATCH):
            batch = [row for run in worst[first : first + BATCH] for row in run]
            judged = validate(batch, settings({**self.values, name: value}), self._runner)
            found.update((each.row.id, loss(each)) for each in judged)
            if math.fsum(found.values()) >= limit:
                return math.inf
        self._losses.update(found)
        # The order of the runs changes from try to try, and the sum must not.
        return math.fsum(found.values())

    def _double_or_halve(self, name: str) -> None:
        start = best = self.values[name]
        least = self.cost(name, best)
        for factor in (1 / STEP, STEP):
            while (tried := bounded(name, best * factor)) != best and (cost := self.cost(name, tried, least)) < least:
                best, least = tried, cost
            if best != start:
                break
        self.values[name] = best

    def _refine(self, name: str, probes: int) -> None:
        best = self.values[name]
        cost, low, high = self.cost(name, best), bounded(name, best / STEP), bounded(name, best * STEP)
        for _ in range(probes):
            end = high if math.log(high / best) >= math.log(best / low) else low
            tried = rounded(name, best * (end / best) ** GOLDEN)
            if tried in (best, end):
                break
            found = self.cost(name, tried, cost)
            outer = tried
            if found < cost:
                best, cost, outer = tried, found, best
            low, high = (outer, high) if outer < best else (low, outer)
        self.values[name] = best


class Fold(NamedTuple):
    """The tests that were left out, each its family and its name, the fit without them, and what it gives for them."""

    tests: list[tuple[str, str]]
    fit: Fit
    verdicts: list[Verdict]


def folds(rows: Sequence[Published], count: int) -> list[list[Published]]:
    """The rows in ``count`` folds; all rows of a test are in one."""
    digests = {test: hashlib.sha256("/".join(test).encode()).hexdigest() for test in map(_test, rows)}
    tests = sorted(digests, key=lambda test: (test[0], digests[test]))
    where = {test: number % count for number, test in enumerate(tests)}
    return [[row for row in rows if where[_test(row)] == fold] for fold in range(count)]


def _test(row: Published) -> tuple[str, str]:
    return row.family, row.test


def hold_out(
    names: Sequence[str], rows: Iterable[Published], count: int, runner: Runner, probes: int, sweeps: int = 1
) -> Iterator[Fold]:
    """Each fold, when it is judged. Rows that are not to be reproduced are in none."""
    wanted = [row for row in rows if row.kind == TO_REPRODUCE and row.architecture in CHIPS]
    for left_out in folds(wanted, count):
        tests = set(map(_test, left_out))
        found = Fit(names, [row for row in wanted if _test(row) not in tests], runner).run(probes, sweeps)
        yield Fold(sorted(tests), found, validate(left_out, settings(found.values), runner))


def by_architecture(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each architecture, and of all."""
    names = sorted({each.row.architecture for each in verdicts})
    return {name: [each for each in verdicts if each.row.architecture == name] for name in names} | {"all": [*verdicts]}


def document(found: Sequence[Fold]) -> dict[str, Any]:
    """A hold-out for machines: summaries by architecture, and for each fold its tests, fit and rows."""
    every = [each for fold in found for each in fold.verdicts]
    return {
        "summary": {name: summary(own)._asdict() for name, own in by_architecture(every).items()},
        "folds": [
            {"tests": fold.tests, **fold.fit.document(), "held_out": report.document(fold.verdicts)["rows"]}
            for fold in found
        ],
    }
