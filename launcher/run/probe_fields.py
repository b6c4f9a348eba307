"""The document of ``ahbm-probe --json``: every key with its meaning."""

from typing import Annotated, TypedDict

from sipsim.record.fields import no_time, simulated_time


class TermRow(TypedDict):
    """One summand of a transfer's time."""

    part: Annotated[str, no_time("What of the transfer the term belongs to.")]
    what: Annotated[str, no_time("What takes the time.")]
    ps: Annotated[int, simulated_time("The time that it takes, in ps.")]


class TransferSum(TypedDict):
    """The time of one transfer."""

    terms: Annotated[list[TermRow], no_time("The terms of the sum, in the order of the transfer.")]
    sum_ps: Annotated[int, simulated_time("The sum of the terms, in ps.")]
    simulated_ps: Annotated[
        int | None, simulated_time("The time of the same transfer when it was simulated, in ps; null if it was not.")
    ]


_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[list[int], no_time("SIP, cube and PE that send.")],
        "to": Annotated[list[int], no_time("SIP, cube and PE that receive.")],
    },
)


class ProbeDocument(_Ends):
    """What ``ahbm-probe --json`` writes."""

    version: Annotated[str, no_time("The version of the simulator.")]
    bytes: Annotated[int, no_time("The size of the message in bytes.")]
    buffer_kind: Annotated[str, no_time("The memory that holds the rings.")]
    credit_return_mode: Annotated[str, no_time("How credits return.")]
    hw_strict: Annotated[bool, no_time("Whether messages travel in flits of 64 B, as hw_strict says.")]
    system: Annotated[str, no_time("The system in one line.")]
    raw_dma: Annotated[TransferSum, no_time("A DMA write of the bytes, with its acknowledgement.")]
    pair: Annotated[TransferSum, no_time("The bytes from tl.send to the return of tl.recv.")]
    overhead_ps: Annotated[int, simulated_time("The pair's sum less the raw DMA's, in ps.")]
