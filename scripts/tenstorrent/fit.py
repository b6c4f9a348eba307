"""The fit of costs of Tenstorrent chips to published rows, and how a fit does on tests that it has not seen.

* **Parameters** are the keys of the chips' files whose source says so. ``fitted...``: a parameter. ``as KEY``,
  ``SECTION.KEY: why`` and ``the fabric's``: it follows that key, which may follow another. ``assumption: as Wormhole``
  and ``assumption: Wormhole's at the faster clock``: it follows the same key of Wormhole, there at its clock.
* **Start.** A value for each parameter comes from what the hardware has to do, and stays as it is when a fit has found
  another: a hold-out that begins with values which saw all rows is worth nothing. A store or load of L1 or of a
  register is taken as 5 cycles, Wormhole's ``risc.l1_access_ns``.
* **Rows** that a parameter is searched over are those that it can move, and of these a few cheap ones by
  ``Bench.effort``: raw links for the parameters of links, the fabric for those of routers, operations for those of
  operations; of a chip without rows of raw links, the fabric.
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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from launcher.bench.base import Case
from launcher.bench.benches.ccl import CclCase
from launcher.bench.machine import LINKS
from launcher.bench.published import TO_REPRODUCE, Published
from sipsim.config.load import default_dir
from sipsim.core.errors import ConfigError
from tenstorrent import report
from tenstorrent.compare import NEAR, Runner, Verdict, effort_of, run_of, summary, validate
from tenstorrent.mechanisms import RAW_LINKS
from tenstorrent.rows import CHIPS, request_of

BYTES_A_CYCLE, CYCLES, PLAIN = "bytes a cycle", "cycles", "plain"


class Neutral(NamedTuple):
    """``amount``: in cycles of the chip's clock, in bytes a cycle, or as the parameter has it; ``reason``: whence.
    ``least``: in the parameter's own unit, what the configuration takes.
    """

    amount: float
    of: str
    reason: str
    least: float = 0.0

    def value(self, clock_MHz: float) -> float:
        """In the parameter's own unit: ns, GB/s, or what it counts."""
        if self.of == CYCLES:
            return self.amount * 1000 / clock_MHz
        return self.amount * clock_MHz / 1000 if self.of == BYTES_A_CYCLE else self.amount


NEUTRAL = {
    "ethernet.copy_GBps": Neutral(16, BYTES_A_CYCLE, "a port of L1 has 16 B a cycle", 12.5),
    "risc.noc_command_ns": Neutral(40, CYCLES, "eight registers of the NoC's interface are written"),
    "risc.eth_command_ns": Neutral(25, CYCLES, "four registers of a transmit queue are written, one is read"),
    "risc.timer_ns": Neutral(20, CYCLES, "two halves of the timer are read and stored"),
    "data_mover.sender_visit_ns": Neutral(30, CYCLES, "six loads and stores: pointers, a counter, a flag"),
    "fabric.copy_bytes": Neutral(1500, PLAIN, "a MAC has the whole of an Ethernet packet before it sends"),
    "fabric.mux_visit_ns": Neutral(100, CYCLES, "a round of the loop and a NoC command"),
    "costs.round_ns": Neutral(60, CYCLES, "calls and branches of a loop over five channels, twelve instructions each"),
    "costs.look_ns": Neutral(12, CYCLES, "two loads of L1, a comparison and a branch"),
    "costs.send_ns": Neutral(25, CYCLES, "an Ethernet command"),
    "costs.sent_ns": Neutral(20, CYCLES, "four loads and stores: pointers and counters"),
    "costs.forward_ns": Neutral(40, CYCLES, "a NoC command"),
    "costs.further_ns": Neutral(40, CYCLES, "a NoC command"),
    "costs.completion_ns": Neutral(25, CYCLES, "an Ethernet command"),
    "costs.ack_ns": Neutral(45, CYCLES, "an Ethernet command, four loads and stores"),
    "ccl.launch_ns": Neutral(1000, CYCLES, "a kernel loads some hundred arguments and stores them, and sets up"),
    "ccl.skew_ns": Neutral(
        1000, PLAIN, "a host writes to one chip after the other; a write over PCIe takes about 1 us"
    ),
    "ccl.page_ns": Neutral(40, CYCLES, "a NoC command"),
    "ccl.add_GBps": Neutral(64 / 3, BYTES_A_CYCLE, "32 lanes of bf16; two loads and a store an addition"),
    "ccl.read_packets": Neutral(2, PLAIN, "while one is sent, the next is read"),
    "ccl.copier_bytes": Neutral(2**20, PLAIN, "from about what fits into the L1 of one worker"),
}
"""By the last two parts of a key: a revision's own costs begin as the fabric's."""


