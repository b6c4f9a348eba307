"""Both ends of a link under data movers, with every interleaving: workers, semaphores, commands that leave late.

The tables are the product's; commands are done on a small model of L1 and of the link: a command of the transmit queue
takes its bytes when it leaves, at any time after it was submitted, and what has left arrives at any time later, in
order. So a source that is used again too soon, and words that share an address, show as hardware would show them.
Not a test.
"""

from collections import deque
from typing import NamedTuple

from sipsim.chips.tensix.edm.channel import RECEIVER, SENDER, Command, Fact, State, Table, step
from sipsim.core.errors import KernelMisuse


class Violation(AssertionError):
    """A message lost, doubled or overwritten, or a wait that nothing ends."""


class Channel(NamedTuple):
    """All of one channel. ``source``, ``slot``: the message in each buffer, 0 for none. ``sync``: at the sender,
    ``bytes_sent`` and ``receiver_ack``; ``mirror``: at the receiver. ``credit``: what the sender has seen of its last
    message. ``told_*``: semaphores of workers; ``sem_*``: of the channel. ``writes``: on their way to the source.
    """

    sender: State = State.STARTING
    receiver: State = State.STARTING
    source: int = 0
    slot: int = 0
    sync: tuple[int, int] = (0, 0)
    mirror: tuple[int, int] = (0, 0)
    ack: tuple[int, int] = (1, 1)
    credit: int = 2
    told_writer: int = 0
    told_reader: int = 0
    sem_sender: int = 0
    sem_receiver: int = 0
    written: int = 0
    taken: int = 0
    read: tuple[int, ...] = ()
    done: int = 0


class World(NamedTuple):
    """``forth``, ``back``: commands in the queue of each end, and ``*_wire``: what has left it."""

    channels: tuple[Channel, ...]
    forth: tuple[tuple[int, str], ...] = ()
    forth_wire: tuple[tuple[int, str, object], ...] = ()
    back: tuple[tuple[int, str], ...] = ()
    back_wire: tuple[tuple[int, str, object], ...] = ()


