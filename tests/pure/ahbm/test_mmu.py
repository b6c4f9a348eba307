"""PE_MMU: page tables as the host maps them, the TLB's order, the time of misses, faults, rings by virtual address."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hardware import Bench, pair_bench
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import RING_VA_BASE, VIRTUAL_BIT, PePlace, PhysAddr
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.host.memory import AddressSpace, Storage
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.memory.mmu import MmuMapEntry, MmuMapMsg, MmuUnmapMsg, PageTable, PeMmu, Tlb
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.parts import PeParts
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.config.schema import PeMmu as PeMmuCost
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import InvariantViolation, MemoryAccessError, MmuFault
from sipsim.records.recorder import Span

WALK_PS = 200_000
ISSUE_PS = 15_000
PAGE = 4096
MMU = {"page_KiB": PAGE // 1024, "tlb_entries": 4, "walk_ns": WALK_PS // 1000, "virtual_rings": False}
LOAD_64_PS = 3_100 + 250 + 99_000 + 3_100 + 1_000
"""64 B from the PE's own HBM. PE, router and port 1 ns each, two wires of 0.05 ns: the head. The command drains in
0.25 ns, the data in 1 ns."""
VA = VIRTUAL_BIT


# --- the TLB --------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)) | st.integers(0, 2), max_size=60))
def test_against_a_list_in_order_of_use(entries: int, steps: list[Any]) -> None:
    """A number drops that mapping's entries."""
    tlb, recent = Tlb(entries), list[Any]()
    for step in steps:
        if isinstance(step, int):
            tlb.drop(step)
            recent = [key for key in recent if key[0] != step]
        else:
            assert tlb.touch(step) == (step in recent)
            recent = [*(key for key in recent if key != step), step][-entries:]
        assert len(tlb) == len(recent) <= entries


# --- page tables ----------------------------------------------------------------------------------------------


def entry(va: int, pa: int, nbytes: int = 256) -> tuple[MmuMapEntry, ...]:
    return (MmuMapEntry(VA + va, pa, nbytes),)


def test_the_narrowest_target_counts() -> None:
    table = PageTable(PAGE)
    for cube, pe, pa in ((None, None, 1000), (1, None, 2000), (1, 3, 3000)):
        table.map(MmuMapMsg(cube, pe, entry(0, pa)))
    found = {(cube, pe): table.find(cube, pe, VA + 4, 8).pa for cube, pe in product(range(3), range(4))}
    assert found == {(c, p): 3000 if (c, p) == (1, 3) else 2000 if c == 1 else 1000 for c, p in found}
    table.unmap(MmuUnmapMsg(1, None, (VA,)))
    assert [table.find(*at, VA, 8).pa for at in ((1, 3), (1, 2), (0, 0))] == [3000, 1000, 1000]


@pytest.mark.parametrize(("va", "nbytes"), [(0, 1), (255, 1), (-1, 2), (100, 10), (-10, 1000), (255, 1000)])
def test_mappings_of_a_target_do_not_overlap(va: int, nbytes: int) -> None:
    table = PageTable(PAGE)
    table.map(MmuMapMsg(0, 0, entry(4096, 0), "tensor 1"))
    with pytest.raises(InvariantViolation, match=r"a mapping at 0x\w+ to 0x\w+ overlaps tensor 1 at 0x800000000000100"):
        table.map(MmuMapMsg(0, 0, entry(4096 + va, 0, nbytes)))
    table.map(MmuMapMsg(0, 1, entry(4096 + va, 0, nbytes)))


@pytest.mark.parametrize("message", [MmuUnmapMsg(0, 0, (VA + 8,)), MmuUnmapMsg(None, None, (VA,))])
def test_only_what_is_mapped_can_be_unmapped(message: MmuUnmapMsg) -> None:
    table = PageTable(PAGE)
    table.map(MmuMapMsg(0, 0, entry(0, 0)))
    with pytest.raises(InvariantViolation, match="no mapping begins at 0x80000000000000"):
        table.unmap(message)