def neutral(key: str) -> Neutral:
    """What a key of a chip's file begins with.

    Raises:
        KeyError: for a key that has none; it is to be added above, with its reason.
    """
    return NEUTRAL[".".join(key.split(".")[-2:])]


FIRST = "wormhole"
"""The chip that others follow."""
WHOLE_UNITS = ("bytes", "packets")
FACTOR = 4.0
"""A value is at least the neutral one divided by this, and at most that times this."""
Values = dict[str, float]
"""By name: ``CHIP:KEY``."""
_COMMENT = re.compile(r"  # \[([^\]]*)\] source: (.*)$")
_AT_ITS_CLOCK, _SAME = "Wormhole's at the faster clock", "as Wormhole"


class Key(NamedTuple):
    """A line of a chip's file that has a value: its path, unit and source; ``text``: the value, "" for a list."""

    chip: str
    path: tuple[str, ...]
    text: str
    unit: str
    source: str

    @property
    def key(self) -> str:
        """As of ``--set``, behind ``system.chip_params.``."""
        return ".".join(self.path)

    @property
    def name(self) -> str:
        """With its chip."""
        return f"{self.chip}:{self.key}"


class Parameter(NamedTuple):
    """``start``: the neutral value; values are searched from ``least``, not below ``floor``, to ``most``."""

    key: Key
    start: float
    floor: float = 0.0

    @property
    def name(self) -> str:
        """``CHIP:KEY``."""
        return self.key.name

    @property
    def least(self) -> float:
        """The lower bound, a value of its own."""
        smallest = 1.0 if self.key.unit in WHOLE_UNITS else 0.1
        return max(self.rounded(self.start / FACTOR), smallest, self.floor)

    @property
    def most(self) -> float:
        """The upper bound."""
        return self.rounded(self.start * FACTOR)

    def rounded(self, value: float) -> float:
        """Whole, of what is counted; else to a tenth."""
        return float(round(value)) if self.key.unit in WHOLE_UNITS else round(value, 1)


class Follower(NamedTuple):
    """A key that has the value of a parameter, times ``factor``, then in whole numbers."""

    key: Key
    leader: str
    factor: float

    def value(self, values: Values) -> float:
        """Its own."""
        return values[self.leader] if self.factor == 1 else float(round(values[self.leader] * self.factor))


class Model(NamedTuple):
    """All that a fit can move."""

    parameters: tuple[Parameter, ...]
    followers: tuple[Follower, ...]

    @property
    def neutral(self) -> dict[str, float]:
        """Where a fit begins."""
        return {each.name: each.start for each in self.parameters}

    @property
    def chosen(self) -> dict[str, float]:
        """What the chips' files have."""
        return {each.name: float(each.key.text) for each in self.parameters}

    def settings(self, values: Values) -> dict[str, tuple[str, ...]]:
        """As of ``--set``, by chip; followers move with their parameter, if it has a value."""
        own = [(each.key, values[each.name]) for each in self.parameters if each.name in values]
        own += [(each.key, each.value(values)) for each in self.followers if each.leader in values]
        found: dict[str, tuple[str, ...]] = {}
        for key, value in own:
            shown = int(value) if float(value).is_integer() else value
            found[key.chip] = (*found.get(key.chip, ()), f"system.chip_params.{key.key}={shown}")
        return found


