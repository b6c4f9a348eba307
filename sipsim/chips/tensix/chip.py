"""Model of a chip of Tensix and Ethernet tiles, and the chip kinds ``wormhole`` and ``blackhole``."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

from broker.wire import BadFrame
from sipsim.chips.api.chip import CHIPS, Chip, ChipContext, ChipKind, ChipResults
from sipsim.chips.api.host_program import HostProgram
from sipsim.chips.config import check_skews
from sipsim.chips.tensix.ccl.tensors import CallLog
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.durations import Durations, KernelTimes
from sipsim.chips.tensix.edm.data_mover import DataMover, erisc_data_mover
from sipsim.chips.tensix.eth_dataflow import EthDataflow
from sipsim.chips.tensix.ethernet import EthWrite, FabricWrite, Transmitter
from sipsim.chips.tensix.fabric.channels import SenderChannel
from sipsim.chips.tensix.fabric.connection import ConnectionWords
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.fabric.router import Router, blocked, unsettled
from sipsim.chips.tensix.fabric.termination import LostPacket, loss_lines
from sipsim.chips.tensix.firmware import Firmware
from sipsim.chips.tensix.host import Metal
from sipsim.chips.tensix.jitter import Jitter
from sipsim.chips.tensix.memory import FAR_END, TileMemory
from sipsim.chips.tensix.noc import Core, FloorPlan, Kind
from sipsim.chips.tensix.params import ChipParams
from sipsim.chips.tensix.plan import SIDES, TensixPlan, channel_of, merged
from sipsim.chips.tensix.processor import Processor
from sipsim.chips.tensix.programs import KernelSpec, Launches, Program
from sipsim.chips.tensix.replay import Replay
from sipsim.chips.tensix.results import KernelTrace, Results, TileLog
from sipsim.chips.tensix.tiles import KIB, Tiles
from sipsim.chips.tensix.transmit_queue import TransmitQueue
from sipsim.collectives.call import GroupCall, OpenCall
from sipsim.config.check import Problem, Rule, convert_part
from sipsim.config.load import default_dir
from sipsim.config.schema import Resolved
from sipsim.config.yaml import read_mapping
from sipsim.core.engine import Engine
from sipsim.core.errors import ConfigError, InvariantViolation, KernelMisuse
from sipsim.core.session import Session
from sipsim.core.task import MakeTask, Task
from sipsim.core.units import ns_to_ps
from sipsim.fabric.channels import ONE_QUEUE
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.links.frames import decode, encode
from sipsim.fabric.links.kind import links_in_use
from sipsim.records.artifacts import make_artifact_folder
from sipsim.records.dump import BlockedResource
from sipsim.records.oplog import TRACE_FILE, OpLog, TraceFile, oplog_file
from sipsim.records.report import LinkUse, Usage
from sipsim.topology.links import build_links
from sipsim.topology.tenstorrent import port_of

PARAMS = ("system", "chip_params")
KERNELS, DATA_MOVERS = "its kernels", "the data movers on cores that a router needs"
"""Reasons for which a host program waits, as shown in the report of a deadlock."""


class TensixChip(Chip):
    """Model of one Tensix chip. Its ``api`` is :class:`~sipsim.chips.tensix.host.Metal`."""

    def __init__(self, context: ChipContext[TensixPlan]) -> None:
        plan = self.plan = context.plan
        self.engine = engine = Engine()
        self.session = Session(context.rank, engine, plan.channels, context.send, plan.reactions_ps[context.rank])
        self.session.model = self
        skew_ns = plan.params.launch.start_skew_ns.get(str(context.rank), 0)
        self.host = HostProgram(context.bridge, context.make_task, engine, ns_to_ps(skew_ns))
        self._make_task: MakeTask = context.make_task
        self.oplog = OpLog("records" in context.job.records)
        self._log_file = oplog_file(self.oplog, context.artifact_dir) if "oplog" in context.job.records else None
        self._replay = None if context.second_pass is None else Replay(context.second_pass, engine)
        has_trace = "trace" in context.job.records
        self._trace = TraceFile(make_artifact_folder(context.artifact_dir) / TRACE_FILE) if has_trace else None
        trace = None if self._trace is None else KernelTrace(context.rank, plan, self._trace)
        self.log = TileLog(self.oplog, engine, trace, self._replay)
        jitter = Jitter.of(plan.params.jitter, context.rank)
        noc = self._noc = FlowFabric(engine, ONE_QUEUE)
        self.tiles = Tiles(context.rank, plan.floor_plan, plan.graph, noc, engine, self.log, jitter)
        self._firmwares = {
            channel: Firmware(plan.system.links[link.number].name, engine)
            for channel, link in plan.links[context.rank].items()
            if plan.system.outages[link.number]
        }
        self._transmitters = {channel: self._transmitter(channel) for channel in plan.links[context.rank]}
        self.fabrics: list[Fabric] = []
        self._data_movers: dict[Core, Task] = {}
        self.lost: list[LostPacket] = []
        self.call_log = CallLog()
        self.connections = ConnectionWords(plan.params.tensix.l1_KiB * KIB)
        self.declared = Results()
        self.api = self.metal = Metal(self)
        self.durations = Durations(
            context.rank, engine, self._link_uses, self.log.kernel, lambda record: self.on_record(record)
        )
        on_idle = partial(self.host.resume, KERNELS)
        self.launches = Launches(engine, self._make_kernel, self._set_semaphore, on_idle, self.durations, jitter)

    # --- kernels --------------------------------------------------------------------------------------------------

    def wait_for_kernels(self) -> None:
        """Block the host program until all kernels except servers have ended."""
        while not self.launches.is_idle:
            self.host.wait(KERNELS)

    def wait_for_own_fabrics(self, cores: Collection[Core] | None = None) -> None:
        """Block the host program until fabrics that operations have opened for themselves have ended: all of them, or
        those with a router on one of ``cores``.
        """
        for fabric in [each for each in self.fabrics if each.ends_by_itself]:
            if cores is None or not set(cores).isdisjoint(fabric.cores):
                fabric.wait()

    def wait_for_data_movers(self, cores: Collection[Core]) -> None:
        """Block the host program until the data movers on cores have ended."""
        movers = [task for core, task in self._data_movers.items() if core in cores and not task.ended]
        if movers:
            self.launches.when_ended(movers, partial(self.host.resume, DATA_MOVERS))
        while not all(task.ended for task in movers):
            self.host.wait(DATA_MOVERS)

    def enqueue(self, program: Program) -> list[Task]:
        """Enqueue a program on cores that run no router.

        Raises:
            KernelMisuse: for a kernel on a core that runs a router.
        """
        self.wait_for_own_fabrics({spec.core for spec in program.kernels})
        routers = {core for fabric in self.fabrics for core in fabric.cores}
        for spec in program.kernels:
            if spec.core in routers:
                what = f"kernel {spec.kernel.__name__} is for core {spec.core} of SIP {self.session.rank}"
                advice = "end the fabric first (fabric.terminate)" if program.operation else "give another core"
                raise KernelMisuse(f"{what}, which runs a router of the fabric; {advice}")
        tasks = self.launches.enqueue(program)
        movers = zip(program.kernels, tasks, strict=True)
        self._data_movers |= {spec.core: task for spec, task in movers if spec.kernel is erisc_data_mover}
        return tasks

    def _make_kernel(self, spec: KernelSpec, ended: Callable[[KernelTimes], None]) -> Task:
        name = f"kernel {spec.kernel.__name__} on {spec.core}"
        memory, params = self.tiles.memory(spec.core), self.plan.params
        processor = Processor(name, spec.core, memory, self.engine, params, spec.config.noc)
        dataflow = self._dataflow(processor)

        cores = self.plan.floor_plan.ethernet
        firmware = self._firmwares.get(cores.index(spec.core)) if spec.core in cores else None

        def body() -> None:
            began_ps, function = self.engine.now_ps, spec.kernel.__name__
            if firmware is not None:
                firmware.kernel_started(name)
            spec.kernel(*spec.args, dataflow)
            processor.spend(0)
            if firmware is not None:
                firmware.kernel_ended()
            place = spec.core, spec.config.processor
            ended(KernelTimes(function, *place, began_ps, self.engine.now_ps, processor.used_ps))

        return processor.make(body, self.host.loop, self._make_task, spec.is_server)

    def _set_semaphore(self, core: Core, address: int, value: int) -> None:
        # A word that is already 0 is not written: an ended data mover may still send an acknowledgement from this word.
        if self.tiles.memory(core).word(address) != value:
            self.metal.set_word(core, address, value)

    def _dataflow(self, processor: Processor) -> Dataflow:
        plan = self.plan
        if plan.floor_plan.kinds[processor.core] is not Kind.ETHERNET:
            return Dataflow(processor, self.tiles)
        channel = plan.floor_plan.ethernet.index(processor.core)
        info_base = plan.params.ethernet.kernel_base
        return EthDataflow(
            processor, self.tiles, self._transmitters.get(channel), info_base, self._firmwares.get(channel)
        )

    # --- links ----------------------------------------------------------------------------------------------------

    def transmitter(self, channel: int) -> Transmitter:
        """Return the transmitter of an Ethernet channel's link."""
        return self._transmitters[channel]

    def _transmitter(self, channel: int) -> Transmitter:
        plan, rank = self.plan, self.session.rank
        link = plan.links[rank][channel]
        core = plan.floor_plan.ethernet[channel]

        def send(arrival_ps: int, message: EthWrite) -> None:
            self.session.emit(link.number, arrival_ps, encode(message))

        name, kind = plan.system.links[link.number].name, plan.system.link_kinds[link.number]
        outages, jitter = plan.system.outages[link.number], self.tiles.jitter
        delays = (None, None) if jitter is None else (jitter.of_link(channel), jitter.of_credits(channel))
        params = plan.params.ethernet
        queue = TransmitQueue(kind, params.accept_ahead, outages)
        parts = None if jitter is None else jitter.of_parts(channel)
        firmware = self._firmwares.get(channel)
        return Transmitter(name, queue, params, core, self.tiles, send, delays, parts, firmware)

    def receive(self, channel: int, body: bytes) -> None:
        """Handle a message that arrives from the far core of a link.

        Raises:
            InvariantViolation: for a message that no chip of this run can have sent.
        """
        try:
            packet = decode(body)
        except BadFrame as error:
            links = self.plan.system.links
            sender = links[channel].src if channel < len(links) else None
            raise InvariantViolation(f"a packet that arrived on channel {channel} is {error}", rank=sender) from None
        eth_channel = self.plan.arrivals[self.session.rank].get(channel)
        if eth_channel is None or not isinstance(packet, EthWrite):
            what = f"a {type(packet).__name__} arrived on channel {channel}"
            raise InvariantViolation(f"{what}; this chip takes only EthWrite, and only on its links")
        core = self.plan.floor_plan.ethernet[eth_channel]
        link, firmware = self.plan.system.links[channel].name, self._firmwares.get(eth_channel)
        arrive = partial(self._arrive, link, core, packet)
        if firmware is None or packet.is_word:
            arrive()
        else:
            firmware.take(packet.down_ps, packet.up_ps, arrive)

    def _arrive(self, link: str, core: Core, packet: EthWrite) -> None:
        self.log.eth_arrive(core, packet.address, packet.data)
        memory = self.tiles.memory(core)
        memory.last_arrival = packet.address
        memory.last_origin = packet.origin if isinstance(packet, FabricWrite) else None
        end = packet.address + len(packet.data)
        memory.arriving = range(end, end + packet.follows)
        if self._replay is not None:
            direction = packet.direction(link)
            self._replay.received(core, packet.address, packet.data, direction, packet.seq, packet.crc)
        memory.write(packet.address, packet.data, self.engine.now_ps, FAR_END)

    def next_send_bound_ps(self, next_ps: int) -> int:
        """Return the time of the next event, since every message is sent by an event of this chip."""
        return next_ps

    # --- the run --------------------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        return [*self.launches.tasks(), *self.host.tasks]

    def tasks_for_dump(self) -> list[Task]:
        return [task for task in self.tasks() if not task.ended]

    def calls(self) -> Sequence[GroupCall]:
        return self.call_log.calls

    def open_calls(self) -> Iterable[OpenCall]:
        return self.call_log.open_calls()

    def blocked(self) -> Iterable[BlockedResource]:
        return blocked(self._routers(), self._muxed())

    def _routers(self) -> list[Router]:
        return [router for fabric in self.fabrics for router in fabric.routers]

    def _muxed(self) -> list[SenderChannel]:
        return [channel for fabric in self.fabrics for channel in fabric.muxed]

    def results(self) -> ChipResults:
        memories = hashlib.sha256()
        for core, memory in self.tiles.in_use():
            for page, data in memory.pages():
                memories.update(f"{core} {page} ".encode() + data)
        sent = sum(transmitter.bytes_sent for transmitter in self._transmitters.values())
        outages = chain.from_iterable(transmitter.outages_used() for transmitter in self._transmitters.values())
        movers = [task for task in self.launches.tasks() if isinstance(task.waits_for, DataMover)]
        unfinished = (
            *(f"{task.name} has not ended: {task.waits_for}" for task in movers),
            *unsettled(self._routers(), self._muxed()),
            *chain.from_iterable(fabric.not_closed() for fabric in self.fabrics),
            *loss_lines(self.lost),
        )
        return ChipResults(
            memories.hexdigest(),
            self.oplog.sha256(),
            sent,
            calls=tuple(self.calls()),
            runs=tuple(self.durations.runs),
            verdict=None if self._replay is None else self._replay.verdict(self.tiles.in_use()),
            usage=(self._usage(),),
            launches=self.durations.launches,
            launch_records=tuple(self.durations.records),
            outages=tuple(outages),
            left=unfinished,
            results=self.declared.digests(self._result_memories()),
        )

    def _usage(self) -> Usage:
        """Return the usage of the whole run."""
        inside = ((use.busy_ps, edge.name) for edge, use in self._noc.use().items())
        busy_ps, busiest = max(inside, default=(0, ""))
        return Usage(0, self.engine.now_ps, 0, self.durations.total, self._link_uses(), busiest, busy_ps)

    def _link_uses(self) -> tuple[LinkUse, ...]:
        return tuple(transmitter.link_use() for transmitter in self._transmitters.values())

    def _result_memories(self) -> Iterator[tuple[str, Core, TileMemory, int]]:
        kinds = self.plan.floor_plan.kinds
        for core, memory in self.tiles.in_use():
            if kinds[core] is Kind.TENSIX:
                yield "workers", core, memory, self.metal.l1_base(core)
            elif kinds[core] is Kind.DRAM:
                yield "DRAM", core, memory, 0

    def close(self) -> None:
        super().close()
        for file in (self._trace, self._log_file):
            if file is not None:
                file.close()


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    """Return the default parameters of a chip kind, from ``configs/chips/NAME.yaml``."""
    return read_mapping(default_dir() / "chips" / f"{name}.yaml")


