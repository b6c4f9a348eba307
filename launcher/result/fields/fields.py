"""The documents and tables of ``ahbm-probe``: every key and every column with its meaning."""

from typing import Annotated, NotRequired, TypedDict

from sipsim.core.fields import no_time, simulated_time

Bytes = Annotated[int, no_time("The size of the message in bytes.")]
Pair = Annotated[int, simulated_time("From tl.send to the return of tl.recv by the terms' sum, in ps.")]
Simulated = Annotated[int, simulated_time("The same, when it was simulated, in ps.")]


class Heading(TypedDict):
    """What every document begins with: the system that was probed."""

    version: Annotated[str, no_time("The version of the simulator.")]
    system: Annotated[str, no_time("The system in one line.")]
    buffer_kind: Annotated[str, no_time("The memory that holds the rings.")]
    credit_return_mode: Annotated[str, no_time("How credits return; under auto, those of the pair that is probed.")]
    hw_strict: Annotated[bool, no_time("Whether messages travel in flits of 64 B, as hw_strict says.")]


_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[list[int], no_time("SIP, cube and PE that send.")],
        "to": Annotated[list[int], no_time("SIP, cube and PE that receive.")],
    },
)


class TermRow(TypedDict):
    """One summand of a transfer's time."""

    part: Annotated[str, no_time("What of the transfer the term belongs to.")]
    kind: Annotated[str, no_time("What kind of thing takes the time, such as routers, wires or memory.")]
    what: Annotated[str, no_time("What takes the time.")]
    ps: Annotated[int, simulated_time("The time that it takes, in ps.")]


class TransferSum(TypedDict):
    """The time of one transfer."""

    terms: Annotated[list[TermRow], no_time("The terms of the sum, in the order of the transfer.")]
    kinds: Annotated[
        dict[str, int],
        simulated_time("The terms' time by their kind, in ps; all of a credit or an acknowledgement is one kind."),
    ]
    sum_ps: Annotated[int, simulated_time("The sum of the terms, in ps.")]
    simulated_ps: Annotated[
        int | None, simulated_time("The time of the same transfer when it was simulated, in ps; null if it was not.")
    ]


class TlbMisses(TypedDict):
    """What PE_MMU adds to the first send; the sums are those of TLBs that hold the pages."""

    walk_ps: Annotated[int, simulated_time("What a TLB miss adds to a command, in ps: a page walk.")]
    walks: Annotated[int, no_time("Misses of the first send; none where rings have no virtual addresses.")]
    sum_ps: Annotated[int, simulated_time("Their time, in ps.")]
    simulated_ps: Annotated[int, simulated_time("The same, when it was simulated, in ps.")]


class ProbeDocument(Heading, _Ends):
    """What ``ahbm-probe --json`` writes of one transfer, with ``--short`` too."""

    tlb_misses: NotRequired[
        Annotated[TlbMisses, no_time("What a TLB without the pages adds; where PEs have an MMU (pe_mmu).")]
    ]

    bytes: Bytes
    way: Annotated[str, no_time("The SIPs and links of the route in words, or its cubes where it stays in one SIP.")]
    raw_dma: Annotated[TransferSum, no_time("A DMA write of the bytes, with its acknowledgement.")]
    pair: Annotated[TransferSum, no_time("The bytes from tl.send to the return of tl.recv.")]
    overhead_ps: Annotated[int, simulated_time("The pair's sum less the raw DMA's, in ps.")]


class _SizePoint(TypedDict):
    bytes: Annotated[int, no_time("The size in bytes.")]
    messages: Annotated[int, no_time("How many messages it is sent as, of a slot each, one right after the other.")]
    time_ps: Annotated[int, simulated_time("From the first tl.send to the return of the last tl.recv, in ps.")]
    GBps: Annotated[float, simulated_time("bytes by time_ps, in 1e9 bytes a simulated second.")]