def project_model(chips: Iterable[str] = LINKS) -> Model:
    """Of the chips' files of the project.

    Raises:
        ConfigError: for a source that follows a key that is not there, or a parameter without a neutral value.
    """
    folder = default_dir() / "chips"
    return model([key for chip in chips for key in read_keys(chip, (folder / f"{chip}.yaml"))])


def read_keys(chip: str, path: Path) -> list[Key]:
    """The keys of a chip's file that have a value and, in the same line, its unit and source."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    return [
        Key(chip, where, value, found[1], found[2])
        for where, value, number in _leaves(yaml.compose(text, Loader=yaml.SafeLoader), ())
        if (found := _COMMENT.search(lines[number]))
    ]


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    for key, value in node.value:
        where = (*path, key.value)
        if isinstance(value, yaml.MappingNode):
            yield from _leaves(value, where)
        elif value.tag != "tag:yaml.org,2002:null":
            yield where, value.value if isinstance(value, yaml.ScalarNode) else "", key.start_mark.line


def model(keys: Iterable[Key]) -> Model:
    """Of the keys of all chips.

    Raises:
        ConfigError: as of :func:`project_model`.
    """
    known = {(key.chip, key.path): key for key in keys}
    parameters = tuple(_parameter(key, known) for key in known.values() if _is_fitted(key))
    followers = (_follower(key, known) for key in known.values() if not _is_fitted(key))
    return Model(parameters, tuple(each for each in followers if each is not None))


Known = Mapping[tuple[str, tuple[str, ...]], Key]


def _is_fitted(key: Key) -> bool:
    return key.source.startswith("fitted")


def _parameter(key: Key, known: Known) -> Parameter:
    try:
        found = neutral(key.key)
    except KeyError:
        raise ConfigError(f"{key.name}: fitted, but without a neutral value in scripts/tenstorrent/fit.py") from None
    bare = Parameter(key, found.value(_clock_MHz(key.chip, known)), found.least)
    return bare._replace(start=bare.rounded(bare.start))


def _clock_MHz(chip: str, known: Known) -> float:
    return float(known[chip, ("clock_MHz",)].text)


def _follower(key: Key, known: Known) -> Follower | None:
    """None for a key that follows none, or one that is not fitted."""
    factor, leader, seen = 1.0, key, {key}
    while not _is_fitted(leader):
        found = _leader(leader, known)
        if found is None:
            return None
        if found in seen:
            raise ConfigError(f"{key.name}: follows itself")
        if _AT_ITS_CLOCK in leader.source:
            factor *= _clock_MHz(FIRST, known) / _clock_MHz(leader.chip, known)
        leader = found
        seen.add(found)
    return Follower(key, leader.name, factor)


def _leader(key: Key, known: Known) -> Key | None:
    """The key that a source names; None if it names none."""
    said = key.source.removeprefix("assumption: ")
    if key.chip != FIRST and said.startswith((_AT_ITS_CLOCK, _SAME)):
        return known.get((FIRST, key.path))
    found = re.match(r"([a-z_]+(?:\.\w+)+):", said)
    if found and any(chip == key.chip and path[0] == found[1].split(".")[0] for chip, path in known):
        named = found[1]
    elif said.startswith("the fabric's"):
        named = f"fabric.costs.{key.path[-1]}"
    elif found := re.match(r"as ([\w.-]*\w)", key.source):
        named = found[1]
    else:
        return None
    for path in _readings(key.path, tuple(named.split("."))):
        if (key.chip, path) in known:
            return known[key.chip, path]
    raise ConfigError(f"{key.name}: its source says {key.source!r}; there is no key {named}")


def _readings(path: tuple[str, ...], named: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The keys that a name may mean, the nearest first: a key, or a section that has the rest of the path, too."""
    for depth in reversed(range(len(path))):
        yield *path[:depth], *named
        yield *path[:depth], *named, *path[depth + 1 :]


STEP = 2.0
GOLDEN = (3 - math.sqrt(5)) / 2
Cost = Callable[[str, Values, float], float]
"""Of values, over all that the named one can move; at or above the limit, anything that is not below it."""


class Point(NamedTuple):
    """A value and its cost."""

    value: float
    cost: float


