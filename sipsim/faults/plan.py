"""Faults that a user asks for with ``--fault``: what breaks, where and when. Specs and plans, pure; nothing acts here.

    kill:2@30us      the process of SIP 2 kills itself at 30 us of simulated time
    exit:1@5us:3     it ends with exit code 3 (without a code: 1)
    stop:1@10us      it stops itself, as Ctrl-Z would
    hang:1@10us      it computes for ever, and holds Python's lock
    mute:1@10us      it goes on, and sends nothing more, neither packets nor reports
    slow:1@10us:x5   from then on it takes five times as long, in host time
    broker@30us      the broker's process is killed once every SIP has got as far as 30 us
    launcher@1s      the launcher is killed a second (wall time) after the run was started
    agent:HOST@1s    so is the agent of a host
    cut:HOST@2s      a host is cut off the network, by the program that AHBM_CUT names, which gets its name
    random:7:3       three faults of SIPs, drawn with seed 7

``@join`` in place of a time is before the SIP has joined. A fault of a SIP hits its first process; ``kill:2@30us#1``
hits the one that is started after that, incarnation 1. ``--resume`` starts everybody once more, and breaks nothing else
again.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sipsim.units import format_exact_time_ps, parse_time_ps

SIP_KINDS = ("kill", "exit", "stop", "hang", "mute", "slow")
HOST_KINDS = ("cut", "agent")
OTHER_KINDS = ("broker", "launcher")
KINDS = (*SIP_KINDS, *HOST_KINDS, *OTHER_KINDS, "random")
JOIN_PS = -1
"""The time of what happens before a SIP has joined."""
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
}
_DRAWN = ("kill", "kill", "kill", "exit", "stop", "hang", "mute", "slow")


class BadFault(ValueError):
    """A spec that cannot be; one line that names it and says what is allowed."""


@dataclass(frozen=True)
class Fault:
    """``at_ps``: simulated time of a SIP or the broker (``JOIN_PS``: before joining), else wall time since the start.

    ``value``: the exit code of ``exit``, the factor of ``slow``.
    """

    kind: str
    at_ps: int
    rank: int = -1
    host: str = ""
    value: int = 0
    incarnation: int = 0

    def __str__(self) -> str:
        """The spec that reads as this fault."""
        where = f":{self.rank}" if self.kind in SIP_KINDS else f":{self.host}" if self.host else ""
        when = "join" if self.at_ps == JOIN_PS else format_exact_time_ps(self.at_ps)
        value = {"exit": f":{self.value}", "slow": f":x{self.value}"}.get(self.kind, "")
        return f"{self.kind}{where}@{when}{value}{f'#{self.incarnation}' if self.incarnation else ''}"


@dataclass(frozen=True)
class RandomFaults:
    """``random:SEED[:N]``: drawn when the size of the run is known."""

    seed: int
    count: int

    def draw(self, n_sips: int, span_ps: int, may_restart: bool) -> tuple[Fault, ...]:
        """Faults of ``n_sips`` SIPs in a run of about ``span_ps``: the same for the same arguments.

        With ``may_restart`` some hit the process that replaced an earlier victim.
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


