"""A small chip kind: cores on a one-way ring and a persistent server; scripts send numbers from core to core."""

import hashlib
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from sipsim.chips.api.chip import CHIPS, BuiltInJobs, Chip, ChipContext, ChipKind, ChipResults
from sipsim.chips.api.host_program import HostProgram
from sipsim.chips.api.run_plan import RunPlan
from sipsim.config.schema import Resolved, Section
from sipsim.core.engine import Engine
from sipsim.core.errors import ConfigError
from sipsim.core.session import Session
from sipsim.core.task import Task
from sipsim.core.units import drain_ps, ns_to_ps
from sipsim.fabric.channels import ONE_QUEUE
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import PORTS, Done, Edge, Node, Route
from sipsim.fabric.links.frames import UNSENT, Frame, Number, Small, packet_kind
from sipsim.fabric.links.network import BadPacket, Deliveries, Delivery, NetworkInterface
from sipsim.fabric.sips import RoutedSips
from sipsim.records.job import Job, JobRequest

TOKEN_BYTES, CORE_BPS = 64, 10**10
A_NUMBER = "a number"


class Params(Section, frozen=True):
    cores: Annotated[int, Meta(ge=2, le=64)]
    hop_ns: Annotated[float, Meta(gt=0)]
    service_ns: Annotated[float, Meta(gt=0)]
    ports: tuple[str, ...] = PORTS


@packet_kind
class Token(Frame, tag=100):
    core: Small
    number: Number

    @property
    def data_bytes(self) -> int:
        return 8


class RingGraph:
    """Port ``i`` of ``ports`` is at core ``i``, modulo their number."""

    def __init__(self, params: Params) -> None:
        self.params, self._routes = params, dict[tuple[Node, Node], Route]()

    def route(self, src: Node, dst: Node) -> Route:
        if (src, dst) not in self._routes:
            nodes, at, last = [src], self._core(src), self._core(dst)
            nodes += [Node("core", 0, at)] if src.kind == "io" else []
            while at != last:
                at = (at + 1) % self.params.cores
                nodes.append(Node("core", 0, at))
            nodes += [dst] if dst.kind == "io" else []
            hop_ps = ns_to_ps(self.params.hop_ns)
            edges = tuple(Edge(a, b, hop_ps, 0, CORE_BPS) for a, b in pairwise(nodes))
            self._routes[src, dst] = Route(src, 0, edges)
        return self._routes[src, dst]

    def _core(self, node: Node) -> int:
        return self.params.ports.index(str(node.place)) % self.params.cores if node.kind == "io" else int(node.place)


def params_of(resolved: Resolved) -> Params:
    return msgspec.convert(resolved.topology.system.chip_params, Params)


class RingPlan(RunPlan):
    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.params = params_of(resolved)
        self.system = RoutedSips(resolved, RingGraph(self.params), 256)

    @property
    def egress_ps(self) -> list[int]:
        return [drain_ps(TOKEN_BYTES, CORE_BPS)] * self.system.n_sips


class TokenDelivery(Delivery):
    vc = 0

    def __init__(self, params: Params, serve: Callable[[Token], None]) -> None:
        self._cores, self._serve = params.cores, serve

    def wire_bytes(self, frame: Token) -> int:
        return TOKEN_BYTES

    def landing(self, frame: Token) -> Node:
        return Node("core", 0, frame.core)

    def check(self, frame: Token) -> None:
        if frame.core >= self._cores:
            raise BadPacket(f"is for core {frame.core}, which does not exist")

    def taker(self, frame: Token) -> Done:
        return lambda _head, _tail: self._serve(frame)


class RingChip(Chip):
    """``api``: :meth:`send` and :meth:`recv`. The server takes ``service_ns`` for each number that arrives."""

    def __init__(self, context: ChipContext[RingPlan]) -> None:
        plan = context.plan
        self.engine, self.rank, self.n_sips = Engine(), context.rank, plan.system.n_sips
        self.service_ps = ns_to_ps(plan.params.service_ns)
        self.session = Session(self.rank, self.engine, plan.channels, context.send, plan.reactions_ps[self.rank])
        self.session.model = self.api = self
        self.host = HostProgram(context.bridge, context.make_task, self.engine)
        fabric = FlowFabric(self.engine, ONE_QUEUE)
        deliveries: Deliveries = {Token: TokenDelivery(plan.params, self.serve)}
        self.network = NetworkInterface(
            plan.system, plan.channels, plan.egress_ps[self.session.rank], self.session, fabric, deliveries, {}
        )
        self.receive, self.next_send_bound_ps = self.network.receive, self.network.next_send_bound_ps
        self.queue, self.inbox, self.log = deque[Token](), deque[int](), list[str]()
        self.server = Task("server", self._serve_all, self.host.loop)
        self.server.is_server = True
        self.engine.at(0, self.server.resume)

    def send(self, sip: int, core: int, number: int) -> None:
        """From core 0 to a core of another SIP."""
        token = Token(*UNSENT, core, number)
        way = self.network.frame_path(Node("core", 0, 0), sip, token, "")
        way.depart(token, TOKEN_BYTES)

    def recv(self) -> int:
        """The next number that the server has handed over."""
        while not self.inbox:
            self.host.wait(A_NUMBER)
        return self.inbox.popleft()

    def serve(self, token: Token) -> None:
        self.queue.append(token)
        if len(self.queue) == 1 and self.server.waits_for == "work":
            self.server.resume()

    def _serve_all(self) -> None:
        while True:
            while self.queue:
                self.engine.at(self.engine.now_ps + self.service_ps, self.server.resume)
                self.server.wait("service")
                token = self.queue.popleft()
                self.log.append(f"{self.engine.now_ps} Token(core={token.core}, number={token.number})")
                self.inbox.append(token.number)
                self.engine.at(self.engine.now_ps, partial(self.host.resume, A_NUMBER))
            self.server.wait("work")

    def tasks(self) -> list[Task]:
        return [self.server, *self.host.tasks]

    def results(self) -> ChipResults:
        log = hashlib.sha256("\n".join(self.log).encode()).hexdigest()
        sent = sum(port.bytes_sent for port in self.network.by_letter.values())
        return ChipResults(hashlib.sha256(str(self.inbox).encode()).hexdigest(), log, sent)


class Laps(BuiltInJobs[RingPlan]):
    """A number goes around all SIPs, ``n_elems`` times."""

    def job(self, request: JobRequest, plan: RingPlan) -> Job:
        if request.collective not in (None, "laps") or len(request.n_elems) != 1:
            raise ConfigError("this chip runs collective laps; give one number of laps with --n-elem")
        return Job(collective="laps", n_elems=request.n_elems)

    def run(self, job: Job, chip: RingChip) -> None:
        (laps,) = job.n_elems
        if chip.rank == 0:
            chip.send(1 % chip.n_sips, 0, 1)
        for _ in range(laps):
            if (number := chip.recv()) < laps * chip.n_sips:
                chip.send((chip.rank + 1) % chip.n_sips, 0, number + 1)


class RingKind(ChipKind[RingPlan]):
    Params = Params
    jobs = Laps()

    def ports(self, resolved: Resolved) -> Collection[str]:
        return params_of(resolved).ports

    def plan(self, resolved: Resolved) -> RingPlan:
        return RingPlan(resolved)

    def build(self, context: ChipContext[RingPlan]) -> RingChip:
        return RingChip(context)


CHIPS.register(__name__)(RingKind())
