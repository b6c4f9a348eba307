"""``--fault`` specs, plans and their execution; a pending fault changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.engine import Engine
from sipsim.core.units import us_to_ps
from sipsim.node.faults import (
    JOIN_PS,
    KINDS,
    BadFault,
    Fault,
    FaultHook,
    FaultPlan,
    RandomFaults,
    install,
    is_outage,
    parse_fault,
    parse_outage,
)

US = 10**6


class TestSpecs:
    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("kill:2@30us", Fault("kill", 30 * US, 2)),
            ("kill:2@30us#1", Fault("kill", 30 * US, 2, incarnation=1)),
            ("stop:1@10us", Fault("stop", 10 * US, 1)),
            ("hang:0@1ps", Fault("hang", 1, 0)),
            ("exit:1@5us:1", Fault("exit", 5 * US, 1, value=1)),
            ("exit:1@5us:0#2", Fault("exit", 5 * US, 1, value=0, incarnation=2)),
            ("mute:1@join", Fault("mute", JOIN_PS, 1)),
            ("slow:1@10us:x5", Fault("slow", 10 * US, 1, value=5)),
            ("cut:b@2s", Fault("cut", 2 * 10**12, host="b")),
            ("agent:node-1.x@250ms", Fault("agent", 25 * 10**10, host="node-1.x")),
            ("broker@30us", Fault("broker", 30 * US)),
            ("launcher@1s", Fault("launcher", 10**12)),
        ],
    )
    def test_parsing_and_printing_round_trip(self, text: str, fault: Fault) -> None:
        assert (parse_fault(text), str(fault)) == (fault, text)

    @pytest.mark.parametrize(
        ("text", "entry"),
        [
            ("link:0.E@30us:50us", {"port": "0.E", "at_us": 30, "for_us": 50}),
            ("link:12.eth3@1ps:1.5ns", {"port": "12.eth3", "at_us": 1e-6, "for_us": 0.0015}),
        ],
    )
    def test_the_outage_of_a_link_is_an_entry_of_the_config(self, text: str, entry: dict[str, object]) -> None:
        assert (is_outage(text), parse_outage(text)) == (True, entry)
        assert not is_outage("kill:0@30us")
        with pytest.raises(BadFault, match="the outage of a link is no fault of a process"):
            parse_fault(text)

    @given(st.integers(1, 10**15), st.integers(1, 10**15))
    def test_its_times_are_exact(self, at_ps: int, for_ps: int) -> None:
        entry = parse_outage(f"link:0.E@{at_ps}ps:{for_ps}ps")
        assert (us_to_ps(entry["at_us"]), us_to_ps(entry["for_us"])) == (at_ps, for_ps)

    def test_other_spellings(self) -> None:
        assert parse_fault("exit:1@5us") == parse_fault("exit:1@5us:1")
        assert parse_fault("kill:1@1.5us") == Fault("kill", 1_500_000, 1)
        assert parse_fault("kill:1@0") == Fault("kill", 0, 1)
        assert parse_fault("random:7") == RandomFaults(7, 1)
        assert parse_fault("random:7:3") == RandomFaults(7, 3)


class TestPlans:
    def test_faults_by_process(self) -> None:
        plan = FaultPlan.of(
            ["slow:1@20us:x2", "kill:1@10us", "kill:1@5us#1", "stop:0@1us", "broker@7us", "launcher@1s"]
        )
        assert list(map(str, plan.for_process(1, 0))) == ["kill:1@10us", "slow:1@20us:x2"]
        assert list(map(str, plan.for_process(1, 1))) == ["kill:1@5us#1"]
        assert list(map(str, plan.for_process(0, 0))) == ["stop:0@1us"]
        assert plan.for_process(0, 1) == plan.for_process(2, 0) == ()
        assert plan.for_broker() == 7 * US
        assert list(map(str, plan.for_launcher())) == ["launcher@1s"]

    def test_an_empty_plan(self) -> None:
        plan = FaultPlan.of([])
        assert (plan.texts(), plan.for_process(0, 0), plan.for_broker(), plan.for_launcher()) == ((), (), None, ())

    def test_sips_and_hosts_must_exist(self) -> None:
        FaultPlan.of(["kill:3@1us", "cut:b@1s"]).check(4, ["a", "b"])
        FaultPlan.of(["cut:b@1s"]).check(4)
        with pytest.raises(BadFault, match=r"'kill:4@1us': there is no SIP 4; ranks are 0 to 3"):
            FaultPlan.of(["kill:4@1us"]).check(4)
        with pytest.raises(BadFault, match=r"'agent:c@1s': there is no host 'c'; allowed: a, b"):
            FaultPlan.of(["agent:c@1s"]).check(4, ["b", "a"])

    def test_random_faults_must_be_drawn_first(self) -> None:
        with pytest.raises(BadFault, match="is for ahbm-launch, which draws the faults"):
            FaultPlan.of(["random:1"])


class TestDraws:
    def test_the_same_seed_draws_the_same(self) -> None:
        again = RandomFaults(7, 20).draw(4, 3 * US, True)
        assert RandomFaults(7, 20).draw(4, 3 * US, True) == again
        assert RandomFaults(8, 20).draw(4, 3 * US, True) != again

    def test_drawn_faults_are_valid(self) -> None:
        drawn = RandomFaults(1, 200).draw(4, 3 * US, True)
        FaultPlan(drawn).check(4)
        assert {fault.rank for fault in drawn} == {0, 1, 2, 3}
        assert {fault.kind for fault in drawn} == {"kill", "exit", "stop", "hang", "mute", "slow"} < set(KINDS)
        assert all(JOIN_PS <= fault.at_ps < 3 * US for fault in drawn)
        assert max(fault.incarnation for fault in drawn) > 0
        assert [parse_fault(str(fault)) for fault in drawn] == list(drawn)

    def test_without_restarts_only_first_processes_are_hit(self) -> None:
        assert {fault.incarnation for fault in RandomFaults(1, 200).draw(4, 3 * US, False)} == {0}


class Bench:
    """An engine with an event at each of some times, and faults that are recorded when executed."""

    def __init__(self, times: tuple[int, ...], *specs: str) -> None:
        self.engine = Engine()
        self.seen: list[object] = []
        for time_ps in times:
            self.engine.at(time_ps, lambda at=time_ps: self.seen.append(at))  # type: ignore[misc]
        made = install(self.engine, tuple(parse_fault(spec) for spec in specs), self.execute)  # type: ignore[arg-type]
        assert made is not None
        self.hook: FaultHook = made

    def execute(self, fault: Fault) -> None:
        self.seen.append(str(fault))

    def window(self, horizon_ps: int | None, most_events: int = 100) -> None:
        while not self.engine.run_before(horizon_ps, most_events):
            pass


class TestExecution:
    def test_after_earlier_events_and_before_those_of_its_time(self) -> None:
        bench = Bench((1, 10, 10, 20), "kill:0@10ps")
        bench.window(100)
        assert bench.seen == [1, "kill:0@10ps", 10, 10, 20]
        assert bench.engine.events == 4

    @pytest.mark.parametrize("horizons", [(5, 10, 15, 30), (10, 11, 30), (30,), (None,)])
    @pytest.mark.parametrize("most_events", [1, 2, 100])
    def test_execution_does_not_depend_on_windows(self, horizons: tuple[int | None, ...], most_events: int) -> None:
        bench = Bench((1, 10, 20), "stop:0@10ps", "stop:0@15ps", "stop:0@15ps#0")
        for horizon_ps in horizons:
            bench.window(horizon_ps, most_events)
        assert bench.seen == [1, "stop:0@10ps", 10, "stop:0@15ps", "stop:0@15ps", 20]
        assert (bench.engine.events, bench.engine.now_ps) == (3, 20)

    def test_not_beyond_the_horizon(self) -> None:
        bench = Bench((1, 20), "kill:0@10ps")
        bench.window(10)
        assert bench.seen == [1]
        assert bench.engine.next_ps() == 20

    def test_not_after_the_last_event(self) -> None:
        bench = Bench((1,), "kill:0@10ps")
        bench.window(None)
        assert bench.seen == [1]

    def test_before_joining(self) -> None:
        bench = Bench((0,), "stop:0@join", "stop:0@0")
        bench.hook.before_join()
        assert bench.seen == ["stop:0@join"]
        bench.window(1)
        assert bench.seen == ["stop:0@join", "stop:0@0", 0]

    def test_mute_and_slow_set_flags(self) -> None:
        bench = Bench((1, 10), "mute:0@5ps", "slow:0@6ps:x3")
        assert (bench.hook.mute, bench.hook.slower) == (False, 1)
        bench.window(5)
        assert (bench.hook.mute, bench.hook.slower) == (False, 1)
        bench.window(20)
        assert (bench.hook.mute, bench.hook.slower) == (True, 3)
        assert bench.seen == [1, 10]

    def test_without_faults_the_engine_is_unchanged(self) -> None:
        engine = Engine()
        assert install(engine, ()) is None
        assert engine.run_before == Engine.run_before.__get__(engine)


class TestResume:
    def test_every_sip_starts_once_more(self) -> None:
        plan = FaultPlan.of(["kill:1@1us", "kill:1@1us#1", "stop:0@2us#2", "broker@1us", "launcher@1s", "cut:a@1s"])
        assert plan.resumed(0).texts() == plan.texts()
        assert plan.resumed(1).texts() == ("kill:1@1us", "stop:0@2us#1")
        assert plan.resumed(2).texts() == ("stop:0@2us",)
