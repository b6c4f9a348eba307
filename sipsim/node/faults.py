"""Injected faults: the ``--fault`` specs, the plan of a run's faults, and their execution in a SIP's process.

    kill:2@30us      the process of SIP 2 kills itself at 30 us of simulated time
    exit:1@5us:3     the process ends with exit code 3 (without a code: 1)
    stop:1@10us      the process stops itself, as Ctrl-Z would
    hang:1@10us      the process computes forever and holds the GIL
    mute:1@10us      the process continues, but sends neither packets nor reports
    slow:1@10us:x5   from 10 us on, the process takes five times as much host time
    broker@30us      the broker's process is killed once every SIP has reached 30 us
    launcher@1s      the launcher is killed 1 s (wall time) after the start of the run
    agent:HOST@1s    the agent of a host is killed
    cut:HOST@2s      a host is disconnected from the network, by the program AHBM_CUT, called with the host's name
    random:7:3       three faults of SIPs, drawn with seed 7
    link:0.E@30us:50us   the link at port E of SIP 0 goes down at 30 us, and resumes 50 us later

``@join`` in place of a time means before the SIP joins. A fault of a SIP applies to the first process of the SIP;
``kill:2@30us#1`` applies to incarnation 1. ``--resume`` starts a new incarnation of every SIP; no other fault repeats.
"""

import itertools
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sipsim.core.engine import Engine
from sipsim.core.errors import note
from sipsim.core.units import PS_PER_US, format_exact_time_ps, parse_time_ps

SIP_KINDS = ("kill", "exit", "stop", "hang", "mute", "slow")
HOST_KINDS = ("cut", "agent")
OTHER_KINDS = ("broker", "launcher")
LINK_KIND = "link"
KINDS = (*SIP_KINDS, *HOST_KINDS, *OTHER_KINDS, "random", LINK_KIND)
JOIN_PS = -1
"""Value of ``Fault.at_ps`` for a fault before the SIP joins."""
MOST_RANDOM = 1000
_EXAMPLES = {
    **{kind: f"{kind}:2@30us" for kind in SIP_KINDS},
    "exit": "exit:1@5us:3",
    "slow": "slow:1@10us:x5",
    "cut": "cut:HOST@2s",
    "agent": "agent:HOST@1s",
    "broker": "broker@30us",
    "launcher": "launcher@1s",
    "random": "random:7:3",
    LINK_KIND: "link:0.E@30us:50us",
}
_DRAWN = ("kill", "kill", "kill", "exit", "stop", "hang", "mute", "slow")


class BadFault(ValueError):
    """An invalid fault spec; the message is one line with the spec and the allowed form."""


@dataclass(frozen=True)
class Fault:
    """One injected fault. ``value``: the exit code of ``exit``, the factor of ``slow``.

    ``at_ps``: simulated time for a SIP (``JOIN_PS`` means before joining) or broker; else wall time from the start.
    """

    kind: str
    at_ps: int
    rank: int = -1
    host: str = ""
    value: int = 0
    incarnation: int = 0

    def __str__(self) -> str:
        """The ``--fault`` spec of this fault."""
        where = f":{self.rank}" if self.kind in SIP_KINDS else f":{self.host}" if self.host else ""
        when = "join" if self.at_ps == JOIN_PS else format_exact_time_ps(self.at_ps)
        value = {"exit": f":{self.value}", "slow": f":x{self.value}"}.get(self.kind, "")
        return f"{self.kind}{where}@{when}{value}{f'#{self.incarnation}' if self.incarnation else ''}"


@dataclass(frozen=True)
class RandomFaults:
    """The spec ``random:SEED[:N]``; its faults are drawn once the number of SIPs is known."""

    seed: int
    count: int

    def draw(self, n_sips: int, span_ps: int, may_restart: bool) -> tuple[Fault, ...]:
        """Draw faults of ``n_sips`` SIPs in a run of about ``span_ps``; equal arguments give equal faults.

        With ``may_restart``, some faults apply to the process that replaced a killed process.
        """
        dice = random.Random(f"{self.seed} {n_sips}")
        drawn: list[Fault] = []
        for _ in range(self.count):
            kind, rank = dice.choice(_DRAWN), dice.randrange(n_sips)
            at_ps = JOIN_PS if dice.random() < 0.05 else dice.randrange(max(span_ps, 1))
            value = {"exit": dice.choice((0, 1, 7)), "slow": dice.randrange(2, 6)}.get(kind, 0)
            again = dice.random() < 0.5
            before = [fault.incarnation for fault in drawn if fault.rank == rank and fault.kind in ("kill", "exit")]
            incarnation = max(before) + 1 if before and again and may_restart else 0
            drawn.append(Fault(kind, at_ps, rank, "", value, incarnation))
        return tuple(drawn)


def is_outage(text: str) -> bool:
    """Whether a spec describes the outage of a link, which :func:`parse_outage` parses."""
    return _kind(text) == LINK_KIND