def parse_fault(text: str) -> Fault | RandomFaults:
    """A spec, read strictly.

    Raises:
        BadFault: one line with what is allowed.
    """
    kind = re.split("[:@#]", text, maxsplit=1)[0]
    if kind not in KINDS:
        raise BadFault(f"{text!r}: unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
    rest = text[len(kind) :]
    if kind == "random":
        return _random(text, rest)
    pattern = r":(?P<where>[^@#]+)@" if kind in SIP_KINDS + HOST_KINDS else "@"
    found = re.fullmatch(pattern + r"(?P<when>[^:@#]+)(?::(?P<value>[^@#]*))?(?:#(?P<incarnation>.*))?", rest)
    if found is None:
        raise BadFault(f"{text!r} is no fault; write it as {_EXAMPLES[kind]}")
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
    words = rest.split(":")[1:]
    if not rest.startswith(":") or not 1 <= len(words) <= 2:
        raise BadFault(f"{text!r} is no fault; write it as random:SEED or random:SEED:COUNT, such as random:7:3")
    seed = _whole(text, "the seed", words[0], 2**64 - 1)
    count = _whole(text, "the count", words[1], MOST_RANDOM, least=1) if len(words) == 2 else 1
    return RandomFaults(seed, count)


def _time(text: str, when: str, may_join: bool) -> int:
    if when == "join" and may_join:
        return JOIN_PS
    try:
        return parse_time_ps(when)
    except ValueError as error:
        raise BadFault(f"{text!r}: {error}{', or join' if may_join else ''}") from None


def _value(text: str, kind: str, said: str | None) -> int:
    if kind == "exit":
        return _whole(text, "the exit code", "1" if said is None else said, 255)
    if kind == "slow":
        if said is None or not said.startswith("x"):
            raise BadFault(f"{text!r}: how much slower? write it as {_EXAMPLES[kind]}")
        return _whole(text, "the factor", said[1:], 10**6, least=2)
    if said is not None:
        raise BadFault(f"{text!r}: {kind} takes nothing after its time; write it as {_EXAMPLES[kind]}")
    return 0


def _whole(text: str, what: str, said: str, most: int, least: int = 0) -> int:
    if not re.fullmatch("[0-9]{1,20}", said, re.ASCII) or not least <= int(said) <= most:
        raise BadFault(f"{text!r}: {what} {said!r} must be a whole number from {least} to {most}")
    return int(said)


class FaultPlan:
    """All faults of a run, none of them random any more: which are whose, in order of time."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = tuple(sorted(faults, key=lambda fault: fault.at_ps))

    @classmethod
    def of(cls, specs: Iterable[str]) -> "FaultPlan":
        """The plan that the texts of ``Request.faults`` or ``SipProcessSpec.faults`` stand for.

        Raises:
            BadFault: for one that cannot be, or that is random still.
        """
        return cls(_settled(spec) for spec in specs)

    def check(self, n_sips: int, hosts: Iterable[str] = ()) -> None:
        """Whether what is to break is there. ``hosts``: all names, if they are known.

        Raises:
            BadFault: naming the first that is not.
        """
        known = sorted(hosts)
        for fault in self._faults:
            if fault.kind in SIP_KINDS and fault.rank >= n_sips:
                raise BadFault(f"{str(fault)!r}: there is no SIP {fault.rank}; ranks are 0 to {n_sips - 1}")
            if fault.kind in HOST_KINDS and known and fault.host not in known:
                raise BadFault(f"{str(fault)!r}: there is no host {fault.host!r}; allowed: {', '.join(known)}")

    def resumed(self, times: int) -> "FaultPlan":
        """What is left of it when a run is gone on with for so many times: that starts every SIP once more."""
        sips = [fault for fault in self._faults if fault.kind in SIP_KINDS and fault.incarnation >= times]
        return FaultPlan(replace(fault, incarnation=fault.incarnation - times) for fault in sips) if times else self

    def texts(self) -> tuple[str, ...]:
        """Every fault as the spec that asks for it alone."""
        return tuple(map(str, self._faults))

    def for_process(self, rank: int, incarnation: int) -> tuple[Fault, ...]:
        """What happens to one process of a SIP."""
        mine = (fault for fault in self._faults if fault.kind in SIP_KINDS)
        return tuple(fault for fault in mine if (fault.rank, fault.incarnation) == (rank, incarnation))

    def for_broker(self) -> int | None:
        """When the broker dies, in simulated time."""
        return next((fault.at_ps for fault in self._faults if fault.kind == "broker"), None)

    def for_launcher(self) -> tuple[Fault, ...]:
        """What the launcher does, by wall time since the start: ``cut``, ``agent``, ``launcher``."""
        return tuple(fault for fault in self._faults if fault.kind in (*HOST_KINDS, "launcher"))


def _settled(spec: str) -> Fault:
    fault = parse_fault(spec)
    if isinstance(fault, RandomFaults):
        raise BadFault(f"{spec!r} has not been drawn")
    return fault
