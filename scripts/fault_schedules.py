"""Draws schedules of faults over programs of all kinds, and checks how every run ends. A table; exit 1 when broken.

    nice scripts/fault_schedules.py --count 120 --at-a-time 4
    scripts/fault_schedules.py --seeds 37,41 -v

A schedule is a program, an engine, up to three faults of ``--fault``, and what the run may do about them:

    die      nothing: it has the digest of an undisturbed run, or ends with a failure that one of the faults explains
    restart  --max-restarts 9: that digest; each process that is started again is one that a fault has hit
    resume   --run-dir, and --resume until the run has ended well: that digest; each end before is explained

A failure is explained by a fault of that rank, process or host which can have it: a rank that computes is never ended
as hung because another one stalls. After every run nothing may be left of it, no process and no file. All is drawn
from the seed, with times from an undisturbed run, so that a seed names a schedule while programs and host are the same.
"""

import argparse
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kill_matrix import AGENTS, LOCAL, SSH, Run

from sipsim.core.errors import ERROR_KINDS

GROUPS = """
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    pairs, _ = dist.new_subgroups(2, pes=[0])
    mine = torch.zeros((6000,), dtype="f32", dp=DPPolicy(num_cubes=1)).fill_(rank)

    def compute(tl):
        for _ in range(20):
            tl.zeros(4096, "f32") + 1

    for step in range(4):
        work = dist.all_reduce(mine, group=pairs, async_op=True)
        torch.launch(compute, cubes=0, pes=1, async_op=True).wait()
        work.wait()
        dist.barrier()
        dist.all_reduce(torch.ones((4, 64), dtype="f32"), algorithm="ring")
    assert mine.numpy().tolist() == [8.0 * (2 * (rank // 2) * 2 + 1)] * 6000
"""
KERNELS = """
def around(t, laps, tl):
    values = tl.load(t, 256)
    for _ in range(laps):
        tl.send("E", values)
        values = tl.recv("W", 256, t.dtype) + 1
    tl.store(t, values)


def worker(rank, world_size, torch):
    for laps in (world_size, 3 * world_size):
        torch.launch(around, torch.ones(4, 256, dtype="i32"), laps)
"""
RING = "algorithms:\n  ring: {module: ring.py, topology: ring_1d, rank_per: cube}\ndefaults: {algorithm: ring}\n"
RING_MODULE = "def kernel(t, n, tl): ...\ndef kernel_args(world_size, n): return (n,)\n"
SMALL = ("--set", "sip.cube_mesh={w: 2, h: 2}")
TENSIX = "docs/examples/tensix"
BENCHES = "scripts/benches"
DEADLINE_S = 2
RESTARTS = 9
RESUMES = 6
END_S = 600.0
"""Nobody needs as long on a loaded host."""


class Program(NamedTuple):
    """What runs. ``ports``: those whose links may go down. ``{folder}`` in ``argv`` is where the scripts above lie."""

    name: str
    argv: tuple[str, ...]
    ports: tuple[str, ...] = ()


def _program(name: str, line: str, *more: str, ports: tuple[str, ...] = ()) -> Program:
    return Program(name, (*more, *line.split()), ports)


