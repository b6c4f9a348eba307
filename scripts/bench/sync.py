"""What synchronisation costs: four patterns over real member processes with trivial models, lookahead 500 ns.

``ring``: one token that every member passes on; an operation is a hop. ``phold``: 4 messages per member, each answered
by one to a random other member 500 ns plus an exponential of mean 500 ns later; an operation is a message. ``step``: no
messages, an event per window; ``work``: ``--events`` SimPy events per window; an operation is a window of a member.

The members, the broker and the mail are those of the product. In the same call: a plain ZeroMQ ping through a ROUTER
and a ping over Unix datagrams (the floors), the same work without synchronisation (the floor of ``work``), and with
``--vs helics`` the same patterns with HELICS (``pip install helics``) under its restrictive time policy, or, with
``--vs helics-tuned``, under whatever is its fastest exact setting. Rows are medians of ``--repeat`` runs, the tools
taking turns. The CPU time per operation is reported for all members together and, separately, for the broker.
"""

import argparse
import gc
import importlib.util
import json
import os
import random
import signal
import socket
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import zmq

from broker.ids import BROKER, PROTOCOL, Channel
from broker.mail.base import SipMail
from broker.mail.kinds import MAIL_KINDS, MailKind
from broker.process import run_broker
from broker.wire import Failed, Finished, Join, RankFailed, RankResult, StatusRequest, decode_for_launcher, encode
from sipsim.core.engine import Engine
from sipsim.core.session import Session
from sipsim.node.client import SyncClient
from sipsim.node.process import run_client
from sipsim.node.sip_node import SipProcessSpec

from . import _helics
from .kit import Flag, Table, refuse

LOOKAHEAD_PS = 500_000
MEAN_PS = 500_000
MESSAGES = 4
DEADLINE_S = 120.0
PATTERNS = ("ring", "phold", "step", "work")
MAIL = tuple(MAIL_KINDS)
FLAGS = {
    "patterns": Flag(PATTERNS, PATTERNS, "which patterns", PATTERNS),
    "members": Flag((2, 4, 8), (2, 4), "numbers of members"),
    "mail": Flag(MAIL, MAIL, "kinds of our mail", MAIL),
    "vs": Flag("nothing", "nothing", "run the same with HELICS", ("nothing", "helics", "helics-tuned")),
    "cores": Flag(("zmq", "tcp", "ipc"), ("ipc",), "cores of HELICS", ("zmq", "tcp", "ipc")),
    "hops": Flag(4000, 200, "hops of the ring and of pings"),
    "until": Flag(400_000, 20_000, "simulated ns of phold"),
    "windows": Flag(1000, 50, "windows of step and work, each member"),
    "events": Flag(1000, 100, "SimPy events a window of work"),
    "repeat": Flag(5, 1, "runs a row"),
}


class Task(NamedTuple):
    """One run: ``size`` is hops (ring), windows (step, work), or simulated ns (phold)."""

    pattern: str
    members: int
    size: int
    events: int
    seed: int


class Cost(NamedTuple):
    """What a run took."""

    ops: int
    wall_s: float
    member_cpu_s: float
    broker_cpu_s: float
    late: int = 0


# --- the members ----------------------------------------------------------------------------------------------


