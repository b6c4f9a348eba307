"""Every kind of mistake in a value, a key or a flag, with its exact error line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sipsim.ccl.rules import check_overrides_of_job
from sipsim.chips.base import CHIPS
from sipsim.chips.load import RULES, load
from sipsim.chips.rules import chip_rules_hold
from sipsim.config.document import SECTION_FILES
from sipsim.config.load import _defaults, convert
from sipsim.config.override import Override, apply, parse_set
from sipsim.errors import ConfigError
from sipsim.links.rules import link_kinds_frame_payloads

LineOf = Callable[..., str]
ALLREDUCE = "intercube_allreduce"
TOP_LEVEL = ", ".join(sorted(key for file in SECTION_FILES.values() for key in file.__struct_fields__))
ALGORITHMS = ", ".join(sorted(load().ccl.algorithms))
MEMORIES = "banked_sram, fixed_latency, hbm_controller, latency_bandwidth, tcm_ports"


def sets(*texts: str) -> list[Override]:
    return [parse_set(text) for text in texts]


LAUNCH = (
    "host_latency_ns: 1, cube_bytes: 64, pe_bytes: 64, done_bytes: 16, start_margin_ns: null, max_start_skew_ns: 0, "
    "start_skew_seed: 0"
)
LINKS = "ethernet_100g, ethernet_400g, tenstorrent_100g, tenstorrent_200g, tenstorrent_400g, ucie"
ONE_SET = [
    ("system.sips.count=-1", "system.sips.count = -1: must be at least 1"),
    ("system.sips.count=0", "system.sips.count = 0: must be at least 1"),
    ("system.sips.count=2049", "system.sips.count = 2049: must be at most 2048"),
    ("system.sips.count=two", "system.sips.count = 'two': must be a whole number"),
    ("system.sips.count='2'", "system.sips.count = '2': must be a whole number"),
    ("system.sips.count=2.0", "system.sips.count = 2.0: must be a whole number"),
    ("system.sips.count=true", "system.sips.count = true: must be a whole number"),
    ("system.sips.count=null", "system.sips.count = null: must be a whole number"),
    ("system.sips.count=", "system.sips.count = null: must be a whole number"),
    ("system.sips.count=[1]", "system.sips.count = [1]: must be a whole number"),
    ("system.sips.count=.nan", "system.sips.count = nan: must be a whole number"),
    (f"system.sips.count={10**30}", f"system.sips.count = {10**30}: must be at most 2048"),
    ("wire.ns_per_mm=fast", "wire.ns_per_mm = 'fast': must be a number"),
    ("wire.ns_per_mm=false", "wire.ns_per_mm = false: must be a number"),
    ("wire.ns_per_mm=.nan", "wire.ns_per_mm = nan: must be a finite number"),
    ("wire.ns_per_mm=.inf", "wire.ns_per_mm = inf: must be a finite number"),
    ("wire.ns_per_mm=1e999", "wire.ns_per_mm = inf: must be a finite number"),
    ("wire.ns_per_mm=-0.5", "wire.ns_per_mm = -0.5: must be at least 0"),
    ("wire.ns_per_mm=1e13", "wire.ns_per_mm = 10000000000000.0: must be at most 1000000"),
    ("router.bandwidth_GBps=0", "router.bandwidth_GBps = 0: must be at least 1e-09"),
    ("pe_dma.ack_bytes=1099511627777", "pe_dma.ack_bytes = 1099511627777: must be at most 1099511627776"),
    ("system.sips.topology=3", "system.sips.topology = 3: must be text"),
    ("defaults.strict_validation=1", "defaults.strict_validation = 1: must be true or false"),
    ("defaults.strict_validation=yes", "defaults.strict_validation = 'yes': must be true or false"),
    ("defaults.strict_validation=on", "defaults.strict_validation = 'on': must be true or false"),
    ("defaults.buffer_kind=tmc", "defaults.buffer_kind = 'tmc': must be one of: hbm, sram, tcm"),
    ("defaults.buffer_kind=3", "defaults.buffer_kind = 3: must be one of: hbm, sram, tcm"),
    ("defaults.backpressure=spin", "defaults.backpressure = 'spin': must be one of: poll, sleep"),
    (
        "defaults.credit_return_mode=fast",
        "defaults.credit_return_mode = 'fast': must be one of: auto, fabric, fast_path, piggyback",
    ),
    ("defaults.poll_interval_ns=0", "defaults.poll_interval_ns = 0: must be at least 0.001"),
    ("defaults.vc_comm_weight=0", "defaults.vc_comm_weight = 0: must be at least 1"),
    (f"algorithms.{ALLREDUCE}.n_slots=x", f"algorithms.{ALLREDUCE}.n_slots = 'x': must be a whole number, or null"),
    (f"algorithms.{ALLREDUCE}.n_slots=0", f"algorithms.{ALLREDUCE}.n_slots = 0: must be at least 1, or null"),
    ("system.sips.shape=[3]", "system.sips.shape = [3]: must be a list of 2 values, or null"),
    ("system.sips.shape=3", "system.sips.shape = 3: must be a list of 2 values, or null"),
    ("system.sips.shape=3x0", "system.sips.shape[1] = 0: must be at least 1"),
    ("system.sips.custom_links=3", "system.sips.custom_links = 3: must be a list"),
    (
        "system.sips.custom_links=[{a: 0, a_port: E, b: 1, b_port: X}]",
        "system.sips.custom_links[0].b_port = 'X': must be one of: E, N, S, W",
    ),
    (
        "system.sips.custom_links=[{a: 0, a_port: E, b: 1}]",
        "system.sips.custom_links[0].b_port: missing; it must be given",
    ),
    (
        "system.sips.custom_links=[7]",
        "system.sips.custom_links[0] = 7: must be a mapping; allowed: a, a_port, b, b_port, link",
    ),
    ("wire=3", "wire = 3: must be a mapping; allowed: ns_per_mm"),
    ("wire=null", "wire = null: must be a mapping; allowed: ns_per_mm"),
    ("wire=[1, 2]", "wire = [1, 2]: must be a mapping; allowed: ns_per_mm"),
    ("links=3", "links = 3: must be a mapping of names to entries"),
    ("links.x=3", "links.x = 3: must be a mapping; allowed: kind, params, source"),
    (
        "algorithms.x={module: m, topology: none, root_cube: middle}",
        "algorithms.x.root_cube = 'middle': must be a whole number, or auto, or null",
    ),
    (
        "algorithms.x={module: m}",
        "algorithms.x.topology: missing; it must be given, such as --set 'algorithms.x={topology: ring_1d}'",
    ),
    (
        "algorithms.x={module: m, topology: none, n_slot: 3}",
        "unknown key 'n_slot' in algorithms.x; did you mean 'n_slots'? allowed: backpressure, buffer_kind, "
        "credit_return_mode, credit_virtual_channel, hw_strict, ipcq_credit_size_bytes, latch, module, n_elem, "
        "n_slots, opposites, piggyback_wait_ns, poll_interval_max_ns, poll_interval_ns, rank_per, root_cube, "
        "slot_size, strict_validation, topology, vc_chunk_size, vc_comm_weight, vc_compute_weight, virtual_channels, "
        "world_size",
    ),
    ("links.ucie.params=3", "links.ucie.params = 3: must be a mapping of names to entries"),
    ("wire={ns_per_cm: 1}", "unknown key 'ns_per_cm' in wire; did you mean 'ns_per_mm'? allowed: ns_per_mm"),
    # paths
    (
        "system.sips.cuont=2",
        "unknown key 'cuont' in system.sips; did you mean 'count'? "
        "allowed: count, custom_links, link, links, num_links, outages, shape, topology",
    ),
    ("sistem.sips=2", f"unknown key 'sistem'; did you mean 'system'? allowed: {TOP_LEVEL}"),
    (".x=2", f"unknown key ''; allowed: {TOP_LEVEL}"),
    ("system.sips.count.x=2", "system.sips.count is one value; nothing can be set inside it"),
    ("system.sips.custom_links.0=2", "system.sips.custom_links is one value; nothing can be set inside it"),
    ("system.sips.shape.0=2", "system.sips.shape is one value; nothing can be set inside it"),
    (
        "links.uice.kind=ucie",
        f"unknown key 'uice' in links; did you mean 'ucie'? allowed: {LINKS}",
    ),
    ("algorithms.foo.module=x", f"unknown key 'foo' in algorithms; allowed: {ALGORITHMS}"),
    ("links.ucie.params.retimer_ns.x=1", "links.ucie.params.retimer_ns = 4: must be a mapping to be set inside"),
    ("wire.ns_per_mm=[1", "not valid YAML: did not find expected ',' or ']'"),
    ("wire.ns_per_mm=!!int 3", "tag 'tag:yaml.org,2002:int' is not allowed; write the value without it"),
    ("wire.ns_per_mm=&a 3", "anchor &a is not allowed; write the value out"),
    ("nonsense", "write --set key.path=value, such as --set system.sips.count=4"),
    ("=3", "write --set key.path=value, such as --set system.sips.count=4"),
    # rules between values
    (
        "system.sips.topology=tours_2d",
        "system.sips.topology: unknown topology 'tours_2d'; did you mean 'torus_2d'? "
        "allowed: blackhole_8, custom, galaxy, galaxy_torus, mesh_2d_no_wrap, n300, ring_1d, t3000, torus_2d, tt_line, "
        "tt_ring",
    ),
    (
        "parts={scratch: {KiB: 4}}",
        "parts.scratch: unknown part 'scratch'; allowed: hbm, io, io_cpu, m_cpu, pe, router, sram, ucie",
    ),
    (
        f"launch={{{LAUNCH}, start_skew_ns: {{}}}}",
        "io_cpu = null: launch needs it; give io_cpu its keys, or set launch to null",
    ),
    (
        f"launch={{{LAUNCH}, start_skew_ns: {{2: 10}}}}",
        "launch.start_skew_ns.2 = 10.0: '2' is no rank; allowed: 0 to 1",
    ),
    (
        "io_cpu={cube: 16, overhead_ns: 1, bandwidth_GBps: 64, launch_ns: 0, gather_ns: 0}",
        "io_cpu.cube = 16: no such cube in a 4x4 mesh; allowed: 0 to 15",
    ),
    ("parts={sram: {KiB: 4}}", "unknown key 'KiB' in parts.sram; allowed: none"),
    ("system.chip=ahmb", "system.chip: unknown chip 'ahmb'; did you mean 'ahbm'? allowed: ahbm, blackhole, wormhole"),
    ("system.chip_params={cores: 4}", "unknown key 'cores' in system.chip_params; allowed: none"),
    (
        "system.sips.link=ethernet_100",
        f"system.sips.link: unknown link 'ethernet_100'; did you mean 'ethernet_100g'? allowed: {LINKS}",
    ),
    (
        "system.sips.links={0.E: ethernet_100}",
        f"system.sips.links.0.E: unknown link 'ethernet_100'; did you mean 'ethernet_100g'? allowed: {LINKS}",
    ),
    (
        "system.sips={topology: custom, custom_links: [{a: 0, a_port: E, b: 1, b_port: W, link: uice}]}",
        f"system.sips.custom_links[0].link: unknown link 'uice'; did you mean 'ucie'? allowed: {LINKS}",
    ),
    (
        "system.sips.links={0.N: ethernet_100g}",
        "system.sips.links 0.N: unknown port '0.N'; allowed: 0.E, 0.W, 1.E, 1.W",
    ),
    (
        "system.sips.links={0.E: ethernet_100g, 1.W: ucie}",
        "system.sips.links 1.W = ucie: one link, and its other end 0.E is ethernet_100g",
    ),
    (
        "system.sips.outages=[{port: 0.N, at_us: 1, for_us: 2}]",
        "system.sips.outages[0].port: unknown port '0.N'; allowed: 0.E, 0.W, 1.E, 1.W",
    ),
    (
        "system.sips.outages=[{port: 1.W, at_us: 1, for_us: 2}]",
        "system.sips.outages: the link at 1.W is of kind Ucie, which has no outages; a link of kind Ethernet may go "
        "down",
    ),
    (
        "links.ucie.kind=ucei",
        "links.ucie.kind: unknown link kind 'ucei'; did you mean 'ucie'? allowed: ethernet, ucie",
    ),
    (
        "links.ethernet_100g.params.packet_overhead_bytes=50",
        "key 'packet_overhead_bytes' in links.ethernet_100g.params is now preamble_bytes, header_bytes, "
        "stream_header_bytes, fcs_bytes and gap_bytes; their sum is the old value; min_frame_bytes: 0 and forwarding: "
        "cut_through are as before",
    ),
    (
        "links.ethernet_100g.params.forwarding=cut",
        "links.ethernet_100g.params.forwarding = 'cut': must be one of: cut_through, store_and_forward",
    ),
    (
        "links.ethernet_100g.params.latency_ns=0",
        "links.ethernet_100g.params.latency_ns = 0: a link between SIPs without delay cannot be simulated in parallel; "
        "must be more than 0",
    ),
    (
        "links.ethernet_100g.params.latency_ns=0.0",
        "links.ethernet_100g.params.latency_ns = 0.0: a link between SIPs without delay cannot be simulated in "
        "parallel; must be more than 0",
    ),
    (
        "links.ethernet_100g.params.latency_ns=0.0001",
        "links.ethernet_100g.params.latency_ns = 0.0001: must be at least 0.001",
    ),
    ("links.ucie.params.retimer_ns=false", "links.ucie.params.retimer_ns = false: must be a number"),
    ("links.ucie.params.retimer_ns=.nan", "links.ucie.params.retimer_ns = nan: must be a finite number"),
    (
        "links.ucie.params.latency_ns=20",
        "key 'latency_ns' in links.ucie.params is now fdi_to_fdi_ns + reach_mm x ns_per_mm + retimers x retimer_ns; "
        "their sum is the old value",
    ),
    (
        "links.ucie.params={fdi_to_fdi_ns: 0, retimer_ns: 0}",
        "links.ucie.params: fdi_to_fdi_ns + reach_mm x ns_per_mm + retimers x retimer_ns = 0: a link between SIPs "
        "without delay cannot be simulated in parallel; must be more than 0",
    ),
    (
        "ucie_port.overhead_ns=1",
        "key 'overhead_ns' in ucie_port is now fdi_to_fdi_ns; of the whole crossing: twice the old value, which was of "
        "one port",
    ),
    (
        "ucie_port={flit_bytes: 16}",
        "ucie_port.flit_overhead_bytes = 16: must be less than ucie_port.flit_bytes (16)",
    ),
    ("links.ucie.params.flit_bytes=1", "links.ucie.params.flit_bytes = 1: must be at least 2, or null"),
    (
        "links.ucie.params={flit_bytes: 256, flit_overhead_bytes: 256}",
        "links.ucie.params: flit_overhead_bytes must be less than flit_bytes (256)",
    ),
    (
        "links.ucie.params.retimr_ns=1",
        "unknown key 'retimr_ns' in links.ucie.params; did you mean 'retimer_ns'? "
        "allowed: bandwidth_GBps, fdi_to_fdi_ns, flit_bytes, flit_overhead_bytes, ns_per_mm, reach_mm, retimer_ns, "
        "retimers",
    ),
    ("system.sips.shape=2x2", "system.sips.shape = [2, 2]: ring_1d has no shape; leave it null"),
    (
        "system.sips={topology: torus_2d, count: 6}",
        "torus_2d needs a perfect square of SIPs or a shape, and 6 is no square; add --shape 3x2",
    ),
    ("system.sips.topology=custom", "system.sips: no path of links from SIP 0 to SIP 1; join all SIPs"),
    (
        "system.sips.custom_links=[{a: 0, a_port: E, b: 1, b_port: W}]",
        "system.sips.custom_links: given, but system.sips.topology is ring_1d; "
        "use topology custom or leave the list out",
    ),
    (
        "system.sips={topology: custom, custom_links: [{a: 0, a_port: 0, b: 1, b_port: W}]}",
        "system.sips.custom_links[0].a_port = 0: must be text",
    ),
    (
        "system.sips={topology: custom, custom_links: [{a: 0, a_port: e.1, b: 1, b_port: w.2}]}",
        "system.sips.custom_links[0].a_port = 'e.1': must be a letter and then letters, digits or _, 16 in all at most",
    ),
    (
        "system.sips={topology: custom, custom_links: [{a: 0, a_port: up, b: 1, b_port: down}]}",
        "system.sips.topology = custom: its links leave by port up; a SIP of chip ahbm has E, N, S, W; "
        "use another chip or topology",
    ),
    (
        "system.sips.num_links=2",
        "system.sips.num_links: given, but system.sips.topology is ring_1d; "
        "use topology tt_line or tt_ring, or leave the number out",
    ),
    ("sip.cube_mesh={w: 16, h: 17}", "sip.cube_mesh = 16x17: must have at most 256 cubes, as addresses do"),
    ("sip.ports.E=16", "sip.ports.E = 16: no such cube in a 4x4 mesh; allowed: null, 0 to 15"),
    ("cube.pes=9", "cube.pes = 9: must be at most 8, one PE a router (cube.noc.routers is 4x2)"),
    ("cube.noc.routers.w=3", "cube.pes = 8: must be at most 6, one PE a router (cube.noc.routers is 3x2)"),
    ("sram.kind=banked", f"sram.kind: unknown memory kind 'banked'; did you mean 'banked_sram'? allowed: {MEMORIES}"),
    ("hbm.params={banks: 4}", "unknown key 'banks' in hbm.params; allowed: none"),
    (
        "hbm={kind: hbm_controller}",
        "hbm.params.preset: missing; it must be given, such as --set 'hbm={kind: hbm_controller, params: {preset: "
        "hbm3_6400}}'",
    ),
    (
        "hbm={kind: hbm_controller, params: {preset: hbm3_640}}",
        "hbm.params.preset = 'hbm3_640': unknown HBM preset 'hbm3_640'; did you mean 'hbm3_6400'? "
        "allowed: hbm3_6400, hbm3e_9600, hbm4_8000",
    ),
    (
        "hbm={kind: hbm_controller, params: {preset: hbm3_6400, channels: 3}}",
        "hbm.params.channels = 3: address bits choose the channel, so it must be a power of two, such as 2",
    ),
    (
        "hbm={kind: hbm_controller, params: {preset: hbm3_6400, channels: 1}}",
        "hbm.params.channels = 1: channels of hbm3_6400 hold 1024 MiB, and a PE's slice has 2048 MiB; raise it, or "
        "lower cube.hbm_MiB_per_pe",
    ),
    (
        "hbm={kind: hbm_controller, params: {preset: hbm3_6400, refresh: some}}",
        "hbm.params.refresh = 'some': must be one of: all_bank, none",
    ),
    (
        "sram={kind: banked_sram, params: {banks: 12, interleave_bytes: 64, bank_bandwidth_GBps: 32}}",
        "sram.params.banks = 12: address bits choose the bank, so it must be a power of two, such as 8",
    ),
    (
        "sram={kind: banked_sram, params: {banks: 8, interleave_bytes: 48, bank_bandwidth_GBps: 32}}",
        "sram.params.interleave_bytes = 48: address bits choose the bank, so it must be a power of two, such as 32",
    ),
    (
        "tcm={kind: tcm_ports}",
        "tcm.params.bandwidth_GBps: missing; it must be given, such as --set 'tcm={kind: tcm_ports, params: "
        "{bandwidth_GBps: 128}}'",
    ),
    (
        "tcm={kind: tcm_ports, params: {bandwidth_GBps: 64, ports: two}}",
        "tcm.params.ports = 'two': must be one of: read_and_write, shared",
    ),
    (
        "hbm={kind: latency_bandwidth, params: {bandwidth_GBps: 0}}",
        "hbm.params.bandwidth_GBps = 0: must be at least 1e-09",
    ),
    ("defaults.algorithm=qqq", f"defaults.algorithm: unknown algorithm 'qqq'; allowed: {ALGORITHMS}"),
    (
        f"algorithms.{ALLREDUCE}.topology=ring_2d",
        f"algorithms.{ALLREDUCE}.topology: unknown neighbour table 'ring_2d'; did you mean 'ring_1d'? allowed: custom, "
        "mesh_2d, mesh_2d_no_wrap, none, ring_1d, ring_1d_unidir, torus_2d, tree_binary",
    ),
    (
        f"algorithms.{ALLREDUCE}.rank_per=core",
        f"algorithms.{ALLREDUCE}.rank_per = 'core': must be one of: cube, pe, sip, or null",
    ),
    ("defaults.world_size=0", "defaults.world_size = 0: must be at least 1, or null"),
    (
        "defaults.world_size=33",
        "defaults.world_size = 33: must be null or 1 to 32, as there are 32 places with rank_per cube",
    ),
    (
        f"algorithms.{ALLREDUCE}={{topology: tree_binary, world_size: 257}}",
        f"algorithms.{ALLREDUCE}.world_size = 257: must be null or 1 to 256, as there are 256 places with rank_per pe",
    ),
    (
        f"algorithms.{ALLREDUCE}={{rank_per: sip, world_size: 3}}",
        f"algorithms.{ALLREDUCE}.world_size = 3: must be null or 1 to 2, as there are 2 places with rank_per sip",
    ),
    (
        f"algorithms.{ALLREDUCE}={{topology: mesh_2d, world_size: 7}}",
        f"algorithms.{ALLREDUCE}.topology = mesh_2d: needs a square number of ranks, and there are 7; "
        "set world_size to 4 or 9",
    ),
    (
        f"algorithms.{ALLREDUCE}={{topology: torus_2d, rank_per: cube}}",
        f"algorithms.{ALLREDUCE}.topology = torus_2d: needs a square number of ranks, and there are 32; "
        "set world_size to 25",
    ),
    (
        f"algorithms.{ALLREDUCE}={{topology: mesh_2d_no_wrap, rank_per: sip}}",
        f"algorithms.{ALLREDUCE}.topology = mesh_2d_no_wrap: needs a square number of ranks, and there are 2; "
        "set world_size to 1",
    ),
    (
        f"algorithms.{ALLREDUCE}.opposites={{Up: Up}}",
        f"algorithms.{ALLREDUCE}.opposites.Up = Up: a direction is not its own opposite; name another",
    ),
    (
        f"algorithms.{ALLREDUCE}.opposites={{Up: E}}",
        f"algorithms.{ALLREDUCE}.opposites.Up = E: E is the opposite of W already; a direction is in one pair",
    ),
    (
        f"algorithms.{ALLREDUCE}.opposites={{Up: Down, Top: Down}}",
        f"algorithms.{ALLREDUCE}.opposites.Top = Down: Down is the opposite of Up already; a direction is in one pair",
    ),
    (f"algorithms.{ALLREDUCE}.opposites={{Up: 3}}", f"algorithms.{ALLREDUCE}.opposites.Up = 3: must be text"),
    (
        f"algorithms.{ALLREDUCE}.opposites=[Up, Down]",
        f"algorithms.{ALLREDUCE}.opposites = ['Up', 'Down']: must be a mapping of names to entries",
    ),
    (
        "defaults.n_slots=257",
        "defaults.n_slots = 257: 1 ring of 257 slots of 4096 B takes 1052672 B, more than the 1048576 B that a PE has "
        "of tcm_layout.ipcq_MiB; lower defaults.n_slots or defaults.slot_size",
    ),
    (
        f"algorithms.{ALLREDUCE}.slot_size=131073",
        "defaults.n_slots = 8: 1 ring of 8 slots of 131073 B takes 1048584 B, more than the 1048576 B that a PE has of "
        f"tcm_layout.ipcq_MiB; lower defaults.n_slots or algorithms.{ALLREDUCE}.slot_size",
    ),
    (
        "defaults={buffer_kind: sram, n_slots: 1025}",
        "defaults.n_slots = 1025: 1 ring of 1025 slots of 4096 B takes 4198400 B, more than the 4194304 B that a PE "
        "has of cube.sram_MiB; lower defaults.n_slots or defaults.slot_size",
    ),
    (
        "defaults={buffer_kind: hbm, n_slots: 65536, slot_size: 32769}",
        "defaults.n_slots = 65536: 1 ring of 65536 slots of 32769 B takes 2147549184 B, more than the 2147483648 B "
        "that a PE has of cube.hbm_MiB_per_pe; lower defaults.n_slots or defaults.slot_size",
    ),
    (
        "pe_mmu={page_KiB: 96, tlb_entries: 4, walk_ns: 1, virtual_rings: false}",
        "pe_mmu.page_KiB = 96: must be a power of two, such as 64",
    ),
    (
        "pe_mmu={page_KiB: 64, tlb_entries: 0, walk_ns: 1, virtual_rings: false}",
        "pe_mmu.tlb_entries = 0: must be at least 1",
    ),
    (
        "pe_mmu.walk=3",
        "unknown key 'walk' in pe_mmu; did you mean 'walk_ns'? allowed: page_KiB, tlb_entries, virtual_rings, walk_ns",
    ),
    ("pe_mmu=3", "pe_mmu = 3: must be a mapping; allowed: page_KiB, tlb_entries, virtual_rings, walk_ns, or null"),
    (
        "defaults={hw_strict: true, n_slots: 6}",
        "defaults.n_slots = 6: must be a power of two under hw_strict, such as 4",
    ),
    (
        "defaults={hw_strict: true, slot_size: 4095}",
        "defaults.slot_size = 4095: must be a power of two under hw_strict, such as 2048",
    ),
    (
        "defaults={hw_strict: true, ipcq_credit_size_bytes: 32}",
        "defaults.ipcq_credit_size_bytes = 32: must be 16 under hw_strict: a credit is one header",
    ),
    (
        "defaults={credit_virtual_channel: true, virtual_channels: false}",
        "defaults.credit_virtual_channel = true: needs virtual_channels: true",
    ),
    (
        "algorithms.ring.latch=in_place",
        "algorithms.ring.latch = in_place: a PE has it for the queue pairs of all algorithms; set defaults.latch",
    ),
    ("router.buffer_packets=0", "router.buffer_packets = 0: must be at least 1, or null"),
    ("io_port.buffer_packets=4", "io_port.buffer_packets = 4: needs router.buffer_packets, or leave it null"),
    (
        "router.packet_bytes=512",
        "router.packet_bytes = 512: has no effect without buffers; set router.buffer_packets, or leave it null",
    ),
    (
        "router={overhead_ns: 1, bandwidth_GBps: 64, buffer_packets: 2, packet_bytes: 128}",
        "router.packet_bytes = 128: must be at least 256, a chunk (defaults.vc_chunk_size); or null, which is a chunk",
    ),
]


@pytest.mark.parametrize(("text", "line"), ONE_SET, ids=[text for text, _ in ONE_SET])
def test_mistake_in_one_flag(line_of: LineOf, text: str, line: str) -> None:
    """Every kind of mistake, from a flag that the line begins with."""
    assert line_of(texts=[text]) == f"--set {text}: {line}"


NOT_SINGLE = (chip_rules_hold, link_kinds_frame_payloads)
"""A chip's rules are applied together; only a link kind of a user's own breaks the other (``test_ports``)."""
SINGLE_RULES = [*(rule for rule in RULES if rule not in NOT_SINGLE), *CHIPS.get("ahbm").rules]


def test_every_rule_has_a_row() -> None:
    """A new rule needs a row in the table."""
    fired = set()
    for text, line in ONE_SET:
        for rule in SINGLE_RULES:
            if fires(rule, text, line):
                fired.add(rule)
                break
    assert fired == set(SINGLE_RULES)


def fires(rule: Any, text: str, line: str) -> bool:
    problem = rule_problem(rule, text)
    return problem is not None and problem.text == line


def rule_problem(rule: Any, text: str) -> Any:
    """The problem that one rule finds in the defaults with one setting, None if the schema refuses the setting."""
    document = _defaults()
    try:
        apply(document, parse_set(text))
        return rule(convert(document))
    except (ConfigError, LookupError):
        return None


FITS = [
    "system.sips.count=1",
    "system.sips.shape=2x1",
    "wire.ns_per_mm=0",
    "wire.ns_per_mm=1e-3",
    "wire.ns_per_mm=1000000",
    "cube.pes=1",
    "sip.ports.E=15",
    "links.ethernet_100g.params.latency_ns=0.001",
    "defaults={hw_strict: true, n_slots: 1, slot_size: 1}",
    "defaults={credit_virtual_channel: true, credit_return_mode: piggyback}",
    "defaults.n_slots=256",
    "defaults={buffer_kind: sram, n_slots: 1024}",
    "defaults={buffer_kind: hbm, n_slots: 65536, slot_size: 32768}",
    "defaults.world_size=32",
    "defaults.world_size=1",
    f"algorithms.{ALLREDUCE}={{topology: ring_1d, world_size: 256}}",
    f"algorithms.{ALLREDUCE}={{topology: mesh_2d}}",
    f"algorithms.{ALLREDUCE}={{topology: mesh_2d, world_size: 49}}",
    f"algorithms.{ALLREDUCE}={{topology: custom, world_size: 32}}",
    f"algorithms.{ALLREDUCE}={{rank_per: sip, world_size: 2}}",
    f"algorithms.{ALLREDUCE}.root_cube=15",
    f"algorithms.{ALLREDUCE}.buffer_kind=null",
    f"algorithms.{ALLREDUCE}.opposites={{Up: Down, Down: Up, W: E}}",
    f"algorithms.{ALLREDUCE}.opposites.Up=Down",
    "system.sips={topology: custom, custom_links: [{a: 0, a_port: E, b: 1, b_port: W}]}",
]


@pytest.mark.parametrize("text", FITS)
def test_edges_that_are_allowed(text: str) -> None:
    """The last value before each refusal."""
    load(overrides=sets(text))


CONTROLLER = "hbm={kind: hbm_controller, params: {preset: hbm3_6400}}"
OWN_MODE = [name for name, entry in load().ccl.algorithms.items() if entry.credit_return_mode]


def test_a_channel_for_credits_that_none_takes() -> None:
    """Piggybacked credits that leave alone go over the fabric, so it has an effect as long as any entry has those."""
    channel = "defaults.credit_virtual_channel=true"
    at_load = load(overrides=sets(channel))
    check_overrides_of_job(at_load, sets(channel), ["ring"])
    with pytest.raises(ConfigError, match=r"--set defaults\.credit_virtual_channel=true: .* has no effect with"):
        check_overrides_of_job(at_load, sets(channel), [ALLREDUCE])
    fast = sets(*(f"algorithms.{name}.credit_return_mode=fast_path" for name in OWN_MODE))
    with pytest.raises(ConfigError, match="has no effect with credit_return_mode fast_path, whose credits have a wire"):
        load(overrides=[*sets(channel), *fast])


UNUSED = "hbm.read_latency_ns = 50: has no effect with hbm.kind = hbm_controller; set hbm.params.front_end_ns, or "


@pytest.mark.default_costs
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["hbm.read_latency_ns=50"], UNUSED + "hbm.kind=null"),
        (["hbm.read_latency_ns=99"], None),
        (["hbm.kind=null", "hbm.read_latency_ns=50"], None),
        (["hbm.read_latency_ns=50", "hbm.kind=null"], None),
        (["hbm.write_latency_ns=50"], None),
        (["tcm.read_latency_ns=50", "sram.read_latency_ns=50"], None),
        (
            ["tcm={kind: hbm_controller, params: {preset: hbm3_6400}}", "tcm.read_latency_ns=50"],
            (UNUSED + "hbm.kind=null").replace("hbm.", "tcm."),
        ),
    ],
)
def test_a_latency_that_the_kind_of_its_memory_does_not_use(settings: list[str], told: str | None) -> None:
    if told is None:
        load(overrides=sets(*settings))
        return
    with pytest.raises(ConfigError) as caught:
        load(overrides=sets(*settings))
    assert str(caught.value) == f"--set {next(each for each in settings if 'read' in each)}: {told}"


def test_one_that_the_variant_uses() -> None:
    load(variant="ideal", overrides=sets("hbm.read_latency_ns=50"))
    with pytest.raises(ConfigError):
        load(variant="ideal", overrides=sets("hbm.read_latency_ns=50", CONTROLLER))


@pytest.mark.default_costs
def test_one_of_a_file(tmp_path: Path) -> None:
    """A copy of the default file with another value elsewhere is no mistake."""
    path = tmp_path / "mine.yaml"
    path.write_text("hbm: {read_latency_ns: 99, overhead_ns: 2}\n")
    load(config=path)
    path.write_text("hbm: {read_latency_ns: 50}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: hbm\.read_latency_ns = 50: has no effect with hbm\.kind"):
        load(config=path)


CCL_FILE = """
algorithms:
  intercube_allreduce: {n_slots: 4, backpressure: poll}
  other: {module: other, topology: ring_1d, n_slots: 2}
