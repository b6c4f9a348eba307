"""A bench for times of memories that are summed by hand, and accesses of its PEs. Not a test.

PE 0 is 3 + 5 + 17 ns from the memories of its cube, either way; PE 1 is a router, 5 ns, further. An edge has 64 GB/s:
64 B take 1 ns, a command or an acknowledgement of 16 B 0.25 ns.
"""

from hardware import ONE_SIP, Bench, WiredPlan, config

from sipsim.chips.ahbm.address import Block, PePlace, PhysAddr

SETTINGS: dict[str, object] = {
    **ONE_SIP,
    "wire.ns_per_mm": 0,
    "pe_dma.overhead_ns": 3,
    "router.overhead_ns": 5,
    "hbm.overhead_ns": 17,
    "sram.overhead_ns": 17,
    "pe_ipcq.overhead_ns": 1,
}


def memory_bench(*settings: dict[str, object]) -> Bench:
    """PE 0 of cube 0 and PE 1, its neighbour to the E; later settings replace earlier ones."""
    every = dict(SETTINGS)
    for some in settings:
        every |= some
    places = [PePlace(0, 0, 0), PePlace(0, 0, 1)]
    return Bench(WiredPlan(config(every), places, {0: {"E": 1}, 1: {"W": 0}}))


def at(space: str, offset: int = 0, pe: int = 0, cube: int = 0) -> int:
    return PhysAddr(0, cube, pe, space, offset).encode()


def reads(made: Bench, address: int, nbytes: int, pe: int = 0) -> list[int]:
    """Where the end of a read that starts now will be noted."""
    ends: list[int] = []
    made.sip.pe(0, pe).dma.read(Block.piece(address, nbytes), lambda data: ends.append(made.engine.now_ps))
    return ends


def writes(made: Bench, address: int, nbytes: int, pe: int = 0, cube: int = 0) -> list[int]:
    """Where the end of a write that starts now will be noted; each byte is the PE's number and one."""
    ends: list[int] = []
    dma, block = made.sip.pe(cube, pe).dma, Block.piece(address, nbytes)
    dma.write(block, bytes([pe + 1]) * nbytes, lambda: ends.append(made.engine.now_ps))
    return ends