class Trivial(SyncClient):
    """A member whose model is one of the patterns."""

    def __init__(self, rank: int, task: Task, channels: list[Channel], endpoint: str, *shell: Any) -> None:
        super().__init__(rank, *shell)
        self._task = task
        self._endpoint = endpoint
        self.engine = Engine()
        self.session = Session(rank, self.engine, channels, self.send_batch)
        self.session.model = self
        self._to = {c.dst: index for index, c in enumerate(channels) if c.src == rank}
        self._others = sorted(self._to)
        self._random = random.Random(f"{task.seed}/{rank}")
        self._ops = 0
        self._began = (0.0, 0.0)

    def identity(self) -> Join:
        """A member of a run without a plan."""
        return Join(PROTOCOL, self.rank, self._task.members, "bench", "", os.getpid(), "here", self._endpoint)

    def start_program(self) -> None:
        """Set the pattern going."""
        self._began = (time.monotonic(), time.process_time())
        task = self._task
        if task.pattern == "ring" and self.rank == 0:
            self._pass_on(0)
        elif task.pattern == "phold":
            for _ in range(MESSAGES):
                self._answer_message()
        elif task.pattern == "step":
            self.engine.at(0, self._step)
        elif task.pattern == "work":
            self.engine.env.process(working(self.engine.env, task))

    def receive(self, channel: int, body: bytes) -> None:
        """A token, or a message."""
        if self._task.pattern == "ring":
            self._ops += 1
            hops = int.from_bytes(body, "big")
            if hops < self._task.size:
                self._pass_on(hops)
        elif self.engine.now_ps <= self._task.size * 1000:
            self._ops += 1
            self._answer_message()

    def waiting(self) -> int:
        """Nobody waits for anything that does not come."""
        return 0

    def next_send_bound_ps(self, next_ps: int) -> int:
        """Return ``next_ps``: a member may send at any event."""
        return next_ps

    def outcome(self) -> bytes:
        """Return this member's operations, wall times and CPU time as JSON."""
        windows = self._task.size if self._task.pattern in ("step", "work") else 0
        began_s, cpu_s = self._began
        report = [windows or self._ops, began_s, time.monotonic(), time.process_time() - cpu_s, self.engine.now_ps]
        return json.dumps(report).encode()

    def dump_waiting(self) -> bytes:
        """Return an empty dump: members have no waiting tasks."""
        return b""

    def failure(self, error: Exception) -> Failed:
        """Return the error with its Python traceback."""
        return Failed("internal", "".join(traceback.format_exception(error)), "", 0)

    def _pass_on(self, hops: int) -> None:
        peer = (self.rank + 1) % self._task.members
        self.session.emit(self._to[peer], self.engine.now_ps + LOOKAHEAD_PS, (hops + 1).to_bytes(8, "big"))

    def _answer_message(self) -> None:
        peer = self._others[self._random.randrange(len(self._others))]
        later_ps = LOOKAHEAD_PS + 1000 * int(self._random.expovariate(1000 / MEAN_PS))
        self.session.emit(self._to[peer], self.engine.now_ps + later_ps, b"12345678")

    def _step(self) -> None:
        if self.engine.now_ps < (self._task.size - 1) * LOOKAHEAD_PS:
            self.engine.at(self.engine.now_ps + LOOKAHEAD_PS, self._step)


def working(env: Any, task: Task) -> Generator[Any, Any, None]:
    """A SimPy process with ``task.events`` timeouts per window."""
    step_ps = LOOKAHEAD_PS // task.events
    for _ in range(task.size):
        for _ in range(task.events - 1):
            yield env.timeout(step_ps)
        yield env.timeout(LOOKAHEAD_PS - step_ps * (task.events - 1))


def all_to_all(members: int) -> list[Channel]:
    """Every member may send to every other one."""
    pairs = [(a, b) for a in range(members) for b in range(members) if a != b]
    return [Channel(a, b, LOOKAHEAD_PS, f"{a}>{b}") for a, b in pairs]


# --- running them ---------------------------------------------------------------------------------------------


def fork(program: Callable[[], object]) -> int:
    """A process that runs ``program``."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        program()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def reap(pids: list[int]) -> list[float]:
    """Wait for processes; the CPU seconds of each."""
    used = [os.wait4(pid, 0) for pid in pids]
    if any(status for _, status, _ in used):
        raise RuntimeError(f"a process of the bench failed: {[status for _, status, _ in used]}")
    return [usage.ru_utime + usage.ru_stime for _, _, usage in used]


def run_ahbm(task: Task, kind: MailKind) -> Cost:
    """One run with our own broker and mail."""
    channels = all_to_all(task.members)
    with tempfile.TemporaryDirectory(prefix="ahbm-") as folder:
        broker = kind.local(f"{folder}/broker")
        pids = [fork(lambda: run_broker(broker, task.members, channels, None, os.getppid()))]
        pids += [fork(lambda r=rank: member(r, task, channels, kind, folder)) for rank in range(task.members)]
        end = kind.launcher(broker)
        end.send(BROKER, encode(StatusRequest()))
        messages: list[Any] = []
        poller = zmq.Poller()
        poller.register(end.pollable, zmq.POLLIN)
        ends_s = time.monotonic() + DEADLINE_S
        while not any(isinstance(message, Finished) for message in messages) and time.monotonic() < ends_s:
            poller.poll(1 if end.unsent else 100)
            messages += map(decode_for_launcher, end.receive_waiting())
        end.close()
        if not any(isinstance(message, Finished) for message in messages):
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        broker_cpu_s, *_ = reap(pids)
    failed = [message.message for message in messages if isinstance(message, RankFailed)]
    if failed:
        raise RuntimeError(failed[0])
    return cost_of([json.loads(m.blob) for m in messages if isinstance(m, RankResult)], broker_cpu_s)


def member(rank: int, task: Task, channels: list[Channel], kind: MailKind, folder: str) -> None:
    """The process of one member."""
    endpoint = kind.local(f"{folder}/sip-{rank}")

    def make(mail: SipMail, *shell: Any) -> SyncClient:
        return Trivial(rank, task, channels, endpoint, mail, *shell)

    broker = kind.local(f"{folder}/broker")
    run_client(SipProcessSpec(rank=rank, broker=broker, endpoint=endpoint, shared_cpu_seed=os.getppid()), make)


def cost_of(reports: list[list[Any]], broker_cpu_s: float) -> Cost:
    """Return the cost from the members' reports; the wall time is from the earliest start to the latest end."""
    wall_s = max(row[2] for row in reports) - min(row[1] for row in reports)
    return Cost(sum(row[0] for row in reports), wall_s, sum(row[3] for row in reports), broker_cpu_s)