PROGRAMS = (
    _program("all_reduce", "--sips 4 --topology torus_2d --bytes 256K -n 2", *SMALL),
    _program("all_to_all", "--sips 3 --topology ring_1d --collective all_to_all --bytes 64K -n 2", *SMALL),
    _program("intercube", "--sips 2 --collective intercube -n 2", *SMALL),
    _program("broadcast", "--sips 4 --collective broadcast --algorithm tree --bytes 64K", *SMALL),
    _program(
        "ethernet",
        "--sips 4 --link ethernet_100g --topology ring_1d --collective reduce_scatter --bytes 128K",
        *SMALL,
        ports=("0.E", "2.E", "3.W"),
    ),
    _program("groups", "--sips 4 {folder}/groups.py", *SMALL),
    _program("kernels", "--sips 3 --topology ring_1d --ccl {folder}/ring.yaml {folder}/kernels.py", *SMALL),
    _program("mlp", f"--sips 4 --topology torus_2d {BENCHES}/mlp.py --tokens 64 --hidden 128 --ffn 1024"),
    _program("softmax", f"--sips 2 {BENCHES}/softmax.py"),
    _program(
        "wormhole ping", f"--chip wormhole --sips 4 --topology ring_1d {TENSIX}/ring_ping.py", ports=("0.E", "2.E")
    ),
    _program("wormhole edm", f"--chip wormhole --sips 4 --topology ring_1d {TENSIX}/ring_ping_edm.py", ports=("1.E",)),
    _program(
        "blackhole slices", f"--chip blackhole --sips 2 --topology ring_1d {TENSIX}/slices.py", ports=("0.E", "1.E")
    ),
    _program("t3000", f"--topology t3000 {TENSIX}/ring_ping.py 16 3 0,4,5,1,2,6,7,3"),
)
ENGINES = {"local": LOCAL, "unix": (*LOCAL, "--mail", "unix"), "agents": AGENTS}


class Undisturbed(NamedTuple):
    """What a program does without faults of processes."""

    digest: str
    sips: int
    span_ps: int
    wall_s: float


class Schedule(NamedTuple):
    """``faults``: specs of ``--fault``; the outages of links among them are part of the simulated system."""

    seed: int
    program: Program
    engine: str
    may: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        """One line."""
        return (
            f"seed {self.seed}: {self.program.name}, {self.engine}, {self.may}: {' '.join(self.faults) or 'no fault'}"
        )


def outages(faults: tuple[str, ...]) -> tuple[str, ...]:
    """Those faults that the digest covers."""
    return tuple(fault for fault in faults if fault.startswith("link:"))


# --- drawing --------------------------------------------------------------------------------------------------


def draw(seed: int, program: Program, known: Undisturbed) -> Schedule:
    """The schedule of a seed, whose program was drawn first."""
    dice = random.Random(f"schedule {seed}")
    may = dice.choice(("die", "restart", "restart", "restart", "resume", "resume"))
    engine = dice.choice(("local", "local", "unix", "agents"))
    kinds = ["kill", "kill", "exit", "stop", "hang", "mute", "slow", "random"]
    kinds += ["broker", "launcher"] * 2 if may == "resume" else []
    kinds += ["agent"] * 2 if engine == "agents" else []
    faults = [_fault(dice, dice.choice(kinds), known) for _ in range(dice.randint(1, 3))]
    if program.ports and dice.random() < 0.5:
        at, length = (dice.randrange(1, known.span_ps) for _ in range(2))
        faults.append(f"link:{dice.choice(program.ports)}@{at}ps:{length}ps")
    return Schedule(seed, program, engine, may, tuple(faults))


def _fault(dice: random.Random, kind: str, known: Undisturbed) -> str:
    at_ps, rank = dice.randrange(known.span_ps), dice.randrange(known.sips)
    if kind in ("launcher", "agent"):
        at = f"{1000 * known.wall_s * dice.random():.0f}ms"
        return f"launcher@{at}" if kind == "launcher" else f"agent:{dice.choice('ab')}@{at}"
    if kind == "broker":
        return f"broker@{at_ps}ps"
    if kind == "random":
        return f"random:{dice.randrange(10_000)}:{dice.randint(1, 3)}"
    value = {"exit": f":{dice.choice((0, 1, 7))}", "slow": f":x{dice.randint(2, 5)}"}.get(kind, "")
    again = "#1" if dice.random() < 0.2 else ""
    return f"{kind}:{rank}@{'join' if dice.random() < 0.08 else f'{at_ps}ps'}{value}{again}"


# --- checking -------------------------------------------------------------------------------------------------

