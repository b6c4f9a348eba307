"""The study's arithmetic of fabrics of Ethernet data movers: no events, no contention but what is said in an argument.

Source: ``tenstorrent_model_study.md``, section 1, with the medians of its fit and its overlap exponent infinite: of
wire and software the slower sets the pace. A test that compares a simulation with it, where nothing contends, expects a
few percent; a difference elsewhere names the contention. Times are in ns, collectives in us, rates in GB/s, sizes in
bytes. What the study leaves open and is assumed here: the worker ends of a path are one ``channel_ns``, a crossing has
no such end, and a collective's link runs at the rate of a router that serves one channel.
"""

from dataclasses import dataclass

FRAME_BYTES, FRAME_OVERHEAD = 1500, 50
ONE_SHOT_BYTES, ONE_SHOT_FACTOR = 512 * 2**10, 2.3
"""Ring reduce-scatter up to so much a device sends straight to all, which moves so many times the bytes."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """``latency_ns`` (L): both Ethernet subsystems and the wire. ``service_ns`` (q): of a router, per packet.
    ``channel_ns`` (m): each further channel that its loop serves, and the worker ends of a path. ``ring_ns`` (xr): per
    packet and hop on a ring. ``flush_ns`` (u): the wait of a write with an increment. ``copy_ns`` (c): one copy over
    NoC and L1, per byte. ``op_us``: a call; ``relay_us``: a relay through a worker; ``reduce_ns``: of reduction and
    DRAM, per byte; ``worker_GBps`` (W): one worker that feeds a link.
    """

    rate_GBps: float
    latency_ns: float
    service_ns: float
    channel_ns: float
    ring_ns: float
    flush_ns: float
    copy_ns: float
    op_us: float
    relay_us: float
    reduce_ns: float
    worker_GBps: float
    header_bytes: int = 48

    def wire_ns(self, nbytes: int) -> float:
        """A packet with ``nbytes`` of payload on the wire, cut into frames."""
        size = nbytes + self.header_bytes
        return (size + FRAME_OVERHEAD * -(-size // FRAME_BYTES)) / self.rate_GBps

    def _copied_ns(self, nbytes: int) -> float:
        return self.copy_ns * (nbytes + self.header_bytes)

    def visit_ns(self, nbytes: int, further: float = 0, is_ring: bool = False, is_fused: bool = False) -> float:
        """A router with a packet, which serves ``further`` channels besides."""
        fused_ns = self.flush_ns + self._copied_ns(nbytes) if is_fused else 0.0
        return self.service_ns + further * self.channel_ns + is_ring * self.ring_ns + fused_ns

    def period_ns(
        self,
        nbytes: int,
        further: float = 0,
        is_ring: bool = False,
        is_fused: bool = False,
        credit_ns: float = 0.0,
        slots: int = 1,
    ) -> float:
        """From one packet to the next on the busiest link: the router, its wire, or the credits of ``slots`` slots,
        which take ``credit_ns`` to return.
        """
        soft_ns = self.visit_ns(nbytes, further, is_ring, is_fused)
        return max(soft_ns, self.wire_ns(nbytes), credit_ns / slots)

    def rate(self, nbytes: int, further: float = 0, is_ring: bool = False, is_fused: bool = False) -> float:
        """Payload a second over the busiest link, in GB/s."""
        return nbytes / self.period_ns(nbytes, further, is_ring, is_fused)

    def hop_ns(self, nbytes: int, is_ring: bool = False, is_fused: bool = False) -> float:
        """A packet from a router's memory to the next one's, and written there."""
        visit_ns = self.visit_ns(nbytes, 0, is_ring, is_fused)
        return self.latency_ns + visit_ns + self.wire_ns(nbytes) + self._copied_ns(nbytes)

    def path_ns(self, nbytes: int, hops: int, is_ring: bool = False) -> float:
        """A packet from a worker to another, with the ends of the path."""
        return hops * self.hop_ns(nbytes, is_ring) + self.channel_ns

    def collective_us(
        self,
        operation: str,
        chips: int,
        total_bytes: int,
        packet: int,
        is_ring: bool = False,
        links: int = 1,
        is_back_to_back: bool = False,
    ) -> float:
        """One call; ``all_reduce`` is reduce-scatter and all-gather. ``all_to_all`` is told without what sources lose
        to each other: its order of destinations is for a simulation to show.
        """
        if operation == "all_reduce":
            shape = (chips, total_bytes, packet, is_ring, links, is_back_to_back)
            return self.collective_us("reduce_scatter", *shape) + self.collective_us("all_gather", *shape)
        hops = chips // 2 if is_ring else chips - 1
        relays = hops - 1 if is_ring else hops if operation == "reduce_scatter" else 0
        link_bytes = self._link_bytes(operation, chips, total_bytes, is_ring) / links
        first = min(packet, max(1, int(total_bytes / chips / links)))
        crossing_us = hops * self.hop_ns(16, is_ring) / 1000
        reduced = link_bytes + 2 * total_bytes / chips / links if operation == "reduce_scatter" else 0.0
        rate = self.rate(packet)
        if chips == 2 and operation != "reduce_scatter":
            rate = min(rate, self.worker_GBps)
        fixed_us = self.op_us + crossing_us * (0.5 if is_back_to_back else 1) + relays * self.relay_us
        moved_ns = hops * self.hop_ns(first, is_ring) + link_bytes / rate + self.reduce_ns * reduced
        return fixed_us + moved_ns / 1000

    @staticmethod
    def _link_bytes(operation: str, chips: int, total_bytes: int, is_ring: bool) -> float:
        """Bytes over the busiest link, in one direction."""
        directions = 2 if is_ring else 1
        if operation == "all_to_all":
            return (chips // 2) * -(-chips // 2) / chips * total_bytes / directions
        link_bytes = (chips - 1) / chips * total_bytes / directions
        is_one_shot = operation == "reduce_scatter" and is_ring and total_bytes <= ONE_SHOT_BYTES
        return ONE_SHOT_FACTOR * link_bytes if is_one_shot else link_bytes


WORMHOLE = Formula(
    rate_GBps=12.5,
    latency_ns=422,
    service_ns=272,
    channel_ns=102,
    ring_ns=100,
    flush_ns=234,
    copy_ns=0.041,
    op_us=4.03,
    relay_us=1.8,
    reduce_ns=0.011,
    worker_GBps=6.4,
)
BLACKHOLE = Formula(
    rate_GBps=50,
    latency_ns=434,
    service_ns=140,
    channel_ns=86,
    ring_ns=94,
    flush_ns=234,
    copy_ns=0.006,
    op_us=2.0,
    relay_us=1.7,
    reduce_ns=0.0067,
    worker_GBps=15.7,
)
"""With P150's links; those of the collectives' report have half their rate."""
