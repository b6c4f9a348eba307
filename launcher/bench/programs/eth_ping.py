"""Host script ``eth_ping``: a packet over one link and its answer, each phase between two stamps.

The sender stamps the ping, the sending and the waiting, each at its start and end; the receiver the waiting and the
answer. What a reading costs is part of what is measured, as on hardware. Payload and flow control are two commands.
"""

from typing import Any

from launcher.bench.programs.common import begin, check, end, pattern, settings, tell
from sipsim.chips.tensix.eth_dataflow import EthDataflow

CHANNEL = 0


def ping(number: int, nbytes: int, samples: int, told: list[tuple[float, float]], buffer: int, df: EthDataflow) -> None:
    """The sender. ``told``: gets the times of a ping and of its sending, in ns; the first ping is not measured."""
    begin(number, df)
    for sample in range(samples + 1):
        began_ns = df.get_timestamp_ns()
        send_ns = df.get_timestamp_ns()
        df.eth_send_bytes_over_channel(buffer, buffer, nbytes, CHANNEL)
        sent_ns = df.get_timestamp_ns()
        df.get_timestamp_ns()
        df.eth_wait_for_receiver_channel_done(CHANNEL)
        df.get_timestamp_ns()
        ended_ns = df.get_timestamp_ns()
        if sample:
            told.append((ended_ns - began_ns, sent_ns - send_ns))
    end(number, df)


def answer(number: int, nbytes: int, samples: int, told: list[float], df: EthDataflow) -> None:
    """The receiver. ``told``: gets the time of each answer, in ns."""
    begin(number, df)
    for sample in range(samples + 1):
        df.get_timestamp_ns()
        df.eth_wait_for_bytes(nbytes, CHANNEL)
        df.get_timestamp_ns()
        began_ns = df.get_timestamp_ns()
        df.eth_receiver_channel_done(CHANNEL)
        ended_ns = df.get_timestamp_ns()
        if sample:
            told.append(ended_ns - began_ns)
    end(number, df)


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on both chips. Rank 0 tells ``round_ns`` and ``send_ns`` of each size, rank 1 ``answer_ns``: means;
    ``bytes_ns``: the payload at the link's rate, without framing."""
    chosen = settings()
    core = tt.ethernet_cores_to(1 - rank)[0]
    buffer, samples = tt.l1_base(core), chosen["samples"]
    for number, nbytes in enumerate(chosen["sizes"], 1):
        told: list[Any] = []
        tt.write(core, buffer, pattern(nbytes, 1 if rank == 0 else 2))
        program = tt.create_program()
        if rank == 0:
            tt.create_kernel(program, ping, core, args=(number, nbytes, samples, told, buffer))
        else:
            tt.create_kernel(program, answer, core, args=(number, nbytes, samples, told))
        tt.enqueue_program(program)
        tt.finish()
        if rank == 0:
            tell(nbytes=nbytes, round_ns=mean(each for each, _ in told), send_ns=mean(each for _, each in told))
        else:
            check(f"a ping of {nbytes} B", tt.read(core, buffer, nbytes), pattern(nbytes, 1))
            tell(nbytes=nbytes, answer_ns=mean(told), bytes_ns=tt.drain_ns(core, nbytes))


def mean(times_ns: Any) -> float:
    """Of one or more times."""
    each = [float(time_ns) for time_ns in times_ns]
    return sum(each) / len(each)