LINE = re.compile(r"ahbm-launch: (?:\w+: )?(?P<text>.*)")
SAYS = (
    ("not_joined", re.compile(r"joined .*; missing: (?P<rank>\d+)"), ("stop", "hang", "mute")),
    ("not_joined", re.compile(r"rank (?P<rank>\d+) .*has not joined within"), ("stop", "hang", "mute")),
    ("hung", re.compile(r"rank (?P<rank>\d+) .*has made no progress .*; its process computes"), ("hang", "mute")),
    ("hung", re.compile(r"rank (?P<rank>\d+) .*has made no progress .*; its process is stopped"), ("stop",)),
    ("hung", re.compile(r"rank (?P<rank>\d+) .*has made no progress"), ("stop", "hang", "mute", "slow")),
    ("hung", re.compile(r"rank (?P<rank>\d+) .*has sent no result for"), ("stop", "hang", "mute", "slow")),
    ("peer_lost", re.compile(r"rank (?P<rank>\d+) .*is lost: its connection to the broker"), ("stop",)),
    ("killed", re.compile(r"rank (?P<rank>\d+) .*was killed by SIGKILL"), ("kill",)),
    ("exit", re.compile(r"rank (?P<rank>\d+) .*ended with exit code"), ("exit",)),
    ("broker", re.compile(r"the broker \(pid \d+\) was killed by SIGKILL"), ("broker",)),
    ("agent", re.compile(r"the agent on (?P<host>\w+) "), ("agent",)),
    ("agent", re.compile(r"(?P<host>\w+): no agent has started: "), ("agent",)),
)
"""Failures of processes: kind, pattern of the launcher's line, and the faults that explain the failure."""


