"""HELICS (https://helics.org) under the patterns of ``sync.py``: what its time synchronisation costs.

The broker and every member are processes of their own: this file again, run by the same interpreter. A member is a
message federate with one global endpoint. Times are whole ns here and seconds (ns / 1e9) for HELICS, which rounds
them to its base unit, 1 ns. A message carries the time it is due at, so that one that comes at another time is seen.
``SETTINGS`` are the fastest of HELICS 3.6.1 that deliver every message at its time.
"""

import argparse
import contextlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, NamedTuple

LOOKAHEAD_NS = MEAN_NS = 500
MESSAGES = 4
DEADLINE_S = 60.0
Job = argparse.Namespace  # the arguments of a run, its name and port, the rank of the child

# Of each pattern: output delay in ns (the lookahead), the broker's --timing, and the restrictive time policy.
# An input delay instead is added to the time of a message; when the sender takes it off, most messages of phold come
# after their time. The restrictive policy deadlocks when members who may all send to each other wait for a time beyond
# their lookahead (with global timing: now and then); where all ask for the next 500 ns only, it costs nothing.
SETTINGS = {
    # Only the ring declares its connections to HELICS (``Member``): up to twice as fast at 8 members. It then needs the
    # restrictive policy: the default one lets members run to the end without the token.
    "ring": (LOOKAHEAD_NS, "distributed", True),
    # Everybody asks for the next 500 ns only. Of messages due just when a member was granted, some few come after.
    "phold": (LOOKAHEAD_NS, "distributed", True),
    # With global timing, some members are granted a window before all the others have asked for it.
    "step": (LOOKAHEAD_NS, "distributed", True),
    "work": (LOOKAHEAD_NS, "distributed", True),
}
TUNED = {
    **SETTINGS,
    # Without the restrictive policy members may ask for any time, and global timing is 1.3 to 1.9 times as fast as
    # distributed. It grants up to the delay *inclusive*: with 500 ns one of two messages due at the same ns may come
    # late, with 499 none did. (Distributed hung in 4 of some 60 runs with N = 8.)
    "phold": (LOOKAHEAD_NS - 1, "global", False),
}


class Measured(NamedTuple):
    """One run: operations of all members, seconds, and messages that came at another simulated time than theirs."""

    ops: int
    wall_s: float
    member_cpu_s: float
    broker_cpu_s: float
    late: int


def measure(
    pattern: str, members: int, core: str, hops_or_until: int, events: int = 0, seed: int = 0, tuned: bool = False
) -> Measured:
    """One run of a pattern: hops (ring) or simulated ns (others). RuntimeError if it fails or lasts DEADLINE_S.

    With the restrictive time policy, unless ``tuned``: then with what is fastest and still exact.
    """
    job = Job(pattern=pattern, members=members, core=core, size=hops_or_until, events=events, seed=seed)
    job.settings = (TUNED if tuned else SETTINGS)[pattern]
    job.name, job.port = f"ab{uuid.uuid4().hex[:12]}", 0 if core == "ipc" else free_ports(4 + 4 * members)
    ends = time.monotonic() + DEADLINE_S
    children: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as noise:
        try:
            children.append(spawn(job, noise, -1, 0))
            output(children, ends, b"ready\n")
            children += [spawn(job, noise, rank, children[0].pid) for rank in range(members)]
            reports = [json.loads(line) for line in output(children, ends)[1:]]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            noise.seek(max(0, noise.seek(0, os.SEEK_END) - 1000))
            said = noise.read().decode(errors="replace")
            raise RuntimeError(f"HELICS {core}, {pattern}, {members} members: {error}\n{said}") from None
        finally:
            remove(children, job)
    ops, cpu_s, late, starts, stops, broker_starts, broker_ends = zip(*reports, strict=True)
    return Measured(sum(ops), max(stops) - min(starts), sum(cpu_s), max(broker_ends) - min(broker_starts), sum(late))


def spawn(job: Job, noise: IO[bytes], rank: int, broker_pid: int) -> subprocess.Popen[bytes]:
    """A member, or the broker (-1). Its report is on stdout; all output of HELICS is in ``noise``."""
    command = [sys.executable, "-P", __file__, json.dumps({**vars(job), "rank": rank, "broker_pid": broker_pid})]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=noise)