"""


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["defaults.n_slots=16"],
            "--set defaults.n_slots=16: has no effect, since algorithms.intercube_allreduce.n_slots = 4; "
            "set algorithms.intercube_allreduce.n_slots instead",
        ),
        (
            ["defaults={n_slots: 8, backpressure: sleep}", "algorithms.intercube_allreduce.n_slots=2"],
            "--set defaults={n_slots: 8, backpressure: sleep}: has no effect, since "
            "algorithms.intercube_allreduce.backpressure = 'poll'; set algorithms.intercube_allreduce.backpressure "
            "instead",
        ),
    ],
)
def test_an_override_of_a_default_that_an_entry_hides(tmp_path: Path, settings: list[str], line: str) -> None:
    path = tmp_path / "ccl.yaml"
    path.write_text(CCL_FILE)
    with pytest.raises(ConfigError) as caught:
        check_overrides_of_job(load(ccl=path, overrides=sets(*settings)), sets(*settings), [ALLREDUCE])
    assert str(caught.value) == line


HIDDEN = "defaults.credit_return_mode=fabric"


@pytest.mark.parametrize(
    ("names", "more", "line"),
    [
        (
            ["ring"],
            [],
            f"--set {HIDDEN}: has no effect, since algorithms.ring.credit_return_mode = 'piggyback'; "
            "set algorithms.ring.credit_return_mode instead",
        ),
        (
            ["ring", "direct"],
            [],
            f"--set {HIDDEN}: has no effect, since algorithms.ring.credit_return_mode = 'piggyback' and all others "
            "that run have their own; set algorithms.ring.credit_return_mode instead",
        ),
        (["ring", ALLREDUCE], [], None),
        (["ring", "direct"], ["algorithms.direct.credit_return_mode=fabric"], None),
    ],
)
def test_an_override_that_all_algorithms_of_a_job_hide(names: list[str], more: list[str], line: str | None) -> None:
    """Host scripts may have messages between two ranks, which take it from ``defaults``: at load it is not refused."""
    overrides = sets(HIDDEN, *more, "defaults.algorithm=ring")
    told = None
    try:
        check_overrides_of_job(load(overrides=overrides), overrides, names)
    except ConfigError as error:
        told = str(error)
    assert told == line


SCHEDULES = """
algorithms:
  mine: {module: MINE, topology: none, hw_strict: true}