class TensixKind(ChipKind[TensixPlan]):
    """Kind of Tensix chip: its registered name, its link preset, and its parameter file ``configs/chips/NAME.yaml``."""

    about = "Tensix workers and Ethernet cores, which run data movement kernels"
    Params = ChipParams
    traces = verifies = True

    def __init__(self, name: str, link: str) -> None:
        self.name = name
        self.link = link

    def ports(self, resolved: Resolved) -> Collection[str]:
        return [*SIDES, *map(port_of, range(len(self.params(resolved).ethernet.cores)))]

    def params_of(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return merged(_defaults(self.name), given)

    @property
    def rules(self) -> tuple[Rule, ...]:  # type: ignore[override]
        return (self._one_link_per_channel, self._copy_bandwidth, self._skew_ranks)

    def _one_link_per_channel(self, resolved: Resolved) -> None:
        """Check that each Ethernet channel has one link: E, W, N and S are aliases of some channels."""
        used: dict[tuple[int, int], str] = {}
        for link in build_links(resolved.topology.system.sips):
            other = used.setdefault((link.src, channel_of(link.src_port)), link.src_port)
            if other != link.src_port:
                channel = channel_of(link.src_port)
                what = f"ports {other} and {link.src_port} of SIP {link.src} are both Ethernet channel {channel}"
                text = f"system.sips.custom_links: {what}; a channel has one link: use one of the two ports"
                raise Problem((("system", "sips", "custom_links"),), text)

    def _copy_bandwidth(self, resolved: Resolved) -> None:
        """Check that copies are no slower than the wire: no message can wait between the wire and its copy."""
        sips, copy_GBps = resolved.topology.system.sips, self.params(resolved).ethernet.copy_GBps
        for kind in links_in_use(resolved, build_links(sips)):
            if copy_GBps is not None and copy_GBps < kind.bandwidth_GBps:
                what = f"less than the {kind.bandwidth_GBps:g} GB/s of a link; give at least the link's rate, or null"
                raise Problem(
                    ((*PARAMS, "ethernet", "copy_GBps"),),
                    f"{'.'.join(PARAMS)}.ethernet.copy_GBps = {copy_GBps:g}: {what}",
                )

    def _skew_ranks(self, resolved: Resolved) -> None:
        skews, path = self.params(resolved).launch.start_skew_ns, (*PARAMS, "launch", "start_skew_ns")
        check_skews(skews, path, resolved.topology.system.sips.count)

    def params(self, resolved: Resolved) -> ChipParams:
        """Return the chip parameters of a checked config."""
        with resolved.reads.apart():
            given = resolved.topology.system.chip_params
        return convert_part(self.params_of(given), ChipParams, PARAMS)

    def plan(self, resolved: Resolved) -> TensixPlan:
        params = self.params(resolved)
        problem = FloorPlan(params).problem()
        if problem:
            raise ConfigError(f"system.chip_params: {problem}")
        return TensixPlan(resolved, resolved.reads.watched(params, PARAMS))

    def build(self, context: ChipContext[TensixPlan]) -> TensixChip:
        return TensixChip(context)


CHIPS.register("blackhole")(TensixKind("blackhole", "tenstorrent_400g"))
"""140 Tensix workers, 14 Ethernet cores of 400 Gb/s, 8 channels of GDDR6, two NoCs."""
CHIPS.register("wormhole")(TensixKind("wormhole", "tenstorrent_100g"))
"""80 Tensix workers, 16 Ethernet cores of 100 Gb/s, 6 channels of GDDR6, two NoCs."""