def output(children: list[subprocess.Popen[bytes]], ends: float, until: bytes = b"") -> list[bytes]:
    """Return the output of each child up to its successful end, or up to the first output ``until`` of all."""
    outputs = [b""] * len(children)
    with selectors.DefaultSelector() as selector:
        for index, child in enumerate(children):
            selector.register(child.stdout, selectors.EVENT_READ, index)  # type: ignore[arg-type]
        while selector.get_map():
            if not (ready := selector.select(max(0.0, ends - time.monotonic()))):
                raise RuntimeError("not done at the deadline")
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                outputs[key.data] += data
                if not data and (status := children[key.data].wait(10)):
                    raise RuntimeError(f"a process failed with status {status}")
                if not data or (until and outputs[key.data] == until):
                    selector.unregister(key.fileobj)
    return outputs


def remove(children: list[subprocess.Popen[bytes]], job: Job) -> None:
    """Kill and reap what still runs, and take away the queues that it would leave behind."""
    for child in children:
        with child:  # which closes its pipe and waits for it
            if child.poll() is None:
                child.kill()
    for queue in Path("/dev/shm").glob(f"{job.name}*"):
        queue.unlink(missing_ok=True)


def free_ports(count: int) -> int:
    """The first of so many ports that are free on this host, below those it hands out by itself."""
    while True:
        first = random.SystemRandom().randrange(20000, 32000 - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def run_child(job: Job) -> None:
    """The broker or a member. It ends by itself, should its parent be killed. Only its report is written to stdout."""
    signal.alarm(int(DEADLINE_S) + 10)
    with os.fdopen(os.dup(1), "w") as reports_file:
        os.dup2(2, 1)
        (run_broker if job.rank < 0 else run_member)(job, reports_file)


def run_broker(job: Job, reports_file: IO[str]) -> None:
    """The process of the HELICS broker."""
    import helics as h

    # The queue of an ipc broker is /dev/shm/_ipc_broker for every broker, whatever its name, unless this says other.
    place = f"--local_interface={job.name}" if job.core == "ipc" else f"--port={job.port}"
    settings = f"--brokerkey={job.name} --loglevel=no_print --timing={job.settings[1]}"
    broker = h.helicsCreateBroker(job.core, job.name, f"-f {job.members} {settings} {place}")
    print("ready", file=reports_file, flush=True)
    h.helicsBrokerWaitForDisconnect(broker, -1)
    h.helicsCloseLibrary()


def run_member(job: Job, reports_file: IO[str]) -> None:
    """The process of a member. It reads the CPU clock of the broker too (a Linux clock id made of its pid)."""
    import helics as h

    if job.pattern == "work":
        import simpy  # noqa: F401 - not on the clock
    member = Member(h, job)
    broker_clock = ~job.broker_pid << 3 | 2
    h.helicsFederateEnterExecutingMode(member.federate)
    broker_start_s, start_s, cpu_s = time.clock_gettime(broker_clock), time.monotonic(), time.process_time()
    ops = {"ring": ring, "phold": phold}.get(job.pattern, step)(member, job)
    end_s, cpu_s = time.monotonic(), time.process_time() - cpu_s
    report = [ops, cpu_s, member.late, start_s, end_s, broker_start_s, time.clock_gettime(broker_clock)]
    print(json.dumps(report), file=reports_file, flush=True)
    h.helicsFederateDisconnect(member.federate)
    h.helicsCloseLibrary()


class Member:
    """A federate and its endpoint, on the C functions below ``helics.capi``, which cost less than its wrappers."""

    def __init__(self, h: Any, job: Job) -> None:
        delay_ns, _, restrictive = job.settings
        place = f"--broker_address={job.name}" if job.core == "ipc" else f"--brokerport={job.port}"
        info = h.helicsCreateFederateInfo()
        h.helicsFederateInfoSetCoreTypeFromString(info, job.core)
        h.helicsFederateInfoSetCoreName(info, f"{job.name}_{job.rank}")
        h.helicsFederateInfoSetCoreInitString(info, f"-f 1 --brokerkey={job.name} --loglevel=no_print {place}")
        h.helicsFederateInfoSetTimeProperty(info, h.HELICS_PROPERTY_TIME_OUTPUT_DELAY, delay_ns / 1e9)
        h.helicsFederateInfoSetFlagOption(info, h.HELICS_FLAG_RESTRICTIVE_TIME_POLICY, restrictive)
        h.helicsFederateInfoSetIntegerProperty(info, h.HELICS_PROPERTY_INT_LOG_LEVEL, h.HELICS_LOG_LEVEL_NO_PRINT)
        self.federate = h.helicsCreateMessageFederate(f"m{job.rank}", info)
        if job.pattern == "ring":
            self.endpoint = h.helicsFederateRegisterGlobalTargetedEndpoint(self.federate, f"e{job.rank}", "")
            h.helicsEndpointAddDestinationTarget(self.endpoint, f"e{(job.rank + 1) % job.members}")
        else:
            self.endpoint = h.helicsFederateRegisterGlobalEndpoint(self.federate, f"e{job.rank}", "")
        self.late = 0
        self._lib, self._ffi, self._error = h.capi.lib, h.capi.ffi, h.capi.helicsErrorInitialize()

    def call(self, function: Any, *given: Any) -> Any:
        """A C function that may fail."""
        result = function(*given, self._error)
        if self._error.error_code:
            raise RuntimeError(self._ffi.string(self._error.message).decode())
        return result

    def send(self, peer: int, due_ns: int) -> None:
        """A message for that time."""
        name, body = b"e%d" % peer, due_ns.to_bytes(8, "little")
        self.call(self._lib.helicsEndpointSendBytesToAt, self.endpoint.handle, body, 8, name, due_ns / 1e9)

    def wait(self, until_ns: int) -> int:
        """The time granted, in ns: that of a message, or the one asked for."""
        return round(self.call(self._lib.helicsFederateRequestTime, self.federate.handle, until_ns / 1e9) * 1e9)

    def received(self, now_ns: int) -> Generator[None, None, None]:
        """Once for each message that is there. It is late when it was not for now."""
        lib, endpoint = self._lib, self.endpoint.handle
        while lib.helicsEndpointHasMessage(endpoint):
            message = lib.helicsEndpointGetMessage(endpoint)
            body = self._ffi.buffer(lib.helicsMessageGetBytesPointer(message), 8)
            self.late += int.from_bytes(body, "little") != now_ns
            lib.helicsMessageFree(message)
            yield


def ring(member: Member, job: Job) -> int:
    """Tokens received of the one that goes round, ``size`` hops in all."""
    ops, peer, last_ns = 0, (job.rank + 1) % job.members, job.size * LOOKAHEAD_NS
    if job.rank == 0:
        member.send(peer, LOOKAHEAD_NS)
    while (now_ns := member.wait(last_ns + LOOKAHEAD_NS)) <= last_ns:
        for _ in member.received(now_ns):
            ops += 1
            if now_ns < last_ns:
                member.send(peer, now_ns + LOOKAHEAD_NS)
    return ops + sum(1 for _ in member.received(now_ns))


def phold(member: Member, job: Job) -> int:
    """Messages received up to ``size`` ns. Those for later are drawn like others but not sent."""
    draw = random.Random(f"{job.seed}/{job.rank}")
    others = [rank for rank in range(job.members) if rank != job.rank]

    def answer(now_ns: int) -> None:
        peer = others[draw.randrange(len(others))]
        due_ns = now_ns + LOOKAHEAD_NS + int(draw.expovariate(1 / MEAN_NS))
        if due_ns <= job.size:
            member.send(peer, due_ns)

    ops = 0
    for _ in range(MESSAGES):
        answer(0)
    ahead_ns = LOOKAHEAD_NS if job.settings[2] else job.size + 1
    now_ns = 0
    while (now_ns := member.wait(min(now_ns + ahead_ns, job.size + 1))) <= job.size:
        for _ in member.received(now_ns):
            ops += 1
            answer(now_ns)
    return ops + sum(1 for _ in member.received(now_ns))


def step(member: Member, job: Job) -> int:
    """Windows; in each of them ``events`` events of a SimPy process, when the pattern is work."""
    windows, events = job.size // LOOKAHEAD_NS, simpy_events(job.events)
    for window in range(1, windows + 1):
        if job.pattern == "work":
            next(events)
        member.late += member.wait(window * LOOKAHEAD_NS) != window * LOOKAHEAD_NS
    return windows


def simpy_events(count: int) -> Generator[None, None, None]:
    """At each step, so many events of a SimPy process that waits all the time."""
    import simpy

    env = simpy.Environment()
    env.process(env.timeout(LOOKAHEAD_NS / count) for _ in iter(int, 1))
    while True:
        for _ in range(count):
            env.step()
        yield


if __name__ == "__main__":
    run_child(Job(**json.loads(sys.argv[1])))