def run_unsynchronised(task: Task) -> Cost:
    """The work of ``work`` in as many processes, in plain SimPy, without messages between them."""
    pipes = [os.pipe() for _ in range(task.members)]

    def alone(write: int) -> None:
        engine = Engine()
        engine.env.process(working(engine.env, task))
        began_s, cpu_s = time.monotonic(), time.process_time()
        engine.run_before(None, 10**12)
        report = [task.size, began_s, time.monotonic(), time.process_time() - cpu_s, engine.now_ps]
        os.write(write, json.dumps(report).encode())

    pids = [fork(lambda w=write: alone(w)) for _, write in pipes]
    reap(pids)
    reports = [json.loads(os.read(read, 4096)) for read, _ in pipes]
    for pipe in pipes:
        os.close(pipe[0])
        os.close(pipe[1])
    return cost_of(reports, 0.0)


def run_helics(task: Task, core: str, tuned: bool) -> Cost:
    """The same with HELICS."""
    size = task.size * 500 if task.pattern in ("step", "work") else task.size
    got = _helics.measure(task.pattern, task.members, core, size, task.events, task.seed, tuned)
    return Cost(got.ops, got.wall_s, got.member_cpu_s, got.broker_cpu_s, got.late)


def ping_router(count: int) -> Cost:
    """There and back through a ROUTER between two processes; an operation is one way."""
    with tempfile.TemporaryDirectory(prefix="ahbm-") as folder:

        def answer() -> None:
            context = zmq.Context()
            router = context.socket(zmq.ROUTER)
            router.bind(f"ipc://{folder}/ping")
            for _ in range(count):
                router.send_multipart(router.recv_multipart())
            router.close()
            context.term()

        pid = fork(answer)
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(f"ipc://{folder}/ping")
        cost = _ping(lambda: (dealer.send(b"x" * 64), dealer.recv()), count)
        dealer.close()
        context.term()
        return cost._replace(broker_cpu_s=reap([pid])[0])