def parse_outage(text: str) -> dict[str, Any]:
    """Parse the spec of a link's outage into an entry of ``system.sips.outages``, which digests cover.

    An outage is part of the simulated system and not a fault of a process, so :class:`FaultPlan` does not contain it.

    Raises:
        BadFault: for an invalid spec.
    """
    found = re.fullmatch(r"link:(?P<port>[^:@#]+)@(?P<at>[^:@#]+):(?P<length>[^:@#]+)", text)
    if found is None:
        raise BadFault(f"{text!r} is not a fault; write it as {_EXAMPLES[LINK_KIND]}")
    times = {"at_us": _time(text, found["at"], may_join=False), "for_us": _time(text, found["length"], may_join=False)}
    if not all(times.values()):
        raise BadFault(f"{text!r}: both times must be more than 0")
    return {"port": found["port"], **{name: ps / PS_PER_US for name, ps in times.items()}}


def _kind(text: str) -> str:
    return re.split("[:@#]", text, maxsplit=1)[0]


def parse_fault(text: str) -> Fault | RandomFaults:
    """Parse a spec of any kind except ``link``.

    Raises:
        BadFault: for an invalid spec.
    """
    kind = _kind(text)
    if kind not in KINDS:
        raise BadFault(f"{text!r}: unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
    rest = text[len(kind) :]
    if kind == "random":
        return _random(text, rest)
    if kind == LINK_KIND:
        raise BadFault(f"{text!r}: the outage of a link is no fault of a process; give the outage to ahbm-launch")
    pattern = r":(?P<where>[^@#]+)@" if kind in SIP_KINDS + HOST_KINDS else "@"
    found = re.fullmatch(pattern + r"(?P<when>[^:@#]+)(?::(?P<value>[^@#]*))?(?:#(?P<incarnation>.*))?", rest)
    if found is None:
        raise BadFault(f"{text!r} is not a fault; write it as {_EXAMPLES[kind]}")
    where = found.groupdict().get("where", "")
    at_ps = _time(text, found["when"], may_join=kind in SIP_KINDS)
    if kind not in SIP_KINDS and found["incarnation"] is not None:
        raise BadFault(f"{text!r}: only a SIP has incarnations; write {_EXAMPLES[kind]}")
    incarnation = _whole(text, "the incarnation", "0" if found["incarnation"] is None else found["incarnation"], 10**6)
    value = _value(text, kind, found["value"])
    if kind in SIP_KINDS:
        return Fault(kind, at_ps, _whole(text, "the rank", where, 10**6), "", value, incarnation)
    return Fault(kind, at_ps, host=where)


def _random(text: str, rest: str) -> RandomFaults:
    parts = rest.split(":")[1:]
    if not rest.startswith(":") or not 1 <= len(parts) <= 2:
        raise BadFault(f"{text!r} is not a fault; write it as random:SEED or random:SEED:COUNT, such as random:7:3")
    seed = _whole(text, "the seed", parts[0], 2**64 - 1)
    count = _whole(text, "the count", parts[1], MOST_RANDOM, least=1) if len(parts) == 2 else 1
    return RandomFaults(seed, count)


def _time(text: str, when: str, may_join: bool) -> int:
    if when == "join" and may_join:
        return JOIN_PS
    try:
        return parse_time_ps(when)
    except ValueError as error:
        raise BadFault(f"{text!r}: {error}{', or join' if may_join else ''}") from None


def _value(text: str, kind: str, given: str | None) -> int:
    if kind == "exit":
        return _whole(text, "the exit code", "1" if given is None else given, 255)
    if kind == "slow":
        if given is None or not given.startswith("x"):
            raise BadFault(f"{text!r}: the factor is missing; write it as {_EXAMPLES[kind]}")
        return _whole(text, "the factor", given[1:], 10**6, least=2)
    if given is not None:
        raise BadFault(f"{text!r}: {kind} takes no value after its time; write it as {_EXAMPLES[kind]}")
    return 0


def _whole(text: str, what: str, given: str, limit: int, least: int = 0) -> int:
    if not re.fullmatch("[0-9]{1,20}", given, re.ASCII) or not least <= int(given) <= limit:
        raise BadFault(f"{text!r}: {what} {given!r} must be a whole number from {least} to {limit}")
    return int(given)


class FaultPlan:
    """All faults of a run in order of time; random faults have been drawn already."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = tuple(sorted(faults, key=lambda fault: fault.at_ps))

    @classmethod
    def of(cls, specs: Iterable[str]) -> "FaultPlan":
        """Parse ``Request.faults`` or ``SipProcessSpec.faults``.

        Raises:
            BadFault: for an invalid spec, or a ``random`` spec.
        """
        return cls(_settled(spec) for spec in specs)

    def check(self, n_sips: int, hosts: Iterable[str] = ()) -> None:
        """Check that every fault's SIP or host exists. ``hosts``: all names, if they are known.

        Raises:
            BadFault: for the first fault whose SIP or host does not exist.
        """
        known = sorted(hosts)
        for fault in self._faults:
            if fault.kind in SIP_KINDS and fault.rank >= n_sips:
                raise BadFault(f"{str(fault)!r}: there is no SIP {fault.rank}; ranks are 0 to {n_sips - 1}")
            if fault.kind in HOST_KINDS and known and fault.host not in known:
                raise BadFault(f"{str(fault)!r}: there is no host {fault.host!r}; allowed: {', '.join(known)}")

    def resumed(self, times: int) -> "FaultPlan":
        """Return the faults that remain after ``times`` resumes; each resume starts a new incarnation of every SIP."""
        sips = [fault for fault in self._faults if fault.kind in SIP_KINDS and fault.incarnation >= times]
        return FaultPlan(replace(fault, incarnation=fault.incarnation - times) for fault in sips) if times else self

    def texts(self) -> tuple[str, ...]:
        """The specs of the faults."""
        return tuple(map(str, self._faults))

    def for_process(self, rank: int, incarnation: int) -> tuple[Fault, ...]:
        """The faults of one process of a SIP."""
        of_sips = (fault for fault in self._faults if fault.kind in SIP_KINDS)
        return tuple(fault for fault in of_sips if (fault.rank, fault.incarnation) == (rank, incarnation))

    def for_broker(self) -> int | None:
        """The simulated time in ps at which the broker is killed; None if no fault kills the broker."""
        return next((fault.at_ps for fault in self._faults if fault.kind == "broker"), None)

    def for_launcher(self) -> tuple[Fault, ...]:
        """The faults that the launcher executes, by wall time since the start: ``cut``, ``agent``, ``launcher``."""
        return tuple(fault for fault in self._faults if fault.kind in (*HOST_KINDS, "launcher"))


def _settled(spec: str) -> Fault:
    fault = parse_fault(spec)
    if isinstance(fault, RandomFaults):
        raise BadFault(f"{spec!r} is for ahbm-launch, which draws the faults; give one fault, such as kill:2@30us")
    return fault


Ps = int
Execute = Callable[[Fault], None]


class FaultHook:
    """The pending faults of one process. ``execute`` carries out the faults that end or stop the process.

    A fault is not an event in the queue: the engine runs up to the fault's time, and continues in another step. So a
    fault that has not been executed changes neither the simulation nor its counts.

    ``mute``: whether the process must stop sending. ``slower``: the factor by which the process is slowed.
    """

    def __init__(self, engine: Engine, faults: tuple[Fault, ...], execute: Execute) -> None:
        self.mute = False
        self.slower = 1
        self._pending = sorted(faults, key=lambda fault: fault.at_ps)
        self._run_before = engine.run_before
        self._engine = engine
        self._execute = execute

    def execute_due(self, now_ps: Ps) -> None:
        """Execute the faults due at ``now_ps`` (``JOIN_PS``: before joining), after all earlier events have run."""
        while self._pending and self._pending[0].at_ps <= now_ps:
            fault = self._pending.pop(0)
            note(f"fault {fault} is injected")
            if fault.kind == "mute":
                self.mute = True
            elif fault.kind == "slow":
                self.slower = fault.value
            else:
                self._execute(fault)

    def before_join(self) -> None:
        """Execute the faults due before the SIP joins."""
        self.execute_due(JOIN_PS)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """Run events as ``Engine.run_before``, but stop at every fault; a fault after the last event never executes."""
        at_ps = self._pending[0].at_ps if self._pending else None
        if at_ps is None or (horizon_ps is not None and at_ps >= horizon_ps):
            return self._run_slowly(horizon_ps, most_events)
        if not self._run_slowly(at_ps, most_events):
            return False
        if horizon_ps is None and self._engine.next_ps() is None:
            return True
        self.execute_due(at_ps)
        return False

    def _run_slowly(self, horizon_ps: Ps | None, most_events: int) -> bool:
        # CPU time, since wall time would count the work of other processes on a loaded host.
        began_ns = time.process_time_ns()
        reached = self._run_before(horizon_ps, most_events)
        if self.slower > 1:
            time.sleep((self.slower - 1) * (time.process_time_ns() - began_ns) / 1e9)
        return reached


def execute(fault: Fault) -> None:
    """Kill, stop, end or hang this process."""
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "exit":
        sys.stdout.flush()
        os._exit(fault.value)
    elif fault.kind == "hang":
        # A loop in C: the GIL is never released, and no signal handler runs.
        sum(itertools.repeat(0))


def install(engine: Engine, faults: tuple[Fault, ...], act: Execute = execute) -> FaultHook | None:
    """Install ``faults`` in ``engine``; return None, and leave the engine unchanged, when there are no faults.

    The process must check ``mute`` before it sends, and call ``before_join`` before it joins.
    """
    if not faults:
        return None
    hook = FaultHook(engine, faults, act)
    engine.run_before = hook.run_before  # type: ignore[method-assign]
    return hook