def searched(start: Values, parameters: Sequence[Parameter], cost: Cost, probes: int, sweeps: int = 1) -> Values:
    """The values that were found, from ``start`` on. ``probes``: of the golden section, for each parameter. ``sweeps``:
    how often all are doubled or halved, one after the other; what the first ones became depends on the last ones.
    """
    values = dict(start)
    for parameter in [*parameters] * sweeps:
        values[parameter.name] = _bracketed(parameter, values, cost).value
    for parameter in parameters:
        values[parameter.name] = _refined(parameter, values, cost, probes).value
    return values


def _bracketed(parameter: Parameter, values: Values, cost: Cost) -> Point:
    start = best = _point(parameter, values, values[parameter.name], cost, math.inf)
    for factor in (1 / STEP, STEP):
        while True:
            tried = _bounded(parameter, best.value * factor)
            point = best if tried == best.value else _point(parameter, values, tried, cost, best.cost)
            if point.cost >= best.cost:
                break
            best = point
        if best != start:
            break
    return best


def _refined(parameter: Parameter, values: Values, cost: Cost, probes: int) -> Point:
    best = _point(parameter, values, values[parameter.name], cost, math.inf)
    least, most = (_bounded(parameter, best.value * factor) for factor in (1 / STEP, STEP))
    for _ in range(probes):
        end = most if math.log(most / best.value) >= math.log(best.value / least) else least
        tried = parameter.rounded(best.value * (end / best.value) ** GOLDEN)
        if tried in (best.value, end):
            break
        point = _point(parameter, values, tried, cost, best.cost)
        inner, outer = (best, point) if point.cost >= best.cost else (point, best)
        if inner is point:
            least, most = (outer.value, most) if end == most else (least, outer.value)
        else:
            least, most = (least, outer.value) if end == most else (outer.value, most)
        best = inner
    return best


def _bounded(parameter: Parameter, value: float) -> float:
    return min(max(parameter.rounded(value), parameter.least), parameter.most)


def _point(parameter: Parameter, values: Values, value: float, cost: Cost, limit: float) -> Point:
    return Point(value, cost(parameter.name, {**values, parameter.name: value}, limit))


SECTIONS = {
    "": ("eth-bandwidth", "eth-ping", "ring-latency"),
    "fabric.": ("fabric-bandwidth", "fabric-latency"),
    "fabric.mux_visit_ns": ("fabric-mux",),
    "ccl.": ("ccl",),
}
"""In the order in which they are searched: the benches whose rows a key can move, by the longest prefix that fits."""
WITHOUT_RAW_LINKS = "fabric."
"""The section whose benches stand for raw links, where a chip has no rows of those."""


def _adds(parameter: Parameter, case: CclCase) -> bool:
    return case.test in ("reduce_scatter", "all_reduce")


def _is_one_call(parameter: Parameter, case: CclCase) -> bool:
    return case.calls == 1


def _has_slices_to_copy(parameter: Parameter, case: CclCase) -> bool:
    return sum(case.sizes) >= parameter.least * case.chips * case.links


CONDITIONS: dict[str, Callable[[Parameter, CclCase], bool]] = {
    "ccl.add_GBps": _adds,
    "ccl.skew_ns": _is_one_call,
    "ccl.copier_bytes": _has_slices_to_copy,
}
"""Which operations a key of them can move; all of others."""


class Few(NamedTuple):
    """``cases``: at most so many for a parameter, from the cheapest ``1 / part`` of them, but from two at least."""

    cases: int
    part: int


FEW = {
    "eth-bandwidth": Few(8, 2),
    "fabric-bandwidth": Few(4, 3),
    "fabric-latency": Few(6, 1),
    "fabric-mux": Few(4, 1),
    "ccl": Few(8, 3),
}
"""By bench; of others all cases."""
LEAST_POOL = 2
LINE_RATE_BYTES = 2048
_REVISION = re.compile(r"fabric\.revisions\.(.+)\.costs\.\w+")