def test_a_fault_tells_what_is_mapped_near_it() -> None:
    table = PageTable(PAGE)
    for index, name in enumerate(("tensor 0", "tensor 1", "tensor 2")):
        table.map(MmuMapMsg(None, None, entry(4096 * index, 0), name))
    table.unmap(MmuUnmapMsg(None, None, (VA + 4096,)))
    with pytest.raises(MmuFault) as far:
        table.find(2, 5, VA + 512, 8)
    assert str(far.value) == (
        "8 bytes at virtual address 0x8000000000000200 are not mapped for cube 2, PE 5; nearest mappings: below tensor "
        "0 at 0x8000000000000000 to 0x8000000000000100, above tensor 2 at 0x8000000000002000 to 0x8000000000002100"
    )
    with pytest.raises(MmuFault) as freed:
        table.find(2, 5, VA + 4096 + 8, 8)
    assert str(freed.value).endswith(
        "for cube 2, PE 5; tensor 1 at 0x8000000000001000 to 0x8000000000001100 was freed; keep the tensor while "
        "kernels use it"
    )
    assert (freed.value.cube, freed.value.pe) == (2, 5)
    with pytest.raises(MmuFault, match=r"nearest mappings: none$"):
        PageTable(PAGE).find(0, 0, VA, 1)


CUBES, PES, CAPACITY = 3, 2, 16 * 1024
LAYOUTS = [*product(("row_wise", "replicate"), repeat=2)]
STEP = st.tuples(
    st.sampled_from(LAYOUTS), st.integers(1, CUBES), st.integers(1, PES), st.integers(1, 40), st.integers(0, 4)
)


FREE_WALKS = PeMmuCost(page_KiB=4, tlb_entries=2, walk_ns=0, virtual_rings=False)


def pe_of(cube: int, pe: int) -> PeParts:
    """A PE without a kernel, which no walk of no time needs."""
    parts = PeParts()
    parts.cube, parts.pe, parts.task = cube, pe, None
    return parts


@settings(max_examples=40)
@given(st.lists(STEP, max_size=10), st.data())
def test_the_page_table_agrees_with_the_allocator(steps: list[Any], data: Any) -> None:
    """For random tensors and frees: on every PE the same physical address, or an error in both."""
    table = PageTable(PAGE)
    memory = MemoryStore(0, {"tcm": 0, "hbm": CAPACITY, "sram": 0})
    space = AddressSpace(memory, 0, CAPACITY, None, table)
    every = [*product(range(CUBES), range(PES))]
    mmus = {at: PeMmu(pe_of(*at), FREE_WALKS, table) for at in every}
    kept: list[Storage] = []
    last = VA
    for layout, cubes, pes, words, keep in steps:
        del kept[keep:]
        space.free_dead()
        dp = DPPolicy(*layout, cubes, pes)
        kept.append(space.allocate((len(dp.holders()), words), DTYPES["f16"], dp))
        last = kept[-1].allocation.segments[-1].va + 2 * words
        for _ in range(4):
            start, nbytes = data.draw(st.integers(VA, last + 8)), data.draw(st.integers(1, 100))
            for at in every:
                expected = translated(space.translation_for(*at), start, nbytes)
                assert translated(mmus[at].translate, start, nbytes) == expected
        for segment, at in product(kept[-1].allocation.segments, every):
            want = space.translation_for(*at)(segment.va, segment.nbytes)
            assert mmus[at].translate(segment.va, segment.nbytes) == want
    kept.clear()
    space.free_dead()
    with pytest.raises(MmuFault, match=r"nearest mappings: none$|was freed"):
        table.find(0, 0, max(last - 1, VA), 1)


def translated(translate: Callable[[int, int], int], address: int, nbytes: int) -> int | None:
    try:
        return translate(address, nbytes)
    except MemoryAccessError:
        return None


# --- the time of misses ---------------------------------------------------------------------------------------


