"""Builder of a data mover, for host scripts. Names are as in the CCL developer guide."""

from collections.abc import Callable, Iterable

from sipsim.chips.tensix.arguments import Natural, Within, checked, tiles, whole
from sipsim.chips.tensix.edm.data_mover import erisc_data_mover
from sipsim.chips.tensix.edm.layout import ChannelBufferInterface, ChannelSpec, Layout, TerminationMode
from sipsim.chips.tensix.ethernet import WORD_BYTES
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.noc import NOCS, Core
from sipsim.chips.tensix.params import DataMoverParams
from sipsim.chips.tensix.programs import EthernetConfig, KernelSpec, Program
from sipsim.core.errors import KernelMisuse

Workers = Core | tuple[int, int] | Iterable[Core | tuple[int, int]]


@checked("edm_builder")
class EriscDataMoverBuilder:
    """Builder of one data mover. A script adds all channels of ``layout`` in order, then builds the data mover once.

    ``check_worker``: raises KernelMisuse for a tile that is not a worker. ``ethernet``: Ethernet cores with a link.
    """

    def __init__(
        self,
        layout: Layout,
        mode: TerminationMode,
        params: DataMoverParams,
        ethernet: Iterable[Core],
        check_worker: Callable[[Core], None],
    ) -> None:
        self._layout = layout
        self._mode = mode
        self._params = params
        self._ethernet = list(ethernet)
        self._check_worker = check_worker
        self._channels: list[ChannelSpec] = []
        self._built_on: Core | None = None

    @property
    def buffer_bytes(self) -> int:
        """The size of each channel's buffer."""
        return self._layout.buffer_bytes

    def add_sender_channel(
        self, worker_semaphore_address: Natural, num_messages: int, worker_coords: Workers, message_bytes: int
    ) -> ChannelBufferInterface:
        """Add a channel that sends over the link what workers write into the channel's buffer.
        ``num_messages``: messages of ``message_bytes`` each, or 0 if the worker ends the channel.

        ``worker_semaphore_address``: semaphore in the workers' L1, incremented when the buffer may be written.
        ``worker_coords``: one tile, or several tiles that each write a part of every message and then signal.

        Raises:
            KernelMisuse: if the channel does not fit the builder or its other channels.
        """
        return self._add(True, worker_semaphore_address, num_messages, worker_coords, message_bytes)

    def add_receiver_channel(
        self, worker_semaphore_address: Natural, num_messages: int, worker_coords: Workers, message_bytes: int
    ) -> ChannelBufferInterface:
        """Add a channel that receives messages, which workers read. For arguments see :meth:`add_sender_channel`.

        Raises:
            KernelMisuse: if the channel does not fit the builder or its other channels.
        """
        return self._add(False, worker_semaphore_address, num_messages, worker_coords, message_bytes)

    def generate_edm_kernel(self, program: Program, core: Core | tuple[int, int], noc: Within = 0) -> None:
        """Add the data mover to a program, on Ethernet core ``core``, once per builder and core. ``noc``: the NoC for
        semaphore increments. The far end of the link needs a data mover with mirrored channels.

        Raises:
            KernelMisuse: if channels are missing, the builder was built before, or the core cannot run a data mover.
        """
        core, layout = Core(*core), self._layout
        whole("edm_builder.generate_edm_kernel: noc", noc, NOCS[0], NOCS[-1])
        if self._built_on is not None:
            raise KernelMisuse(f"this data mover is built on core {self._built_on} already; make one builder per core")
        if core not in self._ethernet:
            raise KernelMisuse(f"tile {core} is no Ethernet core with a link; a data mover needs such a core")
        if len(self._channels) != layout.channels:
            raise KernelMisuse(
                f"the data mover for core {core} has {len(self._channels)} of {layout.channels} channels; add the rest"
            )
        args = layout, tuple(self._channels), self._params
        program.add(KernelSpec(erisc_data_mover, core, EthernetConfig(noc), args, True))
        program.semaphores |= {(core, layout.semaphore(number)): 0 for number in range(layout.channels)}
        self._built_on = core

    def _add(
        self, is_sender: bool, semaphore: int, num_messages: int, coords: Workers, message_bytes: int
    ) -> ChannelBufferInterface:
        layout, number, workers = self._layout, len(self._channels), tiles("worker_coords", coords)
        self._check(num_messages, workers, message_bytes)
        if semaphore % ATOMIC_BYTES:
            raise KernelMisuse(f"worker_semaphore_address=0x{semaphore:x}: give a multiple of {ATOMIC_BYTES} B")
        self._channels.append(ChannelSpec(is_sender, semaphore, num_messages, workers, message_bytes))
        return ChannelBufferInterface(layout.buffer(number), layout.semaphore(number))

    def _check(self, num_messages: int, workers: tuple[Core, ...], message_bytes: int) -> None:
        layout, counts = self._layout, self._mode is TerminationMode.MESSAGE_COUNT_REACHED
        if self._built_on is not None:
            raise KernelMisuse(f"the data mover is built on {self._built_on}; add channels before generate_edm_kernel")
        if len(self._channels) >= layout.channels:
            raise KernelMisuse(f"all {layout.channels} channels of this builder are in use; give a larger num_channels")
        if not workers:
            raise KernelMisuse("a channel needs one worker or more; give worker_coords")
        for core in workers:
            self._check_worker(core)
        if not WORD_BYTES <= message_bytes <= layout.buffer_bytes or message_bytes % WORD_BYTES:
            raise KernelMisuse(
                f"message_bytes is {message_bytes}; give a multiple of {WORD_BYTES} B up to the size of a buffer, "
                f"{layout.buffer_bytes} B"
            )
        if counts and num_messages < 1:
            raise KernelMisuse(f"num_messages={num_messages}: with MESSAGE_COUNT_REACHED give 1 or more")
        if not counts and num_messages:
            raise KernelMisuse(f"num_messages={num_messages}: with WORKER_INITIATED a worker ends the channel; give 0")
        if not counts and len(workers) > 1:
            raise KernelMisuse(f"a channel with WORKER_INITIATED has {len(workers)} workers; give one")
