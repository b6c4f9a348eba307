"""The data mover on real chips: the guide's programs with their data checked, its rules with each bug planted, misuse.

A planted bug is a changed table or method of the product; the run must end with an error that names it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file

from sipsim.chips.tensix.edm import channel as channel_module
from sipsim.chips.tensix.edm.channel import RECEIVER, SENDER, Command, EdmChannel, Fact, State, Step
from sipsim.chips.tensix.edm.data_mover import HELLO, READY, DataMover

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples/tensix"
CHIP = ("--set", "system.chip=wormhole", "--link", "ethernet_100g")
PAIR = (*CHIP, "--sips", 2, "--topology", "mesh_2d_no_wrap", "--shape", "2x1")


def passed(done: Run) -> Run:
    assert done.document["status"] == "ok", (done.document["error"], done.outcome.error)
    return done


# --- the guide's programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["MESSAGE_COUNT_REACHED", "WORKER_INITIATED"])
@pytest.mark.parametrize("channels", [1, 4])
def test_slices_go_both_ways(mode: str, channels: int) -> None:
    done = passed(run(*PAIR, EXAMPLES / "slices.py", mode, channels))
    assert all(task.ended for member in done.members for task in member.chip.tasks()), "and both data movers have ended"


THEN_A_FABRIC = """

edm_program = worker

def worker(rank, world_size, tt):
    import numpy as np
    edm_program(rank, world_size, tt)
    found = tt.to_numpy(tt.all_gather(tt.tensor(np.full((32, 32), rank, np.int32))))
    assert [*found[::32, 0]] == [0, 1]
"""


def test_a_fabric_waits_for_the_data_movers_of_the_script(tmp_path: Path) -> None:
    """On the link's cores, as routers need these; data movers end by themselves, and no call says when."""
    passed(run(*PAIR, script_file(tmp_path, (EXAMPLES / "slices.py").read_text() + THEN_A_FABRIC)))


@pytest.mark.parametrize("chip", ["wormhole", "blackhole"])
@pytest.mark.parametrize("name", ["ring_ping.py", "ring_ping_edm.py"])
@pytest.mark.parametrize("sips", [2, 3])
def test_pings_go_around(name: str, sips: int, chip: str) -> None:
    flags = ("--set", f"system.chip={chip}", "--link", "ethernet_100g", "--sips", sips, "--topology", "ring_1d")
    passed(run(*flags, EXAMPLES / name, 64, 2))


def test_the_mail_does_not_matter() -> None:
    plain = passed(run(*PAIR, EXAMPLES / "slices.py")).document["digest"]
    for seed in range(4):
        done = passed(run(*PAIR, EXAMPLES / "slices.py", mail_seed=seed))
        assert done.document["digest"] == plain


# --- one program with knobs -------------------------------------------------------------------------------------