def ping_unix(count: int) -> Cost:
    """There and back over a pair of Unix datagram sockets between two processes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def answer() -> None:
        for _ in range(count):
            theirs.send(theirs.recv(4096))

    pid = fork(answer)
    cost = _ping(lambda: (ours.send(b"x" * 64), ours.recv(4096)), count)
    ours.close()
    theirs.close()
    return cost._replace(broker_cpu_s=reap([pid])[0])


def _ping(there_and_back: Callable[[], object], count: int) -> Cost:
    began_s, cpu_s = time.monotonic(), time.process_time()
    for _ in range(count):
        there_and_back()
    return Cost(2 * count, time.monotonic() - began_s, time.process_time() - cpu_s, 0.0)


# --- the table ------------------------------------------------------------------------------------------------


Entry = tuple[tuple[str, str, str, int], Callable[[int], Cost]]


def entries(chosen: argparse.Namespace) -> list[Entry]:
    """What is to be measured: (tool, transport, pattern, members), and how, given a seed."""
    found: list[Entry] = [
        (("floor", "zmq", "ping", 2), lambda _seed: ping_router(chosen.hops)),
        (("floor", "unix", "ping", 2), lambda _seed: ping_unix(chosen.hops)),
    ]
    is_tuned = chosen.vs == "helics-tuned"
    for pattern in chosen.patterns:
        size = {"ring": chosen.hops, "phold": chosen.until}.get(pattern, chosen.windows)
        for members in chosen.members:
            task = Task(pattern, members, size, chosen.events, 0)
            for mail in chosen.mail:
                run = lambda seed, t=task, k=MAIL_KINDS[mail]: run_ahbm(t._replace(seed=seed), k)  # noqa: E731
                found.append((("ahbm", mail, pattern, members), run))
                if pattern == "work":
                    alone = lambda seed, t=task: run_unsynchronised(t._replace(seed=seed))  # noqa: E731
                    found.append((("floor", mail, pattern, members), alone))
            for core in chosen.cores if chosen.vs != "nothing" else ():
                theirs = lambda seed, t=task, c=core: run_helics(t._replace(seed=seed), c, is_tuned)  # noqa: E731
                found.append((("helics", core, pattern, members), theirs))
    return found


def row_of(name: tuple[str, str, str, int], costs: list[Cost]) -> dict[str, Any]:
    """Medians of the runs of one entry."""
    tool, transport, pattern, members = name

    def middle(value: Callable[[Cost], float]) -> float:
        return statistics.median(value(cost) for cost in costs)

    return {
        "tool": tool,
        "transport": transport,
        "pattern": pattern,
        "members": members,
        "ops_per_s": middle(lambda c: c.ops / c.wall_s),
        "us_each": middle(lambda c: 1e6 * c.wall_s / c.ops),
        "cpu_us_each": middle(lambda c: 1e6 * (c.member_cpu_s + c.broker_cpu_s) / c.ops),
        "member_cpu_us_each": middle(lambda c: 1e6 * c.member_cpu_s / c.ops),
        "broker_cpu_us_each": middle(lambda c: 1e6 * c.broker_cpu_s / c.ops),
        "late": max(cost.late for cost in costs),
        "runs": len(costs),
    }


def compare(rows: list[dict[str, Any]]) -> None:
    """Add to each of our rows what the others in it come to: ratios, and the overhead over unsynchronised work."""
    for row in rows:
        if row["tool"] != "ahbm":
            continue
        beside = [r for r in rows if (r["pattern"], r["members"]) == (row["pattern"], row["members"])]
        theirs = {r["transport"]: r["ops_per_s"] for r in beside if r["tool"] == "helics"}
        if theirs:
            row["vs_helics"] = {core: row["ops_per_s"] / ops for core, ops in theirs.items()}
            row["vs_helics_fastest"] = row["ops_per_s"] / max(theirs.values())
        for floor in beside:
            if floor["tool"] == "floor" and floor["transport"] == row["transport"]:
                row["overhead"] = 1 - floor["us_each"] / row["us_each"]


def show(rows: list[dict[str, Any]]) -> None:
    """The rows, with their ratios after them."""
    costs = ("us each:8.1f", "CPU us:7.1f", "members:8.1f", "broker:7.1f")
    table = Table("pattern:<7", "N:3", "tool:<7", "mail:<5", "ops/s:9.0f", *costs)
    keys = ("pattern", "members", "tool", "transport", "ops_per_s", "us_each", "cpu_us_each")
    for row in rows:
        more = "".join(f"  x{ratio:.1f} of helics {core}" for core, ratio in row.get("vs_helics", {}).items())
        more += f"  {row['late']} messages late" if row["late"] else ""
        more += f"  overhead {100 * row['overhead']:.1f} % of wall" if "overhead" in row else ""
        table.row(*(row[key] for key in keys), row["member_cpu_us_each"], row["broker_cpu_us_each"], more=more)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """A row for each tool, transport, pattern and number of members."""
    if chosen.vs != "nothing" and importlib.util.find_spec("helics") is None:
        refuse("sync", "HELICS is not installed here; pip install helics")
    gc.freeze()
    todo = entries(chosen)
    costs: dict[tuple[str, str, str, int], list[Cost]] = {name: [] for name, _ in todo}
    for seed in range(chosen.repeat):
        for name, run in todo:
            costs[name].append(run(seed))
    rows = [row_of(name, measured) for name, measured in costs.items()]
    compare(rows)
    show(rows)
    return {"rows": rows}