class Model:
    """``messages`` on each channel. ``is_merged``: payload and sync in one command."""

    def __init__(
        self,
        messages: tuple[int, ...],
        sender: Table = SENDER,
        receiver: Table = RECEIVER,
        is_merged: bool = True,
    ) -> None:
        self.messages = messages
        self.sender, self.receiver = sender, receiver
        self.is_merged = is_merged

    def check(self) -> int:
        """Visit every state that can be reached.

        Returns:
            Their number.

        Raises:
            Violation: with what is wrong.
        """
        first = World(tuple(Channel() for _ in self.messages))
        for number in range(len(self.messages)):
            first = self._at_sender(first, number, Fact.HANDSHAKE_DONE)
            first = self._at_receiver(first, number, Fact.HANDSHAKE_DONE)
        seen, left = {first}, deque([first])
        while left:
            world = left.popleft()
            following = self._following(world)
            if not following:
                self._check_end(world)
            for each in following:
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        return len(seen)

    def _check_end(self, world: World) -> None:
        for number, channel in enumerate(world.channels):
            sent = tuple(range(1, self.messages[number] + 1))
            if channel.read != sent:
                raise Violation(f"the reader has {channel.read} of {sent}, and nothing goes on")
            if (channel.sender, channel.receiver) != (State.ENDED, State.ENDED):
                raise Violation(f"ends are {channel.sender.name} and {channel.receiver.name}, and nothing goes on")

    def _following(self, world: World) -> list[World]:
        found = [
            each
            for number in range(len(self.messages))
            for act in (self._write, self._look_at_sender, self._look_at_receiver, self._read)
            if (each := act(world, number)) is not None
        ]
        return [*found, *self._link(world)]

    # --- workers --------------------------------------------------------------------------------------------------

    def _write(self, world: World, number: int) -> World | None:
        """The worker at the sender: it is told, writes, and says so."""
        channel = world.channels[number]
        if channel.told_writer != 1 or channel.written == self.messages[number]:
            return None
        message = channel.written + 1
        return _with(world, number, told_writer=0, written=message, source=message, sem_sender=channel.sem_sender + 1)

    def _read(self, world: World, number: int) -> World | None:
        channel = world.channels[number]
        if channel.told_reader != 1:
            return None
        found = (*channel.read, channel.slot)
        if found != tuple(range(1, len(found) + 1)):
            raise Violation(f"the reader takes {found}")
        return _with(world, number, told_reader=0, read=found, sem_receiver=channel.sem_receiver + 1)

    # --- data movers ----------------------------------------------------------------------------------------------

    def _look_at_sender(self, world: World, number: int) -> World | None:
        channel = world.channels[number]
        sent, ack = channel.sync
        credit = 2 if not sent else 1 if ack else 0
        if credit > channel.credit:
            world = _with(world, number, credit=credit)
            return self._at_sender(world, number, Fact.ACK_2 if credit == 2 else Fact.ACK_1)
        if not channel.sem_sender:
            return None
        is_last = channel.taken + 1 == self.messages[number]
        world = _with(world, number, taken=channel.taken + 1)
        return self._at_sender(world, number, Fact.WRITTEN_LAST if is_last else Fact.WRITTEN)

    def _look_at_receiver(self, world: World, number: int) -> World | None:
        channel = world.channels[number]
        if channel.mirror[0] and not channel.mirror[1]:
            return self._at_receiver(world, number, Fact.ARRIVED)
        if not channel.sem_receiver:
            return None
        is_last = channel.done + 1 == self.messages[number]
        world = _with(world, number, done=channel.done + 1)
        return self._at_receiver(world, number, Fact.READ_LAST if is_last else Fact.READ)

    def _at_sender(self, world: World, number: int, fact: Fact) -> World:
        channel = world.channels[number]
        state, commands = _step(self.sender, channel.sender, fact)
        if state is State.ENDED and channel.sync[0]:
            raise Violation("the sender ends with a credit outstanding")
        world = _with(world, number, sender=state)
        for command in commands:
            channel = world.channels[number]
            if command is Command.CLEAR_SEMAPHORE:
                world = _with(world, number, sem_sender=0)
            elif command is Command.NOTIFY_WORKER:
                world = _with(world, number, told_writer=channel.told_writer + 1)
            else:
                world = _with(world, number, sync=(1, 0), credit=0)
                queued = [(number, "merged")] if self.is_merged else [(number, "payload"), (number, "sync")]
                world = world._replace(forth=(*world.forth, *queued))
        return world

    def _at_receiver(self, world: World, number: int, fact: Fact) -> World:
        state, commands = _step(self.receiver, world.channels[number].receiver, fact)
        world = _with(world, number, receiver=state)
        for command in commands:
            channel = world.channels[number]
            if command is Command.CLEAR_SEMAPHORE:
                world = _with(world, number, sem_receiver=0)
            elif command is Command.NOTIFY_WORKER:
                world = _with(world, number, told_reader=channel.told_reader + 1)
            elif command is Command.SEND_ACK_1:
                world = _with(world, number, mirror=(1, 1))
                world = world._replace(back=(*world.back, (number, "ack")))
            else:
                world = _with(world, number, mirror=(0, 0))
                world = world._replace(back=(*world.back, (number, "mirror")))
        return world

    # --- the link -------------------------------------------------------------------------------------------------

    def _link(self, world: World) -> list[World]:
        found = []
        if world.forth:
            number, what = world.forth[0]
            channel = world.channels[number]
            left = (number, what, (channel.source, channel.sync))
            found.append(world._replace(forth=world.forth[1:], forth_wire=(*world.forth_wire, left)))
        if world.back:
            number, what = world.back[0]
            left = (number, what, getattr(world.channels[number], what))
            found.append(world._replace(back=world.back[1:], back_wire=(*world.back_wire, left)))
        if world.forth_wire:
            found.append(self._arrive(world._replace(forth_wire=world.forth_wire[1:]), *world.forth_wire[0]))
        if world.back_wire:
            number, _, sync = world.back_wire[0]
            found.append(_with(world._replace(back_wire=world.back_wire[1:]), number, sync=sync))
        return found

    def _arrive(self, world: World, number: int, what: str, taken: object) -> World:
        source, sync = taken  # type: ignore[misc]
        channel = world.channels[number]
        if what != "sync" and channel.mirror[0]:
            raise Violation(f"message {source} comes into a slot that is taken")
        if what == "merged":
            return _with(world, number, slot=source, mirror=sync)
        return _with(world, number, slot=source) if what == "payload" else _with(world, number, mirror=sync)


def _step(table: Table, state: State, fact: Fact) -> tuple[State, tuple[Command, ...]]:
    try:
        return step(table, state, fact, "the channel")
    except KernelMisuse as error:
        raise Violation(str(error)) from None


def _with(world: World, number: int, **changes: object) -> World:
    changed = world.channels[number]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(channels=(*world.channels[:number], changed, *world.channels[number + 1 :]))