class SizePoint(_SizePoint, total=False):
    """One size of a sweep, simulated. What it may lack is that of a size of several messages."""

    interval_ps: Annotated[
        float, simulated_time("The time between messages of this size that are sent one after another, in ps.")
    ]
    interval_GBps: Annotated[float, simulated_time("bytes by interval_ps, in 1e9 bytes a simulated second.")]


class OneMessage(TypedDict):
    """The model of one message: ``t0 + n / r_inf``."""

    t0_ps: Annotated[int, simulated_time("The time of a message of no bytes, in ps.")]
    r_inf_GBps: Annotated[
        float, simulated_time("The rate of a message of endless bytes, in 1e9 bytes a simulated second.")
    ]
    half_bytes: Annotated[int, no_time("The size that has half of that rate, in bytes.")]
    bounded_by: Annotated[str, no_time("The edge that bounds the rate, and its bandwidth.")]
    off_ps: Annotated[int, simulated_time("By how much a simulated size differs from the model at most, in ps.")]


class BoundRow(TypedDict):
    """What allows a message every so often only."""

    what: Annotated[str, no_time("What each message needs for itself.")]
    ps: Annotated[float, simulated_time("For how long, in ps.")]


class OneAfterAnother(TypedDict):
    """The rate of messages one after another, and what bounds it."""

    bytes: Annotated[int, no_time("The size of each message in bytes: the largest size of one message.")]
    interval_ps: Annotated[float, simulated_time("The time between messages, in ps.")]
    GBps: Annotated[float, simulated_time("bytes by interval_ps, in 1e9 bytes a simulated second.")]
    bounds: Annotated[list[BoundRow], no_time("What each message needs for itself; the longest decides.")]
    bounded_by: Annotated[str, no_time("The bound that is longest.")]
    off_ps: Annotated[float, simulated_time("The time between messages less that bound, in ps.")]


class _Curve(TypedDict):
    slot_size: Annotated[int, no_time("The size of a slot in bytes; a larger size is sent as messages of it.")]
    sizes: Annotated[list[SizePoint], no_time("The sizes, from the least.")]


class _Rates(TypedDict, total=False):
    one_message: Annotated[OneMessage, no_time("The model of one message; with sizes of one message.")]
    one_after_another: Annotated[
        OneAfterAnother, no_time("The rate of messages one after another; with sizes of one message.")
    ]


class SweepFigures(_Curve, _Rates):
    """The curve of a sweep, and what its two rates are bounded by."""


class SweepDocument(Heading, _Ends, SweepFigures):
    """What ``ahbm-probe --sweep-bytes --json`` writes."""


class MatrixFacts(TypedDict):
    """The times from the PEs of the rows to those of the columns."""

    title: Annotated[str, no_time("What its rows and columns are.")]
    rows: Annotated[list[list[int]], no_time("SIP, cube and PE that send, a row each.")]
    columns: Annotated[list[list[int]], no_time("SIP, cube and PE that receive, a column each.")]
    ps: Annotated[
        list[list[int | None]],
        simulated_time("Row by row, from tl.send to the return of tl.recv in ps; null from a PE to itself."),
    ]


class CheckedPair(_Ends):
    """A pair of a matrix that was simulated too."""

    ps: Pair
    simulated_ps: Simulated


class MatrixDocument(Heading):
    """What ``ahbm-probe --matrix --json`` writes."""

    bytes: Bytes
    matrix: Annotated[str, no_time("What was asked for: sips or cubes.")]
    matrices: Annotated[list[MatrixFacts], no_time("The times of all pairs.")]
    checked: Annotated[list[CheckedPair], no_time("The fastest and the slowest pair, simulated too.")]


_NamedEnds = TypedDict(
    "_NamedEnds",
    {
        "from": Annotated[str, no_time("The PE that sends, as SIP.CUBE.PE.")],
        "to": Annotated[str, no_time("The PE that receives, as SIP.CUBE.PE.")],
    },
)


class MatrixRow(_NamedEnds):
    """A row of ``--csv``: one pair."""

    ps: Pair