def section_of(parameter: Parameter) -> str:
    """Its prefix in ``SECTIONS``."""
    return max((prefix for prefix in SECTIONS if parameter.key.key.startswith(prefix)), key=len)


def rows_for(parameter: Parameter, model: Model, rows: Iterable[Published]) -> list[Published]:
    """The rows that a parameter is searched over."""
    known, section = list(rows), section_of(parameter)
    movable = _movable(parameter, model, known, section)
    if not movable and not section:
        movable = _movable(parameter, model, known, WITHOUT_RAW_LINKS)
    benches = sorted({request_of(row).bench for row in movable})
    own = {bench: [row for row in movable if request_of(row).bench == bench] for bench in benches}
    return [row for bench in benches for row in cheap(own[bench], FEW.get(bench))]


def _movable(parameter: Parameter, model: Model, rows: Iterable[Published], section: str) -> list[Published]:
    return [row for row in rows if can_move(parameter, model, row, section) and not _is_line_rate(row)]


def can_move(parameter: Parameter, model: Model, row: Published, section: str) -> bool:
    """Whether a parameter is searched over a row of a section, if it is cheap."""
    request = request_of(row)
    if request.case is None or request.chip != parameter.key.chip:
        return False
    if request.bench not in SECTIONS[section]:
        return False
    case = request.case
    condition = CONDITIONS.get(parameter.key.key)
    if condition and isinstance(case, CclCase):
        return condition(parameter, case)
    return _has_cost(parameter, model, case)


def _has_cost(parameter: Parameter, model: Model, case: Case) -> bool:
    """Costs of routers: whether the revision of a case has it, or the fabric's."""
    revision = getattr(case, "revision", None)
    if revision is None or ".costs." not in parameter.key.key:
        return True
    if found := _REVISION.fullmatch(parameter.key.key):
        return bool(found[1] == revision)
    prefix = f"{parameter.key.chip}:fabric.revisions.{revision}.costs."
    owned = [each.leader for each in model.followers if each.key.name.startswith(prefix)]
    owned += [each.name for each in model.parameters if each.name.startswith(prefix)]
    return not owned or parameter.name in owned


def _is_line_rate(row: Published) -> bool:
    """Whether the line rate alone sets it: bandwidth of raw links in one direction, of long messages."""
    is_one_way = row.family in RAW_LINKS and row.metric == "GB/s" and "bi_dir" not in row.test
    return is_one_way and (row.nbytes or 0) >= LINE_RATE_BYTES


