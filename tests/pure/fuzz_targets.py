"""What decodes bytes that others wrote, and the only error that it may answer with. For tests and ``scripts/fuzz.py``.

Not a test. A target takes bytes and does with them all that a process does before it believes them; whatever it raises
besides the error that it documents is a bug. What is accepted must survive being told again.
"""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from broker import wire
from broker.security import JobKeys
from broker.wire import BadFrame
from launcher.hosts.bootstrap import Bootstrap
from launcher.hosts.wire import BadWords, Order, Passed, decode_from_agent, decode_to_agent
from launcher.ticket import Ticket
from sipsim.config.load import load
from sipsim.config.override import parse_set
from sipsim.config.strict_yaml import YamlMistake, parse_text
from sipsim.errors import ConfigError
from sipsim.faults import BadFault, RandomFaults, parse_fault
from sipsim.io import packets
from sipsim.job import Job, RankOutcome, RunRecord, outcome_from_bytes, to_bytes
from sipsim.packet_log import PacketLog
from sipsim.pe.ipcq_messages import IpcqCreditMetadata, IpcqDmaToken

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
        try:
            self.take(data)
        except self.error:
            return False
        return True


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
    if found and isinstance(found[0], wire.Parcel):
        assert source in (None, found[0].src)
    if not found:
        raise BadFrame("nobody takes it")


def _take_packet(body: bytes) -> None:
    packet = packets.decode(body)
    assert packets.decode(packets.encode(packet)) == packet


def _take_outcome(blob: bytes) -> None:
    outcome = outcome_from_bytes(blob)
    assert outcome_from_bytes(to_bytes(outcome)) == outcome


def _take_yaml(data: bytes) -> None:
    parse_text(data.decode("utf-8", "surrogateescape"))


_FOLDER: list[Path] = []


def _scratch() -> Path:
    """A file of this process's own."""
    if not _FOLDER or not _FOLDER[0].is_dir():
        _FOLDER[:] = [Path(tempfile.mkdtemp(prefix="fuzz-"))]
    return _FOLDER[0] / "sip-0.packets"


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
        Bootstrap.from_text(text, "it")
        return
    Ticket.from_text(text)


def _take_agent(data: bytes) -> None:
    found: list[Any] = []
    for decode in (decode_from_agent, decode_to_agent):
        with contextlib.suppress(BadWords):
            found.append(decode(data))
    for message in found:
        if isinstance(message, Passed):
            message.news()
        elif isinstance(message, Order):
            with contextlib.suppress(ValueError, RecursionError):
                assert message.fields is not Order
    if not found:
        raise BadWords("nobody takes it")


def _take_log(data: bytes) -> None:
    path = _scratch()
    path.write_bytes(data)
    log = PacketLog(str(path.parent), 0, "d")
    try:
        told = log.told_logged()
        log.append(1, wire.encode(wire.Parcel(0, 0, ((0, 1, b""),))))
        log.mark(5)
        for dst, count, _ in told:
            assert sum(len(wire.decode_for_sip(frame).packets) for frame in log.parcels(dst)) >= count  # type: ignore[union-attr]
    finally:
        log.close()


def _a_log() -> bytes:
    path = _scratch()
    path.unlink(missing_ok=True)
    log = PacketLog(str(path.parent), 0, "d")
    log.append(1, wire.encode(wire.Parcel(0, 0, ((0, 1, b"a"), (2, 9, b"b")))))
    log.mark(7)
    log.append(2, wire.encode(wire.Parcel(0, 0, ((0, 4, b"c"),))))
    log.close()
    return path.read_bytes()


CREDIT = IpcqCreditMetadata(5, 2**63, 1, 2, 3, "global_E")
TOKEN = IpcqDmaToken(2**63 + 5, 7, 0, 2, 3, "global_E", b"data", "f16", (16, 128), 10**9, (CREDIT, CREDIT))
PACKETS = [packets.CreditPacket(1, 2, CREDIT), packets.Freight(1, 2, 3, 16, 10, CREDIT)]
PACKETS += [packets.Freight(1, 2, 3, 4096, MOST, TOKEN), packets.Freight(0, 0, 0, 0, 0, TOKEN._replace(credits=()))]
RECORD = RunRecord(
    collective="all_reduce", algorithm="a", dtype="f16", op="sum", count=1, nbytes=2, iters=1, start_ps=0, end_ps=5,
    wrong=None, first_wrong="",
)  # fmt: skip
OUTCOME = RankOutcome(
    rank=1, pid=2, host="here", sim_end_ps=3, events=4, grants=5, packets_sent=6, packets_received=7, bytes_sent=8,
    tensor_sha256="ab", oplog_sha256="cd", wall_s=0.5, cpu_s=1e-9, peak_pss_mib=1e9, run_s=0.0, send_s=0.0, wait_s=0.0,
    runs=(RECORD, RECORD),
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
    wire.Parcel(300, 3, ((2, 4, b"\x00\xff"), (0, MOST, bytes(40)))),
    wire.Sync(True, "running", 1, MOST, (STANDS,), (("a", 5),)),
    wire.RankFailed(0, "k", "m", "d", 1),
    wire.Deadlock((b"a", b"")),
    wire.Restart(4095, 1023),
    wire.Bye(),
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
    looks = ["looked", {"sip-0": ["R", 5]}]
    agents = [["beat"], ["left", "x"], ["log", "sip-0", b"line"], looks, ["finish", 1.5], ["order", "[]"]]
    agents.append(["news", '["started", "sip-0", 0, 5]'])
    return {
        "wire": Target(_take_frame, BadFrame, frames, tags),
        "packets": Target(_take_packet, BadFrame, tuple(map(packets.encode, PACKETS))),
        "outcome": Target(_take_outcome, BadFrame, (to_bytes(OUTCOME),)),
        "yaml": Target(_take_yaml, YamlMistake, tuple(TEXTS), (b"!!", b"*a", b"&a", b"---", b"<<:", b"? ")),
        "config": Target(_take_config, ConfigError, tuple(TEXTS[:2])),
        "set": Target(_take_set, ConfigError, tuple(SETTINGS)),
        "fault": Target(_take_fault, BadFault, tuple(FAULTS)),
        "ticket": Target(_take_ticket, ConfigError, _tickets()),
        "agent": Target(_take_agent, BadWords, tuple(map(msgspec.msgpack.encode, agents))),
        "log": Target(_take_log, ConfigError, (_a_log(),)),
    }