PROGRAM = """
COUNT, NBYTES, MODE, MERGED, SENDS = 4, 4096, "MESSAGE_COUNT_REACHED", True, (True,)
BEFORE_READ_NS, BEFORE_START_NS, LAST = 0, (0, 0), 1
PROGRAMS, FAR_COUNT, NOT_SAID = 1, 0, None
{knobs}
def data(number, message, nbytes):
    return bytes((number * 7 + message * 3 + each) % 251 for each in range(nbytes))

def nbytes_of(number):
    return NBYTES if isinstance(NBYTES, int) else NBYTES[number]

def writer(number, edm, semaphore, df):
    x, y, buffer, edm_semaphore = edm
    for message in range(COUNT):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        source = 0x40000 + message * nbytes_of(number)
        df.noc_async_write(source, df.get_noc_addr(x, y, buffer), nbytes_of(number))
        signal = LAST if message == COUNT - 1 else 1
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), signal)

def reader(number, edm, semaphore, df):
    x, y, buffer, edm_semaphore = edm
    for message in range(COUNT):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.instructions(BEFORE_READ_NS)
        df.noc_async_read(df.get_noc_addr(x, y, buffer), 0x40000, nbytes_of(number))
        df.noc_async_read_barrier()
        assert df.peek(0x40000, nbytes_of(number)) == data(number, message, nbytes_of(number)), message
        signal = LAST if message == COUNT - 1 else 1
        if message != NOT_SAID:
            df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), signal)

def pause(ns, df):
    df.instructions(ns)
    df.get_timestamp_ns()

def one_program(rank, tt):
    program = tt.create_program()
    (core,) = tt.ethernet_cores_to(1 - rank)
    edm = tt.edm_builder(len(SENDS), 16, "NOT_SHARED", MODE, MERGED)
    count = FAR_COUNT if rank and FAR_COUNT else COUNT if MODE == "MESSAGE_COUNT_REACHED" else 0
    for number, sends in enumerate(SENDS):
        place = tt.workers[10 * number + 3]
        semaphore = tt.create_semaphore(program, place)
        is_sender = sends is (rank == 0)
        for message in range(COUNT if is_sender else 0):
            nbytes = nbytes_of(number)
            tt.write(place, 0x40000 + message * nbytes, data(number, message, nbytes))
        add = edm.add_sender_channel if is_sender else edm.add_receiver_channel
        interface = add(semaphore, count, place, nbytes_of(number))
        args = (number, (*core, *interface), semaphore)
        tt.create_kernel(program, writer if is_sender else reader, place, args=args)
    edm.generate_edm_kernel(program, core)
    tt.enqueue_program(program)
    tt.finish()

def worker(rank, world_size, tt):
    wait = tt.create_program()
    tt.create_kernel(wait, pause, tt.workers[0], args=(BEFORE_START_NS[rank],))
    tt.enqueue_program(wait)
    tt.finish()
    for _ in range(PROGRAMS):
        one_program(rank, tt)
"""


def run_program(folder: Path, *knobs: str, **how: Any) -> Run:
    return run(*PAIR, script_file(folder, PROGRAM.format(knobs="\n".join(knobs))), **how)


BOTH = "SENDS = (True, False, True, False)"
BY_WORKER = "MODE, LAST = 'WORKER_INITIATED', 2"
APART = "MERGED = False"


@pytest.mark.parametrize(
    "knobs",
    [
        [],
        [BOTH],
        [APART, BOTH],
        [BY_WORKER, BOTH],
        [BY_WORKER, APART],
        ["COUNT = 1"],
        ["NBYTES = 16", "COUNT = 30"],
        [BOTH, "NBYTES = (16, 16384, 64, 4096)"],
        ["SENDS = (False,)"],
        ["BEFORE_READ_NS = 3000", BOTH],
        ["BEFORE_START_NS = (0, 9000)", BOTH],
        ["BEFORE_START_NS = (9000, 0)", BOTH],
        ["PROGRAMS = 3", BOTH],
        ["PROGRAMS = 3", BOTH, APART, BY_WORKER, "BEFORE_READ_NS = 3000"],
    ],
    ids=" ".join,
)
def test_every_message_comes_once_and_whole(knobs: list[str], tmp_path: Path) -> None:
    done = passed(run_program(tmp_path, *knobs))
    assert all(task.ended for member in done.members for task in member.chip.tasks())


def test_an_outage_delays_and_loses_nothing(tmp_path: Path) -> None:
    plain = passed(run_program(tmp_path, BOTH))
    outage = ("--set", "system.sips.outages=[{port: 0.E, at_us: 2, for_us: 20}]")
    done = passed(run(*PAIR, *outage, script_file(tmp_path, PROGRAM.format(knobs=BOTH))))
    later = [b[2] - a[2] for a, b in zip(plain.results(), done.results(), strict=True)]
    assert all(15_000_000 < ps < 25_000_000 for ps in later)
    assert all(task.ended for member in done.members for task in member.chip.tasks())


def test_a_data_mover_without_an_end_does_not_hold_the_run(tmp_path: Path) -> None:
    """The workers never say which message is the last one."""
    done = passed(run_program(tmp_path, "MODE = 'WORKER_INITIATED'"))
    for member in done.members:
        (server,) = [task for task in member.chip.tasks() if not task.ended]
        assert server.is_server


def test_an_idle_server_costs_no_events(tmp_path: Path) -> None:
    """A reader takes 1 us or 1 ms: 50,000 looks of both servers more."""
    events = []
    for ns in (1_000, 1_000_000):
        done = passed(run_program(tmp_path, "COUNT = 2", f"BEFORE_READ_NS = {ns}"))
        events.append([member.session.engine.events for member in done.members])
    assert events[0] == events[1]