def mmu_bench(**changes: Any) -> Bench:
    return pair_bench({"pe_mmu": {**MMU, **changes}})


def table_of(bench: Bench) -> PageTable:
    assert bench.sip.page_table is not None
    return bench.sip.page_table


def on_mmu(bench: Bench, cube: int, pe: int, body: Callable[[TL], object]) -> None:
    """Start a kernel whose addresses the PE's MMU translates."""
    part = bench.sip.pe(cube, pe)
    assert part.mmu is not None
    tl = TL(part, part.mmu.translate)
    bench.sip.spawn(part, lambda: run_kernel(body, (), tl))


def a_tensor(bench: Bench, nbytes: int, dp: DPPolicy | None = None) -> Tensor:
    torch = Torch(bench.sip)
    layout = dp or DPPolicy(num_cubes=1)
    rows = len(layout.holders())
    return torch.new_tensor((rows, nbytes // 4 // rows), DTYPES["i32"], layout)


def load_times(offsets: list[tuple[int, int]], **changes: Any) -> tuple[list[int], Bench]:
    """How long each load of (offset, bytes) takes, one after the other, on PE 0 of cube 0."""
    bench, times = mmu_bench(**changes), list[int]()
    tensor = a_tensor(bench, 16 * PAGE)

    def body(tl: TL) -> None:
        for offset, nbytes in offsets:
            began_ps = bench.engine.now_ps
            tl.load(tensor.va + offset, nbytes // 4, "i32")
            times.append(bench.engine.now_ps - began_ps)

    on_mmu(bench, 0, 0, body)
    bench.run()
    return times, bench


def counts(bench: Bench, cube: int = 0, pe: int = 0) -> tuple[int, int]:
    mmu = bench.sip.pe(cube, pe).mmu
    assert mmu is not None
    return mmu.hits, mmu.misses


@pytest.mark.ideal
def test_the_first_load_of_a_page_walks() -> None:
    """A walk of no time counts and costs nothing."""
    times, bench = load_times([(0, 64), (64, 64), (PAGE - 64, 64), (PAGE, 64), (0, 64)])
    cold, warm = LOAD_64_PS + WALK_PS, LOAD_64_PS
    assert times == [cold, warm, warm, cold, warm]
    assert counts(bench) == (3, 2)
    assert bench.sip.recorder.waited_ps["cube0.pe0"] == {"TLB miss": 2 * WALK_PS, "dma_read": 5 * LOAD_64_PS}
    times, bench = load_times([(0, 64), (0, 64)], walk_ns=0)
    assert (times, counts(bench)) == ([LOAD_64_PS] * 2, (1, 1))


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("start", "nbytes", "pages"),
    [(0, PAGE, 1), (4, PAGE, 2), (PAGE - 4, 4, 1), (PAGE - 4, 8, 2), (PAGE, 3 * PAGE, 3), (8, 3 * PAGE, 4)],
)
def test_a_lookup_for_each_page_that_a_load_touches(start: int, nbytes: int, pages: int) -> None:
    drain_ps = -(-nbytes * 1000 // 64)
    times, bench = load_times([(start, nbytes), (start, nbytes)])
    alone_ps = LOAD_64_PS - 1000 + drain_ps
    assert times == [alone_ps + pages * WALK_PS, alone_ps]
    assert counts(bench) == (pages, pages)


@pytest.mark.ideal
@pytest.mark.parametrize("walk_ps", [0, WALK_PS])
@pytest.mark.parametrize("stores", [0, 1, 3])
def test_a_walk_begins_when_what_came_before_is_issued(stores: int, walk_ps: int) -> None:
    """PE_CPU issues the stores, walks, and issues the load; each span starts when its cause ends."""
    bench = pair_bench({"pe_mmu": {**MMU, "walk_ns": walk_ps // 1000}, "pe_cpu.issue_ns": ISSUE_PS // 1000})
    spans = bench.sip.recorder.spans = list[Span]()
    tensor, began_ps = a_tensor(bench, PAGE), list[int]()

    def body(tl: TL) -> None:
        values = tl.load(PhysAddr(0, 0, 0, "tcm", 0).encode(), 16, "i32")
        began_ps.append(bench.engine.now_ps)
        for _ in range(stores):
            tl.store_async(PhysAddr(0, 0, 0, "tcm", 64).encode(), values)
        tl.load(tensor.va, 16, "i32")

    on_mmu(bench, 0, 0, body)
    bench.run()
    walks = [each for each in spans if each.name == "TLB miss"]
    begin_ps = began_ps[0] + stores * ISSUE_PS
    walked = [(begin_ps, begin_ps + WALK_PS, (1,))] if walk_ps else []
    assert [(each.start_ps, each.end_ps, each.facts) for each in walks] == walked
    assert bench.records("dma_read")[-1].end_ps == begin_ps + walk_ps + ISSUE_PS + LOAD_64_PS
    for each in spans:
        cause_ps = spans[each.cause[1] - 1].end_ps if each.cause[1] else 0
        assert (each.end_ps if each.is_wait else each.start_ps) == cause_ps, each


def test_physical_addresses_pass() -> None:
    bench = mmu_bench()
    mmu = bench.sip.pe(0, 0).mmu
    assert mmu is not None
    assert mmu.translate(PhysAddr(0, 1, 2, "hbm", 40).encode(), 10**9) == PhysAddr(0, 1, 2, "hbm", 40).encode()
    assert counts(bench) == (0, 0)


def test_each_word_that_has_an_address() -> None:
    """A page each: load, store, a send by address, a copy of what is received; all four walk on PE 0."""
    bench = mmu_bench()
    tensor = a_tensor(bench, 4 * PAGE)

    def sender(tl: TL) -> None:
        values = tl.load(tensor.va, 16, "i32")
        tl.store(tensor.va + PAGE, values)
        tl.send("E", src_addr=tensor.va + 2 * PAGE, shape=16, dtype="i32")
        tl.recv("E", 16, "i32", dst_addr=tensor.va + 3 * PAGE)

    on_mmu(bench, 0, 0, sender)
    on_mmu(bench, 1, 0, lambda tl: tl.send("W", tl.recv("W", 16, "i32")))
    bench.run()
    assert counts(bench) == (0, 4)
    assert counts(bench, 1) == (0, 0)
    assert bench.sip.recorder.waited_ps["cube0.pe0"]["TLB miss"] == 4 * WALK_PS


def test_an_unmapped_page_leaves_the_tlb() -> None:
    """Mapped again at the same address, it is another page: it must be walked for."""
    bench = mmu_bench()
    table = table_of(bench)
    pas = [PhysAddr(0, 0, 0, "hbm", offset).encode() for offset in (0, 8192)]
    seen = list[int]()

    def body(tl: TL) -> None:
        mmu = bench.sip.pe(0, 0).mmu
        assert mmu is not None
        for pa in (*pas, pas[0]):
            table.map(MmuMapMsg(None, None, entry(0, pa)))
            seen.extend(mmu.translate(VA + 4, 4) for _ in range(2))
            table.unmap(MmuUnmapMsg(None, None, (VA,)))
            assert len(mmu.tlb) == 0

    on_mmu(bench, 0, 0, body)
    bench.run()
    assert seen == [pa + 4 for pa in (pas[0], pas[0], pas[1], pas[1], pas[0], pas[0])]
    assert counts(bench) == (3, 3)


# --- faults ---------------------------------------------------------------------------------------------------


def test_a_tensor_that_is_freed_during_the_walk_is_a_fault() -> None:
    bench = mmu_bench()
    table = table_of(bench)
    table.map(MmuMapMsg(None, None, entry(0, PhysAddr(0, 0, 0, "hbm", 0).encode()), "tensor 7"))
    bench.engine.at(WALK_PS // 2, lambda: table.unmap(MmuUnmapMsg(None, None, (VA,))))
    on_mmu(bench, 0, 0, lambda tl: tl.load(VA, 4, "i32"))
    with pytest.raises(MmuFault, match=r"for cube 0, PE 0; tensor 7 at 0x\w+ to 0x\w+ was freed"):
        bench.run()
    assert bench.engine.now_ps == WALK_PS


@pytest.mark.parametrize(("offset", "nbytes"), [(PAGE - 4, 8), (PAGE, 2 * PAGE), (0, PAGE + 4)])
def test_an_access_over_the_shards_of_two_pes_is_an_error_as_without(offset: int, nbytes: int) -> None:
    """Two PEs with a page each."""
    bench = mmu_bench()
    tensor = a_tensor(bench, 2 * PAGE, DPPolicy("row_wise", "row_wise", 1, 2))
    on_mmu(bench, 0, 0, lambda tl: tl.load(tensor.va + offset, nbytes // 4, "i32"))
    with pytest.raises(MemoryAccessError, match=f"^{nbytes} bytes at virtual address 0x\\w+ are not within one shard"):
        bench.run()


# --- rings by virtual address ---------------------------------------------------------------------------------


def test_rings_have_virtual_addresses_only_where_they_are_asked_for() -> None:
    def rings(bench: Bench) -> list[tuple[int, int]]:
        peers = [entry.peer for entries in bench.plan.entries.values() for entry in entries]
        return sorted((peer.rx_base_va, peer.n_slots * peer.slot_size) for peer in peers)

    assert [va for bench in (mmu_bench(), pair_bench()) for va, _ in rings(bench)] == [0] * 4
    (low, nbytes), (high, _) = rings(mmu_bench(virtual_rings=True))
    assert RING_VA_BASE <= low <= low + nbytes <= high


@pytest.mark.ideal
def test_sends_go_through_the_tlb_of_the_sender() -> None:
    """Eight slots of a page each: eight walks, and then the first slots again, whose pages are there."""
    bench, times = mmu_bench(virtual_rings=True, tlb_entries=8), list[int]()

    def sender(tl: TL) -> None:
        for _ in range(10):
            began_ps = bench.engine.now_ps
            tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=16, dtype="i32")
            times.append(bench.engine.now_ps - began_ps)

    on_mmu(bench, 0, 0, sender)
    on_mmu(bench, 1, 0, lambda tl: [tl.recv("W", 16, "i32") for _ in range(10)])
    bench.run()
    assert times == [WALK_PS] * 8 + [0, 0]
    assert (counts(bench), counts(bench, 1)) == ((2, 8), (0, 0))
    bases = {entry.direction: entry.peer.rx_base_pa for entry in bench.plan.entries[PePlace(0, 0, 0)]}
    sent = [record.fields["addr"] for record in bench.records("ipcq.send")]
    assert sent == [bases["E"] + 4096 * (index % 8) for index in range(10)]


def test_a_send_that_waits_takes_the_page_of_its_own_slot() -> None:
    """Behind those that have left and those that wait, in a ring of eight slots."""
    bench = mmu_bench(virtual_rings=True)
    queue = bench.queue(0, 0, "E")
    for sent, waiting, slot in ((0, 0, 0), (3, 0, 3), (8, 0, 0), (8, 3, 3), (13, 5, 2)):
        queue.my_head = sent
        queue.sends.extend([None] * waiting)  # type: ignore[list-item]
        assert queue.last_tx_slot_va() == queue.peer.rx_base_va + 4096 * slot
        queue.sends.clear()


def test_a_ring_that_is_not_mapped_is_a_fault_of_the_send() -> None:
    bench = mmu_bench(virtual_rings=True)
    table_of(bench).unmap(MmuUnmapMsg(0, 0, (bench.queue(0, 0, "E").peer.rx_base_va,)))
    on_mmu(bench, 0, 0, lambda tl: tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=1, dtype="i32"))
    with pytest.raises(MmuFault, match=r"PE 0; the ring that E of 0\.0\.0 sends to at 0xc\w+ to 0xc\w+ was freed"):
        bench.run()