def failure_in(line: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the failure in a launcher's line, its rank or host, and the faults that explain it; else None."""
    found = LINE.fullmatch(line)
    for kind, pattern, causes in SAYS if found else ():
        match = pattern.match(found["text"])
        if match:
            places = match.groupdict()
            return kind, places.get("rank") or places.get("host") or "", causes
    return None


def unexplained(err: str, faults: tuple[str, ...]) -> list[str]:
    """The failures that no fault explains: lines of restarts, and the one that ended the run."""
    lines = err.splitlines()
    drawn = next((line.split(": ", 2)[2] for line in lines if "faults drawn: " in line), "")
    known = {*faults, *filter(None, drawn.split(", "))}
    wrong = []
    for line in lines:
        head = line.removeprefix("ahbm-launch: ").partition(": ")[0]
        if "; started again (" not in line and not (line.startswith("ahbm-launch: ") and head in ERROR_KINDS):
            continue
        found = failure_in(line)
        if found is None or not any(_explains(spec, found[1], found[2]) for spec in known):
            wrong.append(line)
    return wrong


def _explains(spec: str, place: str, causes: tuple[str, ...]) -> bool:
    kind, where = re.split("[:@]", spec)[:2]
    return kind in causes and (where == place or not place)


# --- running --------------------------------------------------------------------------------------------------


class Campaign:
    """All schedules, and what came of them."""

    def __init__(self, folder: Path, verbose: bool) -> None:
        self._folder = folder
        self._verbose = verbose
        self._known: dict[tuple[str, tuple[str, ...]], Undisturbed] = {}
        self._lock = threading.Lock()
        for name, text in (
            ("groups.py", GROUPS),
            ("kernels.py", KERNELS),
            ("ring.yaml", RING),
            ("ring.py", RING_MODULE),
        ):
            (folder / name).write_text(text)
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o700)

    @contextlib.contextmanager
    def _run(self, argv: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[Run]:
        run = Run(self._folder, [word.replace("{folder}", str(self._folder)) for word in argv], flags)
        try:
            yield run
        finally:
            run.close()

    def undisturbed(self, program: Program, down: tuple[str, ...] = ()) -> Undisturbed:
        """Measured once."""
        key = program.name, down
        if key not in self._known:
            with self._run((*_flags(down), *program.argv), LOCAL) as run:
                code, _, err, _ = run.end(END_S)
                assert code == 0, f"{program.name}: {err}"
                document = json.loads(run.json.read_text())
            span_ps = max(rank["sim_end_ps"] for rank in document["ranks"])
            self._known[key] = Undisturbed(document["digest"], document["sips"], span_ps, document["wall_s"]["total"])
        return self._known[key]

    def once(self, seed: int) -> tuple[Schedule, str, str]:
        """The schedule of a seed, how its run ended, and what was wrong with that; empty for nothing."""
        began_s = time.monotonic()
        program = random.Random(f"program {seed}").choice(PROGRAMS)
        with self._lock:
            schedule = draw(seed, program, self.undisturbed(program))
            digest = self.undisturbed(program, outages(schedule.faults)).digest
        ended, wrong = self._play(schedule, digest)
        with self._lock:
            print(
                f"{schedule}\n    {ended}, {time.monotonic() - began_s:.0f} s{f': {wrong}' if wrong else ''}",
                flush=True,
            )
        return schedule, ended, wrong

    def _play(self, schedule: Schedule, digest: str) -> tuple[str, str]:
        keep = self._folder / uuid.uuid4().hex
        may = {"restart": ("--max-restarts", str(RESTARTS)), "resume": ("--run-dir", str(keep))}.get(schedule.may, ())
        argv = (*may, "--progress-timeout", str(DEADLINE_S), *_flags(schedule.faults), *schedule.program.argv)
        flags = ENGINES[schedule.engine]
        ended, found = "ok", ""
        for attempt in range(RESUMES if schedule.may == "resume" else 1):
            code, found, wrong = self._attempt(argv, flags, schedule.faults, digest)
            if wrong or code == 0:
                return ended if code == 0 else found, wrong
            if schedule.may == "die":
                return found, ""
            if schedule.may == "resume" and not (keep / "run.json").exists():
                return "nothing kept", "" if code == -signal.SIGKILL else f"no run is kept: {found}"
            argv, flags, ended = ("--resume", str(keep)), (), f"ok, resumed {attempt + 1} times"
        return found, f"the run has not ended well: {found}"

    def _attempt(
        self, argv: tuple[str, ...], flags: tuple[str, ...], faults: tuple[str, ...], digest: str
    ) -> tuple[int, str, str]:
        """Exit code, the failure in a word, and what was wrong."""
        with self._run(argv, flags) as run:
            try:
                code, _, err, _ = run.end(END_S)
            except subprocess.TimeoutExpired:
                return 1, "no end", f"the launcher has not ended after {END_S:g} s"
            if self._verbose:
                print(err, end="")
            if run.left() or run.left_files():
                return code, "left", f"processes {run.left()} and files {run.left_files()} are left"
            document: dict[str, Any] = json.loads(run.json.read_text()) if run.json.exists() else {}
        strange = unexplained(err, faults)
        if strange:
            return code, "unexplained", " | ".join(strange)
        if code == 0:
            return code, "ok", "" if document["digest"] == digest else f"digest {document['digest']}, not {digest}"
        if code == -signal.SIGKILL and any(fault.startswith("launcher") for fault in faults):
            return code, "launcher killed", ""
        kind = (document.get("error") or {}).get("kind", "none")
        return code, kind, "" if code == 4 else f"exit code {code}: {err}"


def _flags(faults: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for fault in faults for word in ("--fault", fault))


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="schedules (120)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", help="these seeds, such as 37,41, in place of a count")
    parser.add_argument("--at-a-time", type=int, default=4, help="runs at a time (4)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what each run says")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.count)
    seeds = [int(seed) for seed in chosen.seeds.split(",")] if chosen.seeds else seeds
    # Not the system's, whose names may be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="ahbm-faults-", dir="/tmp") as folder:
        campaign = Campaign(Path(folder), chosen.verbose)
        with ThreadPoolExecutor(chosen.at_a_time) as pool:
            done = list(pool.map(campaign.once, seeds))
    print(f"\n{len(done)} schedules:")
    for (name, may, ended), count in sorted(Counter((s.program.name, s.may, ended) for s, ended, _ in done).items()):
        print(f"{name:<18}{may:<9}{ended:<24}{count:>5}")
    broken = [f"{schedule}\n    {wrong}" for schedule, _, wrong in done if wrong]
    print(f"broken: {len(broken) or 'none'}", *broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
