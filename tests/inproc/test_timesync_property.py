"""No timing of mail, grants or participants may move a result: random systems against a single-queue reference.

Each system runs once through the real hub, sessions and engines under shuffled mail (``random_runs``); the trace of
every SIP must equal the reference's exactly, and the run must end the right way. Everything follows from the seed.

That this finds bugs is shown by planting them; ``test_timesync_mutants`` does so on every run of the suite. Out of
1,000 systems, so many show each bug (``PYTHONPATH=. python tests/inproc/test_timesync_mutants.py`` counts again):

      605  held packets left out of next
      736  need not awaited before running
      769  packets in flight forgotten
       99  only the newest least arrival kept
      170  packets in flight do not lower a running SIP
       86  one stream and one mail order per channel
      832  a channel's count compared with the pair's
      553  taken counts injected packets only
      218  no self loop: D[j][j] missing
      904  arrival after local at equal t
      727  ties by order of receipt
      292  what arrives at the horizon is injected
      606  events at the horizon are run
      174  end while something is in flight
      505  end while someone runs
      519  grant before every first report
      332  host code that reports
     1000  first report before the script's first step
      413  promise not lowered by held or in-flight
       95  promise not lowered by held
      337  promise not lowered by in-flight
      479  promise below N taken literally
      638  a running SIP stands at infinity
      729  grant when N equals the horizon

A grant to where N equals the horizon cannot change a result: nothing runs, the SIP reports again, and so on for
ever. The harness therefore refuses a grant that lets nothing run.
"""

import pytest
from random_runs import simulate
from random_systems import SYSTEMS, Outcome, System, first_difference, random_system, reference

BATCH = 50


@pytest.mark.parametrize("first_seed", range(0, SYSTEMS, BATCH))
def test_real_machinery_equals_the_reference(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + BATCH):
        system = random_system(seed)
        try:
            difference = first_difference(simulate(system), reference(system))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert difference is None, f"seed {seed}: {difference}"


def test_systems_are_worth_running() -> None:
    """The generator keeps making what the property is about: ties of every kind, parallel channels, both endings."""
    systems = [random_system(seed) for seed in range(SYSTEMS)]
    outcomes = [reference(system) for system in systems]
    parallel = sum(len({c[:2] for c in s.channels}) < len(s.channels) for s in systems)
    deadlocks = sum(any(outcome.waiting) for outcome in outcomes)
    tied = [_ties(outcome, system) for outcome, system in zip(outcomes, systems, strict=True)]
    assert parallel > SYSTEMS * 0.6
    assert SYSTEMS * 0.1 < deadlocks < SYSTEMS * 0.5
    assert sum(arrival_and_local for arrival_and_local, _ in tied) > SYSTEMS * 0.7
    assert sum(two_sources for _, two_sources in tied) > SYSTEMS * 0.2
    assert sum(len(trace) for outcome in outcomes for trace in outcome.traces) > SYSTEMS * 50


def _ties(outcome: Outcome, system: System) -> tuple[bool, bool]:
    """Whether some SIP has an arrival and a local event at the same t, and arrivals from two sources at the same t."""
    arrival_and_local = two_sources = False
    for trace in outcome.traces:
        origins: dict[int, set[int]] = {}
        for time_ps, origin, _ in trace:
            origins.setdefault(time_ps, set()).add(origin if origin < 0 else system.channels[origin].src)
        arrival_and_local |= any(-1 in found and len(found) > 1 for found in origins.values())
        two_sources |= any(len(found - {-1}) > 1 for found in origins.values())
    return arrival_and_local, two_sources