def test_merged_saves_a_command(tmp_path: Path) -> None:
    sent = {}
    for knob in ("MERGED = True", APART):
        done = passed(run_program(tmp_path, knob, keep_oplog=True))
        sent[knob] = sum(record[0] == "eth.send" for record in done.members[0].chip.oplog.records)
    assert sent == {"MERGED = True": 1 + 4, APART: 1 + 2 * 4}


def test_what_a_send_takes(tmp_path: Path) -> None:
    """From the worker's increment: up to a look, the look, a clear and a store of L1, the command; then the visit."""
    risc = ("noc_command_ns=50", "eth_command_ns=15", "poll_ns=6", "l1_access_ns=5")
    flags = [word for each in risc for word in ("--set", f"system.chip_params.risc.{each}")]
    flags += ["--set", "system.chip_params.data_mover.sender_visit_ns=40"]
    script = script_file(tmp_path, PROGRAM.format(knobs="COUNT = 1"))
    records = passed(run(*PAIR, *flags, script, keep_oplog=True)).members[0].chip.oplog.records
    (told_ps,) = [record[2] for record in records if record[0] == "noc.increment" and "9-0" in record]
    (sent_ps,) = [record[2] for record in records if record[0] == "eth.send" and record[-3] == 4096 + 16]
    assert 0 <= sent_ps - told_ps - 1000 * (6 + 5 + 5 + 15) < 6000


NO_MESSAGE = """
def writer(number, edm, semaphore, df):
    x, y, _, edm_semaphore = edm
    df.noc_semaphore_wait(semaphore, 1)
    df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 3)

def reader(number, edm, semaphore, df):
    x, y, _, edm_semaphore = edm
    df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 3)
"""


def test_workers_may_end_a_channel_without_a_message(tmp_path: Path) -> None:
    source = PROGRAM.format(knobs=BY_WORKER).replace("def pause(", f"{NO_MESSAGE}\ndef pause(")
    done = passed(run(*PAIR, script_file(tmp_path, source)))
    assert all(task.ended for member in done.members for task in member.chip.tasks())
    assert [rank["bytes_sent"] for rank in done.document["ranks"]] == [16, 16], "the handshake"


MOVERS = Path(__file__).resolve().parents[1] / "helpers/data_movers.py"


OUTAGE = ("--fault", "link:1.eth0@2us:5us", "--jitter", 7)


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [((), range(10)), (("--jitter", None), (*range(10), 250)), (OUTAGE, range(506, 510))],
    ids=["usual", "jitter", "an outage"],
)
def test_a_data_mover_does_not_mind_what_was_before_it(flags: tuple[object, ...], seeds: Sequence[int]) -> None:
    """Two to four of them, one after the other on one link, drawn from a seed (250: an answer seen late; 508: bytes as
    of a payload that has come too early).
    """
    for seed in seeds:
        drawn = [seed if flag is None else flag for flag in flags]
        done = passed(run("--topology", "n300", *drawn, MOVERS, seed))
        assert all(task.ended for member in done.members for task in member.chip.tasks()), seed


def test_an_end_behind_a_message_that_was_not_taken_is_refused(tmp_path: Path) -> None:
    """A reader that says that it has read, and at once that the channel ends, where 2 with the read would do."""
    source = PROGRAM.format(knobs=BY_WORKER).replace(
        "        if message != NOT_SAID:\n",
        "        signal = 1\n        if message == COUNT - 1:\n"
        "            df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 3)\n        if message != NOT_SAID:\n",
    )
    error = run(*PAIR, script_file(tmp_path, source)).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert "channel 0 of the data mover on 1-0 (receiver)" in error["message"]


def test_a_semaphore_may_be_part_of_a_longer_write(tmp_path: Path) -> None:
    """A worker that writes 16 B before it and the word itself, in place of an increment."""
    increment = "        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), signal)\n\ndef reader"
    write = (
        "        df.write_bytes(0x80000, bytes(16) + signal.to_bytes(4, 'little'))\n"
        "        df.noc_async_write(0x80000, df.get_noc_addr(x, y, edm_semaphore - 16), 20)\n\ndef reader"
    )
    source = PROGRAM.format(knobs="")
    assert increment in source
    passed(run(*PAIR, script_file(tmp_path, source.replace(increment, write))))


