"""How much of the machine a row used, as it stands in result files: every key with its meaning."""

from typing import Annotated, TypedDict

from sipsim.core.fields import no_time, simulated_time


class LinkRow(TypedDict):
    """What crosses a link, one way."""

    name: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    frames: Annotated[float, no_time("Messages, and credits that travel as messages, an iteration.")]
    payload_bytes: Annotated[float, no_time("Bytes of data in them, an iteration.")]
    credit_bytes: Annotated[
        float, no_time("Bytes of frames without data, such as credits, before framing, an iteration.")
    ]
    wire_bytes: Annotated[float, no_time("Bytes on the wire an iteration: data, credits, and the framing of the link.")]
    busy_ps: Annotated[int, simulated_time("How long these bytes keep the link busy, an iteration, in ps.")]
    utilisation: Annotated[float, no_time("That time as a part of the row's time.")]


class TlbRow(TypedDict):
    """The TLB of a PE."""

    pe: Annotated[str, no_time("The PE, such as sip0.cube0.pe0.")]
    hits: Annotated[float, no_time("Pages that commands touched and whose translation was there, an iteration.")]
    misses: Annotated[float, no_time("Pages for which the page table was walked, an iteration.")]


class EngineRow(TypedDict):
    """The engines of the PEs that multiplied."""

    pes: Annotated[int, no_time("The number of these PEs.")]
    busy: Annotated[
        dict[str, float], no_time("How much of the time of their kernels each engine was busy, from 0 to 1.")
    ]
    peak: Annotated[
        float, no_time("The part of that time that the multiplications take if every cell works in every cycle.")
    ]
    commands: Annotated[
        dict[str, float], no_time("Parts of the time of PE_GEMM's commands by what it went to; hidden work is in none.")
    ]


class UsageColumns(TypedDict):
    """The use of the machine in a row, by counters; null where rows were not counted apart, as in a script."""

    link_payload_bytes: Annotated[float | None, no_time("Bytes of data over all links together, an iteration.")]
    link_wire_bytes: Annotated[float | None, no_time("Bytes on the wires of all links an iteration, with framing.")]
    busiest_link: Annotated[str | None, no_time("The link that was busy longest; null where none was used.")]
    busiest_link_payload_bytes: Annotated[float | None, no_time("Bytes of data over that link, an iteration.")]
    busiest_link_wire_bytes: Annotated[float | None, no_time("Bytes on its wire, framing included, an iteration.")]
    busiest_link_utilisation: Annotated[float | None, no_time("How much of the row's time it was busy, from 0 to 1.")]
    busiest_edge: Annotated[str | None, no_time("The edge inside a SIP that was busy longest.")]
    busiest_edge_utilisation: Annotated[float | None, no_time("How much of the row's time it was busy, from 0 to 1.")]
    kernels: Annotated[int | None, no_time("Kernels that ran, an iteration.")]


class UsageRow(UsageColumns):
    """All that is known of it."""

    links: Annotated[list[LinkRow] | None, no_time("What crosses each link of the system, one way each.")]
    kernel_time: Annotated[
        dict[str, float] | None,
        no_time("Parts of the kernels' time by the command that they waited for; ended: after their end."),
    ]
    tlbs: Annotated[list[TlbRow], no_time("Lookups of each TLB that was used; none where PEs have no MMU (pe_mmu).")]
    engines: Annotated[EngineRow | None, no_time("Engines of the PEs that multiplied; null where none did.")]
