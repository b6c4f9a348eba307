"""What routers and muxes hold when all is quiet: channels that are blocked, and packets or credits that are missing."""

from collections.abc import Iterable, Iterator

from sipsim.chips.tensix.fabric.channels import ReceiverChannel, SenderChannel
from sipsim.chips.tensix.fabric.router.router import Router
from sipsim.records.dump import BlockedResource


def blocked(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[BlockedResource]:
    """The channels that hold packets which cannot go on, with the channels that have no room for them. ``muxed``: the
    channels of muxes.
    """
    for channel in muxed:
        if channel.sent < channel.written:
            text = f"{channel.written - channel.sent} of its {channel.ring.slots} slots hold packets"
            yield BlockedResource(channel.name, channel.far.name, f"{text} that the mux has not sent")
    for router in routers:
        for sender in router.senders:
            if _is_stuck(router, sender):
                yield BlockedResource(sender.name, sender.far.name, _why_not_sent(router, sender))
        for receiver in router.receivers:
            lacking = _lacking(router, receiver)
            if lacking is not None:
                held = receiver.arrived - receiver.completed
                text = f"{held} of its {receiver.ring.slots} slots hold packets, the first for {lacking.name}"
                yield BlockedResource(receiver.name, lacking.name, f"{text}, which has no free slot")


def unsettled(routers: Iterable[Router], muxed: Iterable[SenderChannel] = ()) -> Iterator[str]:
    """Where packets or credits are missing once all is quiet: a line each."""
    for channel in muxed:
        yield from _unsettled_sender(channel)
    for router in routers:
        for sender in router.senders:
            yield from _unsettled_sender(sender)
        for receiver in router.receivers:
            if receiver.arrived != receiver.completed:
                yield f"{receiver.name} has taken {receiver.arrived} packets, and completed {receiver.completed}"
        for far in router.fars:
            if far.sent != far.completed:
                yield f"{router.name} has sent {far.sent} packets to {far.name}, and {far.completed} were completed"


def _unsettled_sender(sender: SenderChannel) -> Iterator[str]:
    if sender.written != sender.sent:
        yield f"{sender.name} has {sender.written - sender.sent} packets that were not sent"
    elif sender.freed != sender.sent:
        yield f"{sender.name} has sent {sender.sent} packets, and {sender.freed} of their slots were told free"


def _lacking(router: Router, receiver: ReceiverChannel) -> SenderChannel | None:
    """The channel without room that the oldest packet of a receiver waits for."""
    if receiver.handled >= receiver.arrived:
        return None
    ways = router.machine.look_into(receiver, receiver.handled).hop.ways
    full = (receiver.downstream[way] for way in ways if receiver.downstream[way].free <= 0)
    return next((each.channel for each in full), None)


def _is_stuck(router: Router, sender: SenderChannel) -> bool:
    """Whether its packets cannot be sent, or its slots are all taken by packets that were."""
    if sender.sent < sender.written:
        return not router.is_open or sender.far.free < sender.needed
    return 0 < sender.ring.slots <= sender.written - sender.freed


def _why_not_sent(router: Router, sender: SenderChannel) -> str:
    if not router.is_open:
        return "the far end of the link has not opened the fabric"
    unsent, unfreed = sender.written - sender.sent, sender.sent - sender.freed
    held = f"of its {sender.ring.slots} slots {unsent} hold packets to be sent and {unfreed} packets that are not"
    return f"{held} completed, and {sender.far.free} slots are free at the far end"