def test_several_workers_share_a_channel(tmp_path: Path) -> None:
    """Each writes, or reads, its half of every message; the data mover waits for both."""
    shared = """
def part(df, to):
    half = 2048 * (df.core == to[0])
    return 0x40000 + half, half

def writer(number, edm, semaphore, both, df):
    x, y, buffer, edm_semaphore = edm
    here, half = part(df, both)
    for message in range(COUNT):
        df.write_bytes(0x40000, data(number, message, 4096))
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.instructions(half)
        df.noc_async_write(here, df.get_noc_addr(x, y, buffer + half), 2048)
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)

def reader(number, edm, semaphore, both, df):
    x, y, buffer, edm_semaphore = edm
    here, half = part(df, both)
    for message in range(COUNT):
        df.noc_semaphore_wait(semaphore, 1)
        df.noc_semaphore_set(semaphore, 0)
        df.instructions(half)
        df.noc_async_read(df.get_noc_addr(x, y, buffer + half), here, 2048)
        df.noc_async_read_barrier()
        assert df.read_bytes(here, 2048) == data(number, message, 4096)[half : half + 2048]
        df.noc_semaphore_inc(df.get_noc_addr(x, y, edm_semaphore), 1)

def one_program(rank, tt):
    program, both = tt.create_program(), tt.workers[5:7]
    (core,) = tt.ethernet_cores_to(1 - rank)
    edm = tt.edm_builder(1, 16)
    semaphore, other = [tt.create_semaphore(program, place) for place in both]
    assert semaphore == other
    add = edm.add_receiver_channel if rank else edm.add_sender_channel
    interface = add(semaphore, COUNT, both, 4096)
    for place in both:
        tt.create_kernel(program, reader if rank else writer, place, args=(0, (*core, *interface), semaphore, both))
    edm.generate_edm_kernel(program, core)
    tt.enqueue_program(program)
    tt.finish()

def worker("""
    source = PROGRAM.format(knobs="").replace("def worker(", shared)
    done = passed(run(*PAIR, script_file(tmp_path, source)))
    assert all(task.ended for member in done.members for task in member.chip.tasks())


# --- rules, each with its bug -----------------------------------------------------------------------------------

CLEAR, TELL, SEND, ACK_1 = Command.CLEAR_SEMAPHORE, Command.NOTIFY_WORKER, Command.SEND, Command.SEND_ACK_1
OPEN_WRITES = "SENDS, NBYTES = (True, False, False, False), (64, 16384, 16384, 16384)"


def plant(monkeypatch: pytest.MonkeyPatch, name: str, state: State, fact: Fact, made: Step) -> None:
    table = {"SENDER": SENDER, "RECEIVER": RECEIVER}[name]
    monkeypatch.setattr(channel_module, name, {**table, state: {**table[state], fact: made}})


def no_wait_for_ack_1(patch: pytest.MonkeyPatch) -> None:
    plant(patch, "SENDER", State.EMPTY, Fact.WRITTEN, Step(State.SENT, (CLEAR, SEND, TELL)))


def no_wait_for_ack_2(patch: pytest.MonkeyPatch) -> None:
    plant(patch, "SENDER", State.SENT, Fact.ACK_1, Step(State.EMPTY, (TELL,)))


def end_before_ack_2(patch: pytest.MonkeyPatch) -> None:
    plant(patch, "SENDER", State.LAST_SENT, Fact.ACK_1, Step(State.ENDED))


def worker_told_before_clear(patch: pytest.MonkeyPatch) -> None:
    """The semaphore of the last payload is still there when the next one is asked for."""
    plant(patch, "SENDER", State.EMPTY, Fact.WRITTEN, Step(State.SENT, (SEND,)))


def one_address_for_acks(patch: pytest.MonkeyPatch) -> None:
    def send_ack_1(self: EdmChannel) -> None:
        self._df.store(self.sync + 4, channel_module.ACK_1[4:8])
        self._send(self.sync, 16)

    patch.setattr(EdmChannel, "_send_ack_1", send_ack_1)


