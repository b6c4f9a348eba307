"""Runs of the built-in job, drawn: systems, queues, links, costs and sizes. A seed is a run."""

import random
from typing import Any

from doorbells import heads

SYSTEMS = [
    *((sips, "ring_1d") for sips in (1, 2, 3)),
    (4, "torus_2d"),
    (4, "mesh_2d_no_wrap"),
    (5, "ring_1d"),
    (9, "torus_2d"),
]


def drawn(seed: int) -> dict[str, Any]:
    """The keywords of ``launcher.api.run``."""
    draw = random.Random(seed)
    sips, topology = draw.choice(SYSTEMS)
    width, height = draw.choice(((1, 1), (2, 1), (2, 2), (3, 2)))
    n_elem = draw.choice((24, 128, 600, 2048, 5000))
    settings = {
        "sip.cube_mesh.w": width,
        "sip.cube_mesh.h": height,
        "defaults.n_slots": draw.choice((1, 2, 8)),
        "defaults.slot_size": draw.choice((512, 1024, 4096)),
        "defaults.buffer_kind": draw.choice(("tcm", "tcm", "hbm", "sram")),
        "defaults.credit_return_mode": draw.choice(("fast_path", "auto", "fabric", "piggyback")),
        "defaults.backpressure": draw.choice(("sleep", "sleep", "sleep", "poll")),
        "defaults.virtual_channels": draw.choice(("true", "false")),
        "router.overhead_ns": draw.choice((1, 1, 5)),
        "pe_math.bandwidth_GBps": draw.choice((16, 64, 256)),
        "hbm.read_latency_ns": draw.choice((20, 99)),
        "ucie_port.bandwidth_GBps": draw.choice((32, 64)),
    }
    frames = random.Random(f"{seed} frames")
    for preset in ("ethernet_100g", "ethernet_400g"):
        settings[f"links.{preset}.params.forwarding"] = frames.choice(("cut_through", "store_and_forward"))
        settings[f"links.{preset}.params.min_frame_bytes"] = frames.choice((0, 64))
    settings["ucie_port.flit_bytes"] = frames.choice(("null", "null", 256))
    settings["ucie_port.fdi_to_fdi_ns"] = frames.choice((4, 2))
    settings["defaults.vc_chunk_header_bytes"] = frames.choice((0, 0, 16))
    settings["defaults.head_update"] = random.Random(f"{seed} heads").choice(("piggyback", "piggyback", "doorbell"))
    modes = heads(settings, settings.pop("defaults.credit_return_mode"))
    return {
        "sips": sips,
        "topology": topology,
        "link": draw.choice(("ucie", "ucie", "ethernet_100g", "ethernet_400g")),
        "n_elem": n_elem,
        "dtype": draw.choice(("f16", "f32", "i32")),
        "iters": draw.choice((1, 1, 2)),
        "seed": seed,
        "set": [*(f"{key}={value}" for key, value in settings.items()), *modes],
        "engine": "inproc",
    }