"""


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("def schedule(task):\n    return 1 / 0\n1 / 0", True),
        ("from sipsim.ccl.algorithms.ring import schedule\n", True),
        ("from sipsim.ccl.algorithms import ring\nschedule = ring.schedule\n", True),
        ("def kernel(t_ptr, schedule, tl):\n    schedule = 1\n", False),
        ("def schedule(", False),
    ],
)
def test_a_schedule_has_no_setting_of_a_pe(tmp_path: Path, source: str, is_refused: bool) -> None:
    """Its module is not run, and no other algorithm is chosen."""
    (tmp_path / "mine.py").write_text(source)
    path = tmp_path / "ccl.yaml"
    path.write_text(SCHEDULES.replace("MINE", str(tmp_path / "mine.py")))
    told = ""
    try:
        load(ccl=path)
    except ConfigError as error:
        told = str(error)
    what = "algorithms.mine.hw_strict = true: a PE has it for the queue pairs of all algorithms; set defaults.hw_strict"
    assert told.endswith(f"ccl.yaml: {what}") if is_refused else told == ""


@pytest.mark.parametrize(
    "settings",
    [
        ["defaults.n_slots=4"],
        ["defaults.slot_size=64"],
        ["defaults.n_slots=2", "algorithms.intercube_allreduce.n_slots=8"],
    ],
)
def test_an_override_of_a_default_that_holds_is_not(tmp_path: Path, settings: list[str]) -> None:
    path = tmp_path / "ccl.yaml"
    path.write_text(CCL_FILE)
    load(ccl=path, overrides=sets(*settings))