def end_ignored(patch: pytest.MonkeyPatch) -> None:
    """The sender forwards what it is given, without an end; the receiver ends."""
    said = EdmChannel._signalled

    def without_last(self: EdmChannel, value: int) -> Fact | None:
        found = said(self, value)
        return Fact.WRITTEN if found is Fact.WRITTEN_LAST else found

    patch.setattr(EdmChannel, "_signalled", without_last)


def hasty_leader(patch: pytest.MonkeyPatch) -> None:
    shake = DataMover._shake_hands

    def without_wait(self: DataMover) -> None:
        if not self._leads:
            shake(self)
            return
        self._send_handshake(HELLO)
        self._is_open = True
        for each in self._channels:
            each.take(Fact.HANDSHAKE_DONE)

    patch.setattr(DataMover, "_shake_hands", without_wait)


def hasty_follower(patch: pytest.MonkeyPatch) -> None:
    shake = DataMover._shake_hands

    def without_wait(self: DataMover) -> None:
        if self._leads:
            shake(self)
            return
        self._is_open = True
        self._send_handshake(READY)
        for each in self._channels:
            each.take(Fact.HANDSHAKE_DONE)

    patch.setattr(DataMover, "_shake_hands", without_wait)


def silent_follower(patch: pytest.MonkeyPatch) -> None:
    """It waits to be asked, does not answer, and sends."""
    say = DataMover._send_handshake

    def without_ready(self: DataMover, what: int) -> None:
        if what == HELLO:
            say(self, what)

    patch.setattr(DataMover, "_send_handshake", without_ready)


def other_layout(patch: pytest.MonkeyPatch) -> None:
    """Nothing is planted: the ends were built differently."""


