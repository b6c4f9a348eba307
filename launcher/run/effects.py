"""Detection of config changes without effect on a run, for a line to the user."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from launcher.report.outcome import Outcome
from launcher.supervise.run import Run
from sipsim.chips.api.chip import kind_of
from sipsim.config.check import dotted, flow
from sipsim.config.load import variants
from sipsim.config.schema import Change, Path
from sipsim.config.yaml import shown_path

MAX_SHOWN = 8
UNREAD = "not read by this run"


def note_effects(run: Run, outcome: Outcome) -> None:
    """Add the config changes that had no effect, and a notice that lists the changes, to a complete run's outcome."""
    if outcome.error is not None or not outcome.complete or outcome.cut_short:
        return
    reads = run.plan.system.resolved.reads
    changes = [each for each in reads.changes if each.path not in reads.for_readers]
    seen = {path for rank in outcome.ranks.values() for path in rank.read}
    unread = dict.fromkeys((each.path for each in changes if each.path not in seen), UNREAD)
    reasons = {**unread, **_read_in_vain(run, outcome)}
    found = list(_shown([each for each in changes if each.path in reasons], changes, reasons))
    outcome.without_effect = [dotted(each.path) for each in changes if each.path in reasons]
    if found:
        more = f", and {len(found) - MAX_SHOWN} more (see --json)" if len(found) > MAX_SHOWN else ""
        outcome.notices.append(f"no effect on this run: {', '.join(found[:MAX_SHOWN])}{more}")


def _read_in_vain(run: Run, outcome: Outcome) -> Mapping[Path, str]:
    """Return reasons, by key path, why values that were read had no effect; the chip kind gives the reasons."""
    plan = run.plan
    ran = {each.records[0].algorithm for each in outcome.finished_runs()}
    ranks = outcome.ranks.values()
    # Launches of the script, counted as the rest of all launches: not every launch is recorded.
    of_script = (rank.launches - sum(each.run is not None for each in rank.launch_records) for rank in ranks)
    return kind_of(plan.resolved).without_effect(plan, ran, any(of_script))


def _shown(found: Sequence[Change], changes: Sequence[Change], reasons: Mapping[Path, str]) -> Iterator[str]:
    """Yield texts for the changes in ``found``; if these include all changes of a section or variant, only one text."""
    files = {shown_path(file): name for name, file in variants().items()}
    for name in dict.fromkeys(files[each.origin] for each in changes if each.origin in files):
        if all(each.path in reasons for each in changes if files.get(each.origin) == name):
            yield f"variant {name} ({UNREAD})"
    shown: set[Path] = set()
    for each in found:
        if each.origin in files or each.path in shown:
            continue
        alike = {other.path for other in found if reasons[other.path] == reasons[each.path]}
        inside = _section_of(each.path, [other.path for other in changes], alike)
        shown.update(inside)
        whole = dotted([keys[0] for keys in takewhile(lambda keys: len({*keys}) == 1, zip(*inside, strict=False))])
        what = f"{len(inside)} keys; " if len(inside) > 1 else ""
        yield f"{whole}{'' if what else f'={flow(each.value)}'} ({what}{reasons[each.path]})"


def _section_of(path: Path, changed: Sequence[Path], alike: set[Path]) -> list[Path]:
    """Return the changes in the widest section around ``path`` whose changes are all in ``alike``."""
    sections = ([other for other in changed if other[:length] == path[:length]] for length in range(1, len(path)))
    return next((inside for inside in sections if alike.issuperset(inside)), [path])
