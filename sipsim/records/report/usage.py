"""How much of a SIP was used: by counters alone, which every run has. Plain data, part of a rank's outcome."""

import msgspec

TL_WORDS = {
    "dma_read": "load",
    "dma_write": "store",
    "dma_read_block": "load",
    "dma_write_block": "store",
    **dict.fromkeys(("reduce", "cast", "rearrange", "make"), "math"),
    "pe_cpu.issue": "issue",
    "pe_scheduler.queue": "full queue",
}
"""What commands are called in ``tl``, where their spans and records have another name."""


class LinkUse(msgspec.Struct, frozen=True):
    """What left over a link: data, the same with all that links and queues add, and how long that kept the link busy.

    ``credit_bytes``: of frames without data, before framing. ``frames``: messages, and credits that are messages;
    through traffic counts on each link that it passes.
    """

    link: str
    frames: int
    payload_bytes: int
    credit_bytes: int
    wire_bytes: int
    busy_ps: int


class TlbUse(msgspec.Struct, frozen=True):
    """The lookups of a PE's TLB, one for each page that a command touched."""

    pe: str
    hits: int
    misses: int


class EngineUse(msgspec.Struct, frozen=True):
    """The engines of the ``pes`` PEs that multiplied: how long each was busy, of all these PEs together, and for how
    long their kernels ran (``kernel_ps``), with or without a product.

    ``commands_ps``: the time of PE_GEMM's commands by what it went to (``sipsim.chips.ahbm.gemm.pipeline.division``).
    ``peak_ps``: the time of their multiplications if every cell of the arrays worked in every cycle.
    """

    pes: int
    kernel_ps: int
    busy_ps: dict[str, int]
    commands_ps: dict[str, int]
    peak_ps: int


class Usage(msgspec.Struct, frozen=True):
    """Of one SIP from ``since_ps`` to ``until_ps``, in which the work of a row was done ``iterations`` times; 0 for a
    whole run of which nothing is known.

    ``kernels``: how many ran, ``kernel_ps`` how long in all, and ``launch_ps`` how long with the wait for the last one
    of each launch. ``waited_ps``: by the commands that they waited for. ``edge``: the edge that was busy longest, links
    aside, for ``edge_busy_ps``. ``tlbs``: of the PEs that looked addresses up; none without PE_MMU.
    ``engines``: None where no PE multiplied.
    """

    since_ps: int
    until_ps: int
    iterations: int
    kernels: int
    kernel_ps: int
    launch_ps: int
    waited_ps: dict[str, int]
    links: tuple[LinkUse, ...]
    edge: str
    edge_busy_ps: int
    tlbs: tuple[TlbUse, ...] = ()
    engines: EngineUse | None = None
