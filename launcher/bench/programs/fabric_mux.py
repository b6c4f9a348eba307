"""Host script ``fabric_mux``: workers that send through a mux.

Settings: ``full`` and ``headers`` (numbers of channels), ``slots`` per channel, ``packets`` per client, ``nbytes``,
``revision``. A client of a full channel sends packets of ``nbytes``; a client of a header channel sends increments of a
word. Reported is the time until all packets have arrived.
"""

from typing import Any

from launcher.bench.programs.common import check, pattern, report, settings
from launcher.bench.programs.fabric_traffic import collect
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import Target, increment_of, unicast, write_and_increment, write_to


def client(
    endpoint: FabricEndpoint, targets: tuple[Target, Target], packets: int, source: int, nbytes: int, df: Dataflow
) -> None:
    """Run the kernel of a client. ``targets``: the target of all packets but the last, and the last packet's target."""
    sender = FabricSender(endpoint, df)
    sender.open()
    for number in range(packets):
        sender.send(unicast(1), targets[number == packets - 1], source, nbytes)
    sender.close()


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on each chip: one chip has the mux and the clients, the other the target."""
    chosen = settings()
    nbytes, packets, full, headers = (chosen[name] for name in ("nbytes", "packets", "full", "headers"))
    fabric = tt.open_fabric("line", revision=chosen["revision"])
    target, base = tt.workers[-1], tt.l1_base(tt.workers[0])
    semaphore, arrivals = base, base + 64
    if fabric.position == 0:
        mux_core, *cores = tt.workers
        program = tt.create_program()
        mux = fabric.create_mux(program, mux_core, "forward", full, headers, chosen["slots"])
        for number, core in zip(range(full + headers), cores, strict=False):
            size = nbytes if number < full else 0
            place = (target, arrivals + number * nbytes)
            last = (
                write_and_increment(*place, target, semaphore, is_flushed=False)
                if size
                else increment_of(target, semaphore)
            )
            first = write_to(*place) if size else increment_of(target, semaphore)
            tt.write(core, base + 64, pattern(max(size, 1), number))
            endpoint = fabric.connect_to_mux(mux, number, core)
            config = tt.DataMovementConfig(noc=tt.nearer_noc(core, mux_core))
            tt.create_kernel(program, client, core, config, (endpoint, (first, last), packets, base + 64, size))
    else:
        program = tt.create_program()
        tt.create_kernel(program, collect, target, args=(semaphore, full + headers * packets))
    tt.enqueue_program(program)
    tt.finish()
    if fabric.position == 1:
        for number in range(full):
            check(f"client {number}", tt.read(target, arrivals + number * nbytes, nbytes), pattern(nbytes, number))
        report(ended_ns=tt.now_ns())
