"""Host script ``eth_ping``: a packet over one link and the answer to the packet, with time stamps around each phase.

The sender stamps the start and end of ping, send and wait; the receiver stamps the start and end of wait and answer. As
on hardware, times include the cost of the stamps. Payload and flow control are sent in two commands.
"""

from typing import Any

from launcher.bench.programs.common import begin, check, end, pattern, report, settings
from sipsim.chips.tensix.eth_dataflow import EthDataflow

CHANNEL = 0


def ping(number: int, nbytes: int, samples: int, times: list[tuple[float, ...]], buffer: int, df: EthDataflow) -> None:
    """Run the sender's kernel; append (ping time, send time) in ns of each ping but the first to ``times``."""
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
            times.append((ended_ns - began_ns, sent_ns - send_ns))
    end(number, df)


def answer(number: int, nbytes: int, samples: int, times: list[float], df: EthDataflow) -> None:
    """Run the receiver's kernel; append the time of each answer but the first, in ns, to ``times``."""
    begin(number, df)
    for sample in range(samples + 1):
        df.get_timestamp_ns()
        df.eth_wait_for_bytes(nbytes, CHANNEL)
        df.get_timestamp_ns()
        began_ns = df.get_timestamp_ns()
        df.eth_receiver_channel_done(CHANNEL)
        ended_ns = df.get_timestamp_ns()
        if sample:
            times.append(ended_ns - began_ns)
    end(number, df)


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on both chips. Rank 0 reports the means ``round_ns`` and ``send_ns`` of each size; rank 1 reports the mean
    ``answer_ns``, and ``bytes_ns``, the time of the payload at the link's rate without framing.
    """
    chosen = settings()
    core = tt.ethernet_cores_to(1 - rank)[0]
    buffer, samples = tt.l1_base(core), chosen["samples"]
    for number, nbytes in enumerate(chosen["sizes"], 1):
        times: list[Any] = []
        tt.write(core, buffer, pattern(nbytes, 1 if rank == 0 else 2))
        program = tt.create_program()
        if rank == 0:
            tt.create_kernel(program, ping, core, args=(number, nbytes, samples, times, buffer))
        else:
            tt.create_kernel(program, answer, core, args=(number, nbytes, samples, times))
        tt.enqueue_program(program)
        tt.finish()
        if rank == 0:
            report(nbytes=nbytes, round_ns=mean(each for each, _ in times), send_ns=mean(each for _, each in times))
        else:
            check(f"a ping of {nbytes} B", tt.read(core, buffer, nbytes), pattern(nbytes, 1))
            report(nbytes=nbytes, answer_ns=mean(times), bytes_ns=tt.drain_ns(core, nbytes))


def mean(times_ns: Any) -> float:
    """Return the mean of one or more times."""
    each = [float(time_ns) for time_ns in times_ns]
    return sum(each) / len(each)
