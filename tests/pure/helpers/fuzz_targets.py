"""What decodes bytes that others wrote, and the only error that it may answer with. For tests.

Not a test. A target takes bytes and does with them all that a process does before it believes them; whatever it raises
besides the error that it documents is a bug. What is accepted must survive being told again.
"""

import argparse
import contextlib
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import numpy as np
from msgspec.structs import replace
from wire_packets import barrier_packet, credit, message_from

from broker import wire
from broker.security import JobKeys
from broker.wire import BadFrame
from launcher import flag_types
from launcher.engines.remote import of_the_allocation
from launcher.hosts.bootstrap import Bootstrap
from launcher.hosts.wire import BadMessage, decode_from_agent, decode_to_agent, encode
from launcher.options import parse
from launcher.processes.entry import node_rank
from launcher.processes.ticket import Ticket
from launcher.report.checks import BadRecording
from launcher.report.checks import load as load_recorded_io
from launcher.report.files import write_trace
from launcher.run.folder import RUN_FILE, SCHEMA, resumed_options
from sipsim import VERSION
from sipsim.chips.ahbm.barrier import Counts
from sipsim.chips.ahbm.ipcq.messages import CreditFrame, WireCredit
from sipsim.chips.config import load
from sipsim.collectives.call import GroupCall
from sipsim.config.load import parse_set
from sipsim.config.yaml import YamlMistake, parse_text
from sipsim.core.errors import ConfigError
from sipsim.fabric.links.frames import Packet
from sipsim.fabric.links.frames import decode as decode_packet
from sipsim.fabric.links.frames import encode as encode_packet
from sipsim.insight.hangs.deadlock import explain_deadlock
from sipsim.node.faults import BadFault, RandomFaults, parse_fault
from sipsim.node.packet_log import PacketLog
from sipsim.records.artifacts import RECORDED_IO, make_artifact_folder, rank_folder
from sipsim.records.dump import BlockedResource, QueueState, SipDump, TaskState
from sipsim.records.job import Job
from sipsim.records.oplog import TRACE_FILE
from sipsim.records.report import RankOutcome, RunRecord, outcome_from_bytes

MOST = 2**63 - 1
MOST_DRAWN = 100
"""Of the faults that a spec asks to be drawn: a thousand take their time, and are no slower each."""
DECODERS = {
    wire.ToBroker: wire.decode_for_broker,
    wire.ToSip: wire.decode_for_sip,
    wire.ToLauncher: wire.decode_for_launcher,
}


class Target(NamedTuple):
    """``take`` may raise ``error`` and nothing else; ``samples`` are bytes that it accepts."""

    take: Callable[[bytes], object]
    error: type[Exception]
    samples: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()

    def try_on(self, data: bytes) -> bool:
        """Whether it accepts ``data``."""
        said: str | None = None
        try:
            self.take(data)
        except self.error as error:
            said = str(error)
        assert said != "", "it says what is wrong"
        return said is None


def _take_frame(frame: bytes) -> None:
    """By all three who receive frames."""
    found = []
    for kinds, decode in DECODERS.items():
        try:
            message = decode(frame)
        except BadFrame:
            continue
        assert isinstance(message, get_args(kinds))
        assert decode(wire.encode(message)) == message
        found.append(message)
    assert len(found) <= 1, "a message is for one of them"
    source = wire.source_of(frame)
    if found and isinstance(found[0], wire.PacketBatch):
        assert source in (None, found[0].src)
    if not found:
        raise BadFrame("nobody takes it")


def _take_packet(body: bytes) -> None:
    packet = decode_packet(body)
    assert decode_packet(encode_packet(packet)) == packet


def _take_outcome(blob: bytes) -> None:
    outcome = outcome_from_bytes(blob)
    assert outcome_from_bytes(msgspec.json.encode(outcome)) == outcome


def _take_yaml(data: bytes) -> None:
    parse_text(data.decode("utf-8", "surrogateescape"))


_FOLDER: list[Path] = []


