"""Whole runs with PE_MMU: what it adds, the same digest everywhere, explanations that add up, faults by name."""

from typing import Any

import pytest
from explained import check_path, explained
from runs import Run, run, script_file
from sweeps import crossed

from launcher.probe.command import main, parse_probe, probe

SMALL = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
OFF = ("--set", "pe_mmu=null")
WALK_NS = 200


def mmu(page_KiB: int = 2048, entries: int = 64, rings: bool = False) -> tuple[str, str]:
    keys = f"page_KiB: {page_KiB}, tlb_entries: {entries}, walk_ns: {WALK_NS}, virtual_rings: {str(rings).lower()}"
    return "--set", f"pe_mmu={{{keys}}}"


def time_ns(done: Run) -> float:
    assert done.outcome.error is None, done.outcome.error
    (row,) = done.document["runs"]
    assert row["wrong"] == 0
    return row["time_ns"]


@pytest.mark.ideal
def test_the_first_touch_of_a_tensor_costs_a_walk_and_the_next_nothing():
    """All PEs load at the start, all walk at once: one walk on the path. With a warm-up the TLBs hold all pages."""
    without = time_ns(run(*SMALL, *OFF))
    assert time_ns(run(*SMALL, *mmu(), "--check-invariants")) == without + WALK_NS
    assert time_ns(run(*SMALL, *mmu(), "-w", 1)) == time_ns(run(*SMALL, *OFF, "-w", 1))


def test_without_it_nothing_is_counted():
    assert run(*SMALL, *OFF).document["runs"][0]["tlbs"] == []


def test_lookups_of_each_pe_in_the_result():
    """32 KiB in four rows: each PE loads and stores its 8 KiB by tiles of a page, so it walks twice and else hits."""
    done = run(*SMALL, *mmu(page_KiB=4), "--bytes", "32K", keep_oplog=True)
    rows = {row["pe"]: row for row in done.document["runs"][0]["tlbs"]}
    assert list(rows) == [f"sip{sip}.cube{cube}.pe0" for sip in range(2) for cube in range(4)]
    for member in done.members:
        records = [each for each in member.chip.sip.oplog.records if each[0] in ("dma_read", "dma_write")]
        for cube in range(4):
            row, accesses = rows[f"sip{member.rank}.cube{cube}.pe0"], sum(each[3] == cube for each in records)
            assert (row["misses"], row["hits"]) == (2, accesses - 2)


# --- explanations ---------------------------------------------------------------------------------------------

WALKS = "PE_MMU, page walks"


JOB: dict[str, Any] = {"sips": 2, "bytes": "48K"}
CUBES = "sip.cube_mesh={w: 2, h: 2}"


@pytest.mark.parametrize(
    ("rings", "kind", "ways"), crossed([False, True], ["tcm", "hbm", "sram"], ["fast_path", "piggyback"])
)
def test_the_parts_of_the_path_add_up_and_walks_have_a_price(rings, kind, ways):
    settings = (mmu(4, 3, rings)[1], f"defaults.buffer_kind={kind}", f"defaults.credit_return_mode={ways}")
    document, told = explained(**JOB, set=[CUBES, *settings])
    check_path(document, told)
    misses = [step for step in told.steps if step.what == "TLB miss"]
    assert misses
    for step in misses:
        (part,) = step.parts
        assert (part.part, part.keys, part.ps % (WALK_NS * 1000)) == (WALKS, ("pe_mmu.walk_ns",), 0)
    assert sum(part.ps for part in told.parts if part.part == WALKS) == sum(s.end_ps - s.start_ps for s in misses)


@pytest.mark.ideal
def test_a_run_confirms_what_half_a_walk_saves():
    _, told = explained(2, **JOB, set=[CUBES, mmu(4, 2, True)[1]])
    walks = next(each for each in told.what_if if each.name == "pe_mmu.walk_ns")
    assert walks.rerun_saved_ps is not None
    assert abs(walks.saved_ps - walks.rerun_saved_ps) <= 0.1 * walks.rerun_saved_ps


