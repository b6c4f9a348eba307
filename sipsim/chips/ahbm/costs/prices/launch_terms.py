"""What a launch costs by the config: host, IO_CPU, M_CPUs and the messages between them (ADR-0035, ADR-0036)."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from sipsim.chips.ahbm.control.launch_path import LaunchPath, Stretch
from sipsim.chips.ahbm.costs.prices.transfer_terms import Term, TransferTerms
from sipsim.fabric.graph.graph import Node


class LaunchTerms(TransferTerms):
    """The way of a launch from the host to the kernels, and of their ends back."""

    @cached_property
    def launch_path(self) -> LaunchPath:
        """That of a config with launches that take time."""
        return LaunchPath(self.system.resolved, self.system.graph)

    def host_latency(self) -> list[Term]:
        """From the host to IO_CPU, or back."""
        return [Term("between host and IO_CPU", ("launch.host_latency_ns",), self.launch_path.host_ps)]

    def start_skew(self, rank: int) -> list[Term]:
        """How much later the launches of a rank leave its host."""
        is_given = str(rank) in self.launch_path.launch.start_skew_ns
        key = "launch.start_skew_ns" if is_given else "launch.max_start_skew_ns"
        return [Term("start skew", (key,), self.launch_path.skew_ps(rank))]

    def io_cpu_launch(self) -> list[Term]:
        """IO_CPU's work on a launch."""
        return [Term("IO_CPU", ("io_cpu.launch_ns",), self.launch_path.launch_ps)]

    def start_margin(self, places: Sequence[tuple[int, int]]) -> list[Term]:
        """From the stamp to the start of the kernels on PEs of a SIP."""
        path = self.launch_path
        if path.launch.start_margin_ns is not None:
            return [Term("start margin", ("launch.start_margin_ns",), path.margin_ps(places))]
        return [term for stretch in path.fan_out(places) for term in self._stretch(stretch)]

    def control_message(self, src: Node, dst: Node, nbytes: int) -> list[Term]:
        """A message between IO_CPU, an M_CPU and a PE."""
        return [*self.transfer(self.system.graph.route(src, dst), nbytes)]

    def m_cpu_dispatch(self, pes: int) -> list[Term]:
        """An M_CPU's work on so many PEs."""
        return [Term("M_CPU, dispatch", ("m_cpu.dispatch_ns",), pes * self.launch_path.dispatch_ps)]

    def m_cpu_gather(self) -> list[Term]:
        """An M_CPU's work on the answer of a PE."""
        return [Term("M_CPU, gather", ("m_cpu.gather_ns",), self.launch_path.m_gather_ps)]

    def io_cpu_gather(self) -> list[Term]:
        """IO_CPU's work on the answer of a cube."""
        return [Term("IO_CPU, gather", ("io_cpu.gather_ns",), self.launch_path.io_gather_ps)]

    def launch(self, rank: int, places: Sequence[tuple[int, int]]) -> list[Term]:
        """From a host's launch to the start of its kernels."""
        return [*self.host_latency(), *self.start_skew(rank), *self.io_cpu_launch(), *self.start_margin(places)]

    def gathering(self, place: tuple[int, int]) -> list[Term]:
        """From the last end of a kernel, on a PE, to the host."""
        (of_pe, of_cube), done_bytes = self.launch_path.gather(place), self.launch_path.launch.done_bytes
        return [
            *self.transfer(of_pe, done_bytes),
            *self.m_cpu_gather(),
            *self.transfer(of_cube, done_bytes),
            *self.io_cpu_gather(),
            *self.host_latency(),
        ]

    def _stretch(self, stretch: Stretch) -> Iterator[Term]:
        route, nbytes, messages, dispatches = stretch
        yield from self._head(route)
        for drain in self._drain(route, nbytes):
            yield drain._replace(ps=messages * drain.ps)
        yield from self.m_cpu_dispatch(dispatches)