@pytest.mark.parametrize(
    ("planted", "knobs", "kind", "line"),
    [
        (no_wait_for_ack_1, ["NBYTES = 16384"], "SourceReused", "kernel writer on 4-1 writes 8192 bytes"),
        (no_wait_for_ack_2, ["BEFORE_READ_NS = 5000"], "KernelMisuse", "in state READING (payload with the worker), "
         "and ARRIVED (a payload has arrived over the link) is not allowed; the channel waits for READ or READ_LAST"),
        (worker_told_before_clear, [], "KernelMisuse", "in state SENT (sent, no ack yet), and WRITTEN"),
        (one_address_for_acks, [OPEN_WRITES], "SourceReused", "kernel erisc_data_mover on 1-0 writes 16 bytes"),
        (end_before_ack_2, ["PROGRAMS = 2", "BEFORE_READ_NS = 5000"], "KernelMisuse",
         "channel 0 of the data mover on 9-0 (sender): a payload or credit arrived before the end of the handshake"),
        (silent_follower, [BOTH], "KernelMisuse", "9-0 (receiver): a payload or credit arrived before the end of"),
        (hasty_leader, ["BEFORE_START_NS = (0, 9000)"], "KernelMisuse", "1-0 (receiver): a payload or credit arrived"),
        (hasty_follower, ["BEFORE_START_NS = (9000, 0)"], "KernelMisuse",
         "the data mover on 9-0: the far end has sent READY before HELLO"),
        (hasty_follower, ["BEFORE_START_NS = (9000, 0)", BOTH], "KernelMisuse",
         "9-0 (receiver): a payload or credit arrived"),
        (other_layout, ["FAR_COUNT = 5"], "KernelMisuse", "the data mover at the far end has 1 channels; channels, "
         "message sizes, numbers of messages and is_merged must be equal at both ends; this end: merged, "
         "channel 0 receives 5 messages of 4096 B"),
        (other_layout, ["LAST = 2"], "KernelMisuse", "the worker set the channel's semaphore to 2; "
         "allowed: up to 1 with 1 workers"),
        (other_layout, [BY_WORKER, "LAST = 4"], "KernelMisuse", "allowed: 1 (message), 2 (last message) or 3 (end)"),
    ],
    ids=["source before ack 1", "slot before ack 2", "semaphore not cleared", "acks from one address",
         "end before ack 2", "silent follower", "hasty leader, late follower", "hasty follower, late leader",
         "payload of a hasty follower", "other count", "signal with count", "no such signal"],
)  # fmt: skip
def test_a_broken_rule_is_named(
    planted: Callable[[pytest.MonkeyPatch], None],
    knobs: list[str],
    kind: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if planted is not other_layout:
        passed(run_program(tmp_path, *knobs))
    planted(monkeypatch)
    error = run_program(tmp_path, *knobs).document["error"]
    assert error is not None, "the bug was not found"
    assert (error["kind"], line in error["message"]) == (kind, True), error["message"]
    assert "\n" not in error["message"]


@pytest.mark.parametrize("knobs", [[], [BY_WORKER]], ids=["by count", "by the worker"])
def test_termination_ends_the_data_mover(knobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the end ignored the sender's server goes on, so that a second program cannot start."""
    end_ignored(monkeypatch)
    done = run_program(tmp_path, *knobs)
    left = [[task.name.split()[1] for task in member.chip.launches.tasks()] for member in done.members]
    assert left == [["erisc_data_mover"], []]
    error = run_program(tmp_path, "PROGRAMS = 2", *knobs).document["error"]
    assert "kernel writer on 4-1 of rank 0 waits for the programs before its own" in error["message"]


# --- what a deadlock tells --------------------------------------------------------------------------------------


def told(done: Run) -> str:
    assert done.outcome.error is not None
    return done.outcome.error.message + done.outcome.error.detail


def test_a_deadlock_names_what_channels_wait_for(tmp_path: Path) -> None:
    """The reader takes the third message and does not say so, and waits for the last one."""
    done = run_program(tmp_path, "NOT_SAID = 2")
    assert done.document["error"]["kind"] == "Deadlock"
    assert "channel 0 (receiver) after 2 messages, in READING: READ (the worker has read the payload)" in told(done)
    assert "channel 0 (sender) after 4 messages, in LAST_AHEAD: ACK_2 (the receiver's buffer is free)" in told(done)
    assert "kernel reader on 4-1 of rank 1 waits for the semaphore at" in done.document["error"]["message"], (
        "not only that host scripts wait"
    )


def test_a_deadlock_names_the_handshake(tmp_path: Path) -> None:
    source = PROGRAM.format(knobs="").replace("is_sender = sends is (rank == 0)", "is_sender = False")
    done = run(*PAIR, script_file(tmp_path, source))
    assert done.document["error"]["kind"] == "Deadlock"
    assert "the handshake with the data mover at the far end" in told(done)


def test_both_ends_cannot_lead(tmp_path: Path) -> None:
    source = PROGRAM.format(knobs="").replace("is_sender = sends is (rank == 0)", "is_sender = True")
    error = run(*PAIR, script_file(tmp_path, source)).document["error"]
    assert "both ends have sent HELLO; channel 0 must send at one end and receive at the other" in error["message"]


# --- the transmit queue -----------------------------------------------------------------------------------------

QUEUE = """
def kernel(buffer, df):
    begin_ns = df.get_timestamp_ns()
    for number in range(40):
        {call}
    print(df.get_timestamp_ns() - begin_ns)

def worker(rank, world_size, tt):
    if rank == 0:
        program = tt.create_program()
        (core,) = tt.ethernet_cores_to(1)
        tt.create_kernel(program, kernel, core, args=(tt.l1_base(core),))
        tt.enqueue_program(program)
        tt.finish()
"""


def test_a_call_waits_for_a_busy_queue_and_a_raw_command_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = "df.eth_send_packet(0, buffer // 16, buffer // 16, 256)"
    done = passed(run(*PAIR, script_file(tmp_path, QUEUE.format(call=call))))
    wire_ns = done.prepared.plan.system.link_kinds[0].drain_ps(4096) / 1000
    # 32 wait for the wire, and one is on it, when the kernel goes on.
    assert float(capfd.readouterr().out) > (40 - 1 - 33) * wire_ns
    raw = call.replace(
        "df.eth_send_packet(0, buffer // 16, buffer // 16, 256)", 'df._link.submit(0, buffer, buffer, 4096, "sender")'
    )
    error = run(*PAIR, script_file(tmp_path, QUEUE.format(call=raw))).document["error"]
    assert error["kind"] == "KernelMisuse"
    assert "core 9-0: transmit queue 0 is busy; call eth_txq_is_busy before a command" in error["message"]