# --- ahbm-probe -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "tlb"),
    crossed(
        [("0.0.3", "0.0.5"), ("0.0.7", "0.5.6"), ("0.2.6", "1.3.1"), ("1.15.7", "0.0.1")],
        [(False, 2048, 0), (True, 2048, 1), (True, 4, 1)],
    ),
)
def test_the_probe_tells_what_a_miss_adds(capsys, ends, tlb):
    """From any PE of a cube to any: the same sums as without, and the walk of the first send apart."""
    (src, dst), (rings, page_KiB, walks) = ends, tlb
    words = ["--from", src, "--to", dst, "--bytes", "4096"]
    without = probe(parse_probe([*words, *OFF]))
    told = probe(parse_probe([*words, *mmu(page_KiB, 4, rings)]))
    misses = told.pop("tlb_misses")
    assert told == without
    walk_ps = WALK_NS * 1000
    assert misses == {
        "walk_ps": walk_ps,
        "walks": walks,
        "sum_ps": walks * walk_ps,
        "simulated_ps": walks * walk_ps,
    }
    for more in ([], ["--short"]):
        assert main([*words, *mmu(page_KiB, 4, rings), *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        found = [line.strip("# ") for line in lines if "PE_MMU" in line]
        first = "PE_MMU: sums assume that TLBs hold all pages; a miss adds 200.000 ns to a command"
        second = "PE_MMU: misses before the first send: 1, 200.000 ns; simulated 200.000 ns"
        assert found == [first, second][: 1 + walks]
    assert main([*words, *OFF]) == 0
    assert "PE_MMU" not in capsys.readouterr().out


# --- faults ---------------------------------------------------------------------------------------------------

HEAD = "import gc\n\n\ndef touch(address, tl):\n    if tl.program_id(1) == 2:\n        tl.load(address, 4, 'i32')\n\n\n"
FREED = """
    tensor = torch.zeros((4, 1024), dtype="i32")
    va = tensor.va
    torch.launch(touch, va)
    del tensor
    torch.space.free_dead()
    torch.launch(touch, va + 16)
"""
WILD = """
    tensor = torch.zeros((4, 1024), dtype="i32")
    torch.launch(touch, tensor.va + 2**20)
"""
ACROSS = """
    tensor = torch.zeros((4, 1024), dtype="i32")
    torch.launch(touch, tensor.va + 4096 - 8)
"""
FAULTS = {
    "use after free": (
        FREED,
        "MmuFault",
        "16 bytes at virtual address 0x8000000000000010 are not mapped for cube 2, PE 0; tensor 0: (4, 1024) i32, "
        "16384 bytes at 0x8000000000000000 to 0x8000000000001000 was freed; keep the tensor while kernels use it "
        "(rank 0, cube 2, PE 0, at ",
    ),
    "a wild address": (
        WILD,
        "MmuFault",
        "16 bytes at virtual address 0x8000000000100000 are not mapped for cube 2, PE 0; nearest mappings: below "
        "tensor 0: (4, 1024) i32, 16384 bytes at 0x8000000000003000 to 0x8000000000004000 (rank 0, cube 2, PE 0, at ",
    ),
    "over the end of a shard": (
        ACROSS,
        "MemoryAccessError",
        "16 bytes at virtual address 0x8000000000000ff8 are not within one shard of a tensor: tensor 0: (4, 1024) i32, "
        "16384 bytes at 0x8000000000000000 to 0x8000000000001000 (rank 0, cube 2, PE 0, at ",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_the_place_and_the_line(tmp_path, name):
    body, kind, line = FAULTS[name]
    path = script_file(tmp_path, f"{HEAD}def worker(rank, world_size, torch):{body}")
    done = run("--sips", 1, *SMALL[2:], *mmu(), path)
    error = done.outcome.error
    assert (done.outcome.exit_code, error.kind) == (3, kind)
    assert error.message.startswith(line), error.message
    facts = done.document["error"]
    assert (facts["rank"], facts["cube"], facts["pe"]) == (0, 2, 0)
    assert "tl.load(address, 4, 'i32')" in error.detail