def _scratch(name: str = "sip-0.packets") -> Path:
    """A file of this process's own."""
    if not _FOLDER or not _FOLDER[0].is_dir():
        _FOLDER[:] = [Path(tempfile.mkdtemp(prefix="fuzz-"))]
    folder = _FOLDER[0] / name.replace(".", "-")
    folder.mkdir(exist_ok=True)
    return folder / name


def _take_config(data: bytes) -> None:
    path = _scratch()
    path.write_bytes(data)
    load(config=path)


def _take_set(data: bytes) -> None:
    load(overrides=[parse_set(data.decode("utf-8", "surrogateescape"))])


def _take_fault(data: bytes) -> None:
    fault = parse_fault(data.decode("utf-8", "surrogateescape"))
    if isinstance(fault, RandomFaults):
        for drawn in RandomFaults(fault.seed, min(fault.count, MOST_DRAWN)).draw(3, 10**9, True):
            assert parse_fault(str(drawn)) == drawn
    else:
        assert parse_fault(str(fault)) == fault


def _take_ticket(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(ConfigError):
        bootstrap = Bootstrap.from_text(text, "it")
        for rank in range(min(bootstrap.n_hosts, MOST_DRAWN)):
            bootstrap.keys_of(rank)
        return
    Ticket.from_text(text)


def _take_agent(data: bytes) -> None:
    found = 0
    for decode in (decode_from_agent, decode_to_agent):
        with contextlib.suppress(BadMessage):
            message = decode(data)
            assert encode(decode(encode(message))) == encode(message)
            found += 1
    if not found:
        raise BadMessage("neither side accepts it")


def _take_log(data: bytes) -> None:
    path = _scratch()
    path.write_bytes(data)
    log = PacketLog(str(path.parent), 0, "d")
    try:
        told = log.logged_counts()
        join = wire.Join(3, 0, 2, "1", "d", 4, "h", "e", 1, log.logged_ps, told)
        assert wire.decode_for_broker(wire.encode(join)) == join, "the broker takes what it is told of a log"
        log.append(1, wire.encode(wire.PacketBatch(0, 0, ((0, 1, b""),))))
        log.mark(5)
        for dst, count, _ in told:
            assert sum(len(wire.decode_for_sip(frame).packets) for frame in log.batches(dst)) >= count  # type: ignore[union-attr]
    finally:
        log.close()


def _a_log() -> bytes:
    path = _scratch()
    path.unlink(missing_ok=True)
    log = PacketLog(str(path.parent), 0, "d")
    log.append(1, wire.encode(wire.PacketBatch(0, 0, ((0, 1, b"a"), (2, 9, b"b")))))
    log.mark(7)
    log.append(2, wire.encode(wire.PacketBatch(0, 0, ((0, 4, b"c"),))))
    log.close()
    return path.read_bytes()


def log_of(*records: tuple[int, bytes]) -> bytes:
    """A log with whole records in it, whatever they hold."""
    made = b"ahbm packets 2 d 0\n"
    crc = zlib.crc32(made)
    for dst, body in records:
        head = struct.pack(">Ii", len(body), dst)
        crc = zlib.crc32(head + body, crc)
        made += head + struct.pack(">I", crc) + body
    return made


def _take_dump(blob: bytes) -> None:
    told = explain_deadlock([blob, msgspec.json.encode(DUMP)])
    assert told.headline
    assert msgspec.json.encode(told.facts)


def _take_run_file(data: bytes) -> None:
    path, here = _scratch(RUN_FILE), os.getcwd()
    path.write_bytes(data)
    try:
        resumed_options(path.parent, ["--resume", str(path.parent)], parse(["--resume", str(path.parent)]))
    finally:
        os.chdir(here)


def _take_hosts(data: bytes) -> None:
    path = _scratch("hosts")
    path.write_bytes(data)
    assert flag_types.hosts(f"@{path}")


def _take_environ(data: bytes) -> None:
    pairs = [word.partition("=") for word in data.decode("utf-8", "surrogateescape").split("\0")]
    environ = {name: value for name, _, value in pairs}
    assert 0 <= node_rank(environ, 4) < 4
    assert len(of_the_allocation(environ)) <= 4096


def _take_evidence(data: bytes) -> None:
    folder = str(_scratch().parent)
    (make_artifact_folder(rank_folder(folder, 0), RECORDED_IO) / "0-0-in.npy").write_bytes(data)
    assert load_recorded_io(folder, 0, 0, "in").nbytes <= len(data)


def _take_trace(data: bytes) -> None:
    folder, target = str(_scratch().parent), _scratch("all")
    (make_artifact_folder(rank_folder(folder, 0)) / TRACE_FILE).write_bytes(data)
    write_trace(folder, target)


def _arrays() -> tuple[bytes, ...]:
    path, found = _scratch("0-0-out.npy"), []
    for array in (np.zeros((2, 3), "<f2"), np.arange(4, dtype="<i4"), np.zeros((0,), "<f4")):
        np.save(path, array)
        found.append(path.read_bytes())
    return tuple(found)


NEWS = [["started", 0, 0, 5], ["ended", 0, 0, 5, -9], ["not_started", 1, 2, "why"], ["ready"]]
NEWS += [["message", 1, 0, "tcp://a:1"], ["setup_failed", "why"], ["left", None, 0, [7]]]
PARCEL = wire.encode(wire.PacketBatch(0, 0, ((0, 1, b"a"),)))
DUMP = SipDump(
    0, 5,
    (QueueState(0, 0, 0, "E", 1, 1, 1, 0, 64, 32, (1, 0, 0), 128, 1),),
    (TaskState((0, 0, 0), "kernel", "recv E", "recv", ("E",)), TaskState((0, -1, -1), "script", "a kernel", "", ())),
    blocked=(BlockedResource("SIP 0 eth0 sender 0", "SIP 0 eth0 sender 0", "full"),),
)  # fmt: skip
KEPT = {
    "schema": SCHEMA,
    "version": VERSION,
    "argv": ["--sips", "3"],
    "cwd": "/",
    "run_digest": "d",
    "status": "failed",
}
CREDIT = credit(5, 2**63, (1, 2, 3), "global_E")
PACKETS: list[Packet] = [
    WireCredit(1, 2, CREDIT),
    CreditFrame(1, 16, 10, 0, 0, 2, 3, CREDIT),
    barrier_packet(2, True, 9, Counts(4, 3)),
]
MESSAGE = message_from(
    *((0, 2, 3), 2**63 + 5, 7, b"data"),
    **{"dst_sip": 1, "nbytes": 4096, "span_ps": MOST, "cube": 2, "pe": 3, "src_direction": "global_E"},
    **{"shape": (16, 128), "sent_ps": 10**9, "credits": (CREDIT, CREDIT)},
)
PACKETS += [MESSAGE, replace(MESSAGE, dst_sip=0, nbytes=0, span_ps=0, cube=0, pe=0, credits=())]
RECORD = RunRecord(
    collective="all_reduce", algorithm="a", dtype="f16", op="sum", count=1, nbytes=2, busbw=(3, 2), spans_ps=((0, 5),),
    wrong=None, first_wrong="",
)  # fmt: skip
OUTCOME = RankOutcome(
    rank=1, pid=2, host="here", sim_end_ps=3, events=4, grants=5, packets_sent=6, packets_received=7, bytes_sent=8,
    tensor_sha256="ab", oplog_sha256="cd", wall_s=0.5, cpu_s=1e-9, peak_pss_mib=1e9, run_s=0.0, send_s=0.0, wait_s=0.0,
    runs=(RECORD, RECORD), calls=(GroupCall("all_reduce"), GroupCall("all_gather", 3, (1, 0))),
)  # fmt: skip
STANDS = wire.SipSync(3, "waiting", 1, 2, 9, 4, 0, 5, 6, ("0.E>3.W",), ((0, 2),), 7, 8, 9, 10)
MESSAGES: list[wire.Message] = [
    wire.Join(3, 0, 2, "1", "d", 4, "h", "e", 1023, MOST, ((1, 2, 3), (4095, MOST, MOST))),
    wire.Report(1, 2, None, ((0, 1, 2),), ((1, 2), (3, 4)), 5, MOST, 6, 7),
    wire.Grant(9, ((0, 0), (1, MOST)), True),
    wire.Start(("ipc://a", "tcp://b:1")),
    wire.Rejoined(1, "tcp://b:2", 3),
    wire.Failed("exception", "it said: 'no'", "one\ntwo", 5),
    wire.Result(b"blob", True),
    wire.PacketBatch(300, 3, ((2, 4, b"\x00\xff"), (0, MOST, bytes(40)))),
    wire.Sync(True, "running", 1, MOST, (STANDS,), (("a", 5),)),
    wire.RankFailed(0, "k", "m", "d", 1),
    wire.Deadlock((b"a", b"")),
    wire.Restart(4095, 1023),
    wire.Leave(),
]
TEXTS = [
    b"system: {sips: {count: 4, topology: ring_1d}}\n",
    b"# a comment\nsystem:\n  sips:\n    count: 2\n    link: 'ucie'\n",
    b'a: [1, 2.5, 0x10, .nan, ~, "x\\u00e9", on, 1:30, 08]\nb: |\n  text\n',
]
SETTINGS = [b"system.sips.count=4", b"sip.cube_mesh={w: 2, h: 1}"]
FAULTS = [b"kill:2@30us", b"exit:1@5us:3", b"slow:1@10us:x5#1", b"broker@30us", b"cut:HOST@2s", b"random:7:3"]
FAULTS += [b"kill:0@join", b"agent:HOST@1s"]


def _tickets() -> tuple[bytes, ...]:
    keys = JobKeys.fresh(2, 2)
    boot = Bootstrap(launcher="tcp://10.0.0.1:5", n_hosts=2, keys=(keys.for_agent(0), keys.for_agent(1)))
    config = load()
    ticket = Ticket(version=boot.version, config=config, job=Job(n_elems=(1,)))
    return boot.text().encode(), ticket.text().encode()


def targets() -> dict[str, Target]:
    """All of them, by name."""
    frames = tuple(map(wire.encode, MESSAGES))
    tags = tuple(type(message).__struct_config__.tag.encode() for message in MESSAGES)  # type: ignore[union-attr]
    states = ["process_states", {0: ["running", 0.05, 0.0, 1.0]}]
    agents = [["heartbeat"], ["leaving", "x"], ["log", 0, b"line"], states, ["finish", 1.5], ["kill_all"]]
    agents += [["start", 1, 0, {"spec": {}}], ["signal", 1, 9], ["set_up", "{}"], *NEWS]
    return {
        "wire": Target(_take_frame, BadFrame, frames, tags),
        "packets": Target(_take_packet, BadFrame, tuple(map(encode_packet, PACKETS))),
        "outcome": Target(_take_outcome, BadFrame, (msgspec.json.encode(OUTCOME),)),
        "yaml": Target(_take_yaml, YamlMistake, tuple(TEXTS), (b"!!", b"*a", b"&a", b"---", b"<<:", b"? ")),
        "config": Target(_take_config, ConfigError, tuple(TEXTS[:2])),
        "set": Target(_take_set, ConfigError, tuple(SETTINGS)),
        "fault": Target(_take_fault, BadFault, tuple(FAULTS)),
        "ticket": Target(_take_ticket, ConfigError, _tickets()),
        "agent": Target(_take_agent, BadMessage, tuple(map(msgspec.msgpack.encode, agents))),
        "log": Target(_take_log, ConfigError, (_a_log(), log_of((-1, bytes(8)), (1, PARCEL)))),
        "dump": Target(_take_dump, BadFrame, (msgspec.json.encode(DUMP),)),
        "run_file": Target(_take_run_file, ConfigError, (msgspec.json.encode(KEPT),)),
        "hosts": Target(_take_hosts, argparse.ArgumentTypeError, (b"a:2\n# b\n[::1]:3 # c\n", b"10.0.0.1")),
        "environ": Target(_take_environ, ConfigError, (b"AHBM_NODE_RANK=1\0SLURM_JOB_ID=5\0SLURM_NNODES=3",)),
        "evidence": Target(_take_evidence, BadRecording, _arrays()),
        "trace": Target(_take_trace, BadMessage, (b'1,0,2,500,send,E,64\n1,0,2,700,recv,"a,b",64\n1,0', b"")),
    }
