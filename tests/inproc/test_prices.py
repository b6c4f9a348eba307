"""Prices: each span of one command on an idle machine takes its price, to the picosecond."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import one_command
from doorbells import heads
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launcher.engines.inproc import InProcess
from launcher.options import Options, parse
from launcher.run.prepare import prepare
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.costs.prices import sum_ps, terms_of
from sipsim.chips.ahbm.costs.probe import ProbePlan
from sipsim.chips.ahbm.history import HISTORY_FILE, History, read_histories
from sipsim.chips.ahbm.ipcq.credits import PIGGYBACK
from sipsim.chips.ahbm.ipcq.pe_ipcq import POLL
from sipsim.insight.explain.costs import Costs
from sipsim.insight.explain.work import CREDIT, Calls, name_of
from sipsim.records.job import Job

SETTINGS = st.fixed_dictionaries(
    {
        "defaults.buffer_kind": st.sampled_from(["tcm", "hbm", "sram"]),
        "defaults.credit_return_mode": st.sampled_from(["fast_path", "fabric", "piggyback", "auto"]),
        "defaults.hw_strict": st.booleans(),
        "defaults.head_update": st.sampled_from(["piggyback", "doorbell"]),
        "defaults.latch": st.sampled_from([None, "copy", "in_place"]),
        "defaults.backpressure": st.sampled_from(["sleep", "poll"]),
        "system.sips.link": st.sampled_from(["ucie", "ethernet_100g"]),
        "links.ucie.params.flit_bytes": st.sampled_from([None, 256]),
    }
)
MEMORIES = st.fixed_dictionaries(
    {},
    optional={
        "tcm": st.sampled_from([20, 64]).map(
            lambda rate: {"kind": "tcm_ports", "params": {"bandwidth_GBps": rate, "ports": "read_and_write"}}
        ),
        "hbm": st.sampled_from(
            [
                {"kind": "hbm_controller", "params": {"preset": "hbm4_8000"}},
                {"kind": "latency_bandwidth", "params": {"bandwidth_GBps": 10}},
            ]
        ),
    },
)
COMMANDS = ("load", "store", "send", "send from HBM", "math", "delay")
PLACES = st.tuples(st.integers(0, 1), st.integers(0, 15), st.integers(0, 7))


def histories_of(plan: ProbePlan, command: str, n_elem: int) -> list[History]:
    way = plan.neighbours
    arguments = (command, str(n_elem), str(plan.rank_of[plan.src]), way.direction, way.reverse)
    job = Job(script=str(one_command.__file__), script_args=arguments, verify_data=False, records=("explain",))
    with tempfile.TemporaryDirectory() as folder, StopSignals(None) as signals:
        outcome = InProcess(Run(Options(), plan, job, folder, time.monotonic()), signals).run()
        assert outcome.error is None, outcome.error
        return read_histories(sorted(path.parent for path in Path(folder).rglob(HISTORY_FILE)))


IN_FLITS = {
    "defaults.buffer_kind": "tcm",
    "defaults.credit_return_mode": "fast_path",
    "defaults.hw_strict": True,
    "defaults.head_update": "piggyback",
    "defaults.latch": None,
    "defaults.backpressure": "sleep",
    "system.sips.link": "ucie",
    "links.ucie.params.flit_bytes": None,
}
SLOW_TCM = {"kind": "tcm_ports", "params": {"bandwidth_GBps": 20, "ports": "read_and_write"}}


@settings(max_examples=40, deadline=None)
@example("load", (0, 0, 0), (1, 0, 0), 1, "adr", IN_FLITS, {"tcm": SLOW_TCM})
@example("store", (0, 0, 0), (1, 0, 0), 100, "default", IN_FLITS, {"tcm": SLOW_TCM})
@given(
    st.sampled_from(COMMANDS),
    PLACES,
    PLACES,
    st.integers(1, 2048),
    st.sampled_from(["default", "adr", "ideal"]),
    SETTINGS,
    MEMORIES,
)
def test_a_span_on_an_idle_machine_takes_its_price(
    command: str,
    src: tuple[int, int, int],
    dst: tuple[int, int, int],
    n_elem: int,
    variant: str,
    parts: dict[str, Any],
    kinds: dict[str, Any],
) -> None:
    """What memories with rows and turns note as waits is no part of a price; nor are the looks before the last one, and
    what a credit waits for company. The two examples: in flits a transfer carries more bytes than its access has.
    """
    if src == dst:
        return
    sets = [f"{key}={json.dumps(value)}" for key, value in {**parts, **kinds}.items()]
    sets += heads(parts, parts["defaults.credit_return_mode"])
    flags = [word for each in sets for word in ("--set", each)]
    named = [] if variant == "default" else ["--variant", variant]
    resolved = prepare(parse(["--sips", "2", *named, *flags])).plan.resolved
    plan = ProbePlan(resolved, PePlace(*src), PePlace(*dst))
    histories = histories_of(plan, command, n_elem)
    calls = Calls(plan, plan.prices, histories)
    costs = Costs(plan.prices, calls, histories)
    priced = 0
    for history in histories:
        for span in history.spans:
            some = [] if span.is_wait else calls.of(history.rank, span)
            prices = [call.price(plan.prices) for call in some]
            assert [sum_ps(price) for price in prices] == [sum_ps(terms_of(price)) for price in prices]
            waits_for_company = name_of(span) == CREDIT and plan.ipcq.credit_return_mode in (PIGGYBACK, "auto")
            if not some or name_of(span) == POLL or waits_for_company:
                continue
            waits_ps = sum(each.ps for each in costs.of(history.rank, span).delays if each.edge is None)
            assert span.end_ps - span.start_ps == sum(map(sum_ps, prices)) + waits_ps, (span, some)
            priced += 1
    assert priced