def cheap(rows: Sequence[Published], few: Few | None) -> list[Published]:
    """The rows of few cases: of the part of them that takes least effort, evenly spread over bytes."""
    if few is None:
        return list(rows)
    found: dict[Case, list[Published]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        found.setdefault(_case(row), []).append(row)
    by_effort = sorted(found, key=lambda case: _effort(found[case][0]))
    pool = sorted(by_effort[: max(-(-len(found) // few.part), LEAST_POOL)], key=lambda case: sum(case.sizes))
    last, steps = len(pool) - 1, max(few.cases - 1, 1)
    chosen = pool if len(pool) <= few.cases else [pool[last * index // steps] for index in range(few.cases)]
    return [row for case in chosen for row in found[case]]


def _case(row: Published) -> Case:
    case = request_of(row).case
    assert case is not None
    return case


def _effort(row: Published) -> float:
    return effort_of(request_of(row))


TIGHT = ("~5%", "530-620")
FAILED = math.log(10)
BATCH = 2
"""Runs, of which all are done before a try can end."""


def weight(row: Published) -> float:
    """How much a row counts."""
    return 4.0 if row.tolerance in TIGHT else 1.0


def loss(verdict: Verdict) -> float:
    """Of a row: the square of small logarithms, and twice the size of great ones in units of ``NEAR``."""
    error = verdict.error
    log = FAILED if error is None or error <= -1 else math.log(error + 1)
    return weight(verdict.row) * 2 * NEAR**2 * (math.sqrt(1 + (log / NEAR) ** 2) - 1)


class Objective:
    """The cost of values over rows. ``evaluations``: how many costs were asked for."""

    def __init__(self, model: Model, rows: Iterable[Published], runner: Runner) -> None:
        known = list(rows)
        self.evaluations = 0
        self.rows = {each.name: rows_for(each, model, known) for each in model.parameters}
        self._model, self._runner = model, runner
        self._losses: dict[str, float] = {}

    def cost(self, name: str, values: Values, limit: float) -> float:
        """Over the rows that a parameter is searched over; infinite as soon as it is not below ``limit``.

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
            judged = validate(batch, self._model.settings(values), self._runner)
            found.update((each.row.id, loss(each)) for each in judged)
            if math.fsum(found.values()) >= limit:
                return math.inf
        self._losses.update(found)
        # The order of the runs changes from try to try, and the sum must not.
        return math.fsum(found.values())


Test = tuple[str, str]
"""Its family and its name."""


class Fit(NamedTuple):
    """``evaluations``: of values. ``runs``: cases that were simulated for it, and not known before. ``rows``: by
    parameter, the ids of the rows that it was searched over."""

    values: Values
    evaluations: int
    runs: int
    rows: dict[str, list[str]]


class Fold(NamedTuple):
    """The tests that were left out, the fit without them, and what it gives for them."""

    tests: list[Test]
    fit: Fit
    verdicts: list[Verdict]


def fit(model: Model, start: Values, rows: Iterable[Published], runner: Runner, probes: int, sweeps: int = 1) -> Fit:
    """The values that rows ask for; section by section, of one chip after the other. ``probes``, ``sweeps``: as of
    :func:`~tenstorrent.fit.searched`.
    """
    ran, objective = runner.runs, Objective(model, rows, runner)
    values = dict(start)
    for chip in dict.fromkeys(each.key.chip for each in model.parameters):
        for section in SECTIONS:
            own = [each for each in model.parameters if (each.key.chip, section_of(each)) == (chip, section)]
            movable = [each for each in own if objective.rows[each.name]]
            values = searched(values, movable, objective.cost, probes, sweeps)
    shown = {name: [row.id for row in own] for name, own in objective.rows.items()}
    return Fit(values, objective.evaluations, runner.runs - ran, shown)


def folds(rows: Sequence[Published], count: int) -> list[list[Published]]:
    """The rows in ``count`` folds; all rows of a test are in one."""
    tests = sorted({(row.family, row.test) for row in rows}, key=lambda test: (test[0], _digest(test)))
    where = {test: number % count for number, test in enumerate(tests)}
    return [[row for row in rows if where[row.family, row.test] == fold] for fold in range(count)]


def _digest(test: Test) -> str:
    return hashlib.sha256("/".join(test).encode()).hexdigest()


def hold_out(
    model: Model, rows: Sequence[Published], count: int, runner: Runner, probes: int, sweeps: int = 1
) -> Iterator[Fold]:
    """Each fold, when it is judged. Rows that are not to be reproduced are in none."""
    wanted = [row for row in rows if row.kind == TO_REPRODUCE and row.architecture in CHIPS]
    for left_out in folds(wanted, count):
        ids = {row.id for row in left_out}
        found = fit(model, model.neutral, [row for row in wanted if row.id not in ids], runner, probes, sweeps)
        tests = sorted({(row.family, row.test) for row in left_out})
        yield Fold(tests, found, validate(left_out, model.settings(found.values), runner))


def by_architecture(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each architecture, and of all."""
    names = sorted({each.row.architecture for each in verdicts})
    return {
        **{name: [each for each in verdicts if each.row.architecture == name] for name in names},
        "all": [*verdicts],
    }


def document(found: Sequence[Fold]) -> dict[str, Any]:
    """A hold-out for machines: summaries by architecture, and for each fold its tests, fit and rows."""
    every = [each for fold in found for each in fold.verdicts]
    return {
        "summary": {name: summary(own)._asdict() for name, own in by_architecture(every).items()},
        "folds": [
            {"tests": fold.tests, **fold.fit._asdict(), "held_out": report.document(fold.verdicts)["rows"]}
            for fold in found
        ],
    }
