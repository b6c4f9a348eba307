"""What each cost of the machine changes: a few lines of kernel with the variant ``ideal``, and with the default config.

Each row is a run in this process, on cubes 0 and 1 of one SIP if not said otherwise. Times are simulated, from the
launch to the end of its last kernel, without the launch and page walks but in their own rows; a run that fails is shown
by its error.
"""

import argparse
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import launcher.api

from .kit import Flag

FLAGS = {"only": Flag("", "message of 2", "rows with this text")}
SMALL = ("sip.cube_mesh.w=2", "sip.cube_mesh.h=1")
SCRIPT = """
from sipsim.core.dtypes import DTYPES
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.chips.ahbm.address import PhysAddr

def here(tl, space, offset=0):
    return Pointer(PhysAddr(tl.program_id(2), tl.program_id(1), 0, space, offset).encode(), DTYPES["f16"])

def kernel(hbm, tl):
    pe, cube, sip = tl.program_id(0), tl.program_id(1), tl.program_id(2)
{body}

def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.launch(kernel, torch.zeros((2, 2**20), dtype="f16"), pes={pes})
"""


class Case(NamedTuple):
    """``body``: of the kernel. ``settings``: besides the mesh of two cubes. ``changes``: of the default config only.

    ``pes``: of each cube.
    """

    name: str
    body: str
    settings: tuple[str, ...] = ()
    sips: int = 1
    link: str = "ucie"
    pes: tuple[int, ...] = (0,)
    changes: tuple[str, ...] = ("launch=null", "pe_mmu=null")


NEXT_CUBE = """
if cube == 0:
    tl.send("E", tl.load(here(tl, "tcm"), {elements}))
else:
    tl.recv("W", {elements}, "f16")
"""
NEXT_SIP = """
if cube == 0 and sip == 0:
    tl.send("global_E", tl.load(here(tl, "tcm"), {elements}))
elif cube == 0:
    tl.recv("global_W", {elements}, "f16")
"""
CASES = (
    Case(
        "load 12 MiB from the PE's own TCM",
        """
        if cube == 0:
            tl.load(here(tl, "tcm"), 6 * 2**20)
        """,
    ),
    Case(
        "hold 16 handles of 12 MiB each",
        """
        if cube == 0:
            held = [tl.load(here(tl, "tcm"), 6 * 2**20) for _ in range(16)]
        """,
    ),
    Case(
        "issue 1,000 sends of 2 B",
        """
        if cube == 0:
            one = tl.load(here(tl, "tcm"), 1)
            for _ in range(1000):
                tl.send("E", one)
        """,
        ("defaults.n_slots=1024", "defaults.slot_size=64"),
    ),
    Case(
        "exp of 64 KiB",
        """
        if cube == 0:
            tl.exp(tl.zeros(2**15, "f16"))
        """,
    ),
    Case("sleep until a message of 2 B comes", NEXT_CUBE.format(elements=1)),
    Case(
        "poll every 10 ns until a message of 2 B comes", NEXT_CUBE.format(elements=1), ("defaults.backpressure=poll",)
    ),
    Case(
        "send twice into a ring of one slot; the receives are posted, and waited for after a load of 1 MiB",
        """
        if cube == 0:
            tile = tl.load(here(tl, "tcm"), 2048)
            tl.send("E", tile)
            tl.send("E", tile)
        else:
            posted = [tl.recv_async("W", 2048, "f16") for _ in range(2)]
            tl.load(hbm, 2**19)
            for future in posted:
                tl.wait(future)
        """,
        ("defaults.n_slots=1",),
        changes=("launch=null", "pe_mmu=null", "defaults.latch=copy"),
    ),
    Case(
        "receive twice from a ring of one slot, and name neither message before",
        """
        if cube == 0:
            tile = tl.load(here(tl, "tcm"), 2048)
            tl.send("E", tile)
            tl.send("E", tile)
        else:
            first, second = tl.recv("W", 2048, "f16"), tl.recv("W", 2048, "f16")
        """,
        ("defaults.n_slots=1",),
    ),
    Case(
        "receive twice through a ring of one slot in HBM",
        """
        if cube == 0:
            tile = tl.load(here(tl, "tcm"), 2048)
            tl.send("E", tile)
            tl.send("E", tile)
        else:
            for _ in range(2):
                tl.store(hbm, tl.recv("W", 2048, "f16"))
        """,
        ("defaults.n_slots=1", "defaults.buffer_kind=hbm"),
    ),
    Case(
        "load 1 MiB from HBM",
        """
        if cube == 0:
            tl.load(hbm, 2**19)
        """,
    ),
    Case(
        "store 1 MiB to HBM while another PE loads 1 MiB from there",
        """
        if cube == 0 and pe == 0:
            tl.load(hbm, 1)
            tl.store(hbm, tl.load(here(tl, "tcm"), 2**19))
        elif cube == 0:
            tl.load(hbm, 2**19)
        """,
        pes=(0, 1),
    ),
    Case("a message of 240 B to the next cube", NEXT_CUBE.format(elements=120)),
    Case("a message of 240 B to the next SIP over UCIe", NEXT_SIP.format(elements=120), sips=2),
    Case("a message of 2 B to the next SIP over Ethernet", NEXT_SIP.format(elements=1), sips=2, link="ethernet_100g"),
    Case(
        "a message of 4 KiB to the next SIP over Ethernet", NEXT_SIP.format(elements=2048), sips=2, link="ethernet_100g"
    ),
    Case(
        "load 2 B from the tensor twice",
        """
        if cube == 0:
            tl.load(hbm, 1)
            tl.load(hbm, 1)
        """,
        changes=("launch=null",),
    ),
    Case("start a kernel that does nothing", "pass", changes=()),
)


def outcome(case: Case, variant: str | None, folder: str) -> str:
    """The time of the launch on the rank where it took longest, or the error."""
    script = Path(folder, "script.py")
    body = textwrap.indent(textwrap.dedent(case.body).strip(), "    ")
    script.write_text(SCRIPT.format(body=body, pes=list(case.pes)))
    done = launcher.api.run(
        script,
        engine="inproc",
        sips=case.sips,
        link=case.link,
        variant=variant,
        set=[*SMALL, *case.settings, *(() if variant else case.changes)],
        verify_data=False,
    )
    if done.error is not None:
        return f"{done.error['kind']}: {done.error['message']}"
    launches: list[dict[str, Any]] = done.document["launches"]
    return f"{max(each['end_ns'] for each in launches):,.3f} ns"


def all_reduce(variant: str | None) -> str:
    """The default job with 1 MiB on four SIPs."""
    run = launcher.api.run(engine="inproc", sips=4, bytes=["1M"], variant=variant).runs[0]
    return f"{run['time_ns']:,.3f} ns"


def measure(chosen: argparse.Namespace) -> list[dict[str, str]]:
    """Run the cases with this text; errors are as long as a line, so each variant has one."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {case.name: (lambda variant, case=case: outcome(case, variant, folder)) for case in CASES}
        runs["all-reduce of 1 MiB on four SIPs in a ring"] = all_reduce
        rows = []
        for name, run in runs.items():
            if chosen.only in name:
                row = {"run": name, "ideal": run("ideal"), "default": run(None)}
                print(f"{name}\n    ideal    {row['ideal']}\n    default  {row['default']}", flush=True)
                rows.append(row)
    return rows
