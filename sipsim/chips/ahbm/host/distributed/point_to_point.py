"""``send``, ``recv`` and their kin: messages from one rank to another, each a launch on both."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.kernel import kernel
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.settings import pair_ipcq
from sipsim.chips.ahbm.collectives.wirings.pairs import Pair, pair_entries, pair_program, pair_workers, turn
from sipsim.chips.ahbm.collectives.wirings.process_group import ProcessGroup
from sipsim.chips.ahbm.host.records import RunRecords
from sipsim.chips.ahbm.host.stream.futures import Outputs
from sipsim.chips.ahbm.host.stream.kernel_queue import KernelQueue, Work
from sipsim.chips.ahbm.host.views import device_tensor
from sipsim.chips.ahbm.sip.sip import Sip
from sipsim.chips.api.bridge.base import host_call
from sipsim.collectives.call.base import Call, DeviceTensor
from sipsim.collectives.call.calls import PART, GroupCall
from sipsim.records.job import SEND_RECV
from sipsim.records.report.launches import places_text


class P2POp(NamedTuple):
    """A message of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``; ``peer``: a rank of the run."""

    op: Callable[..., Any]
    tensor: DeviceTensor
    peer: int
    group: ProcessGroup | None = None
    tag: int = 0


class PairRuns:
    """The messages of one SIP."""

    def __init__(self, sip: Sip, queue: KernelQueue, records: RunRecords, note: Callable[[GroupCall], None]) -> None:
        self._sip = sip
        self._plan = sip.plan
        self._queue = queue
        self._records = records
        self._note = note
        self._knobs = pair_ipcq(self._plan.resolved)
        self._wired: dict[int, set[tuple[Place, Place]]] = {}
        self._works: dict[int, list[Work]] = {}
        self._made: dict[int, int] = {}

    def start(self, tensor: DeviceTensor, group: ProcessGroup, peer: int, tag: int, sends: bool) -> Work:
        """Launch this rank's part of a message to or from rank ``peer`` of the run.

        Raises:
            ValueError: for a peer that is not in the group, or this rank itself.
        """
        device_tensor("send" if sends else "recv", tensor)
        own, other = group.group.rank_of(self._sip.sip), group.group.rank_of(peer)
        assert own is not None
        if other is None or own == other:
            raise ValueError(f"rank {peer} is this rank" if own == other else f"rank {peer} is not in {group.name}")
        pair = Pair(group, own, other) if sends else Pair(group, other, own)
        workers = pair_workers(tensor, self._plan.system.n_pes, self._plan.worker_settings, group.pes)
        self._wire(pair, list(zip(*workers, strict=True)))
        work = self._work(pair, tensor, tag, places_text(workers.senders))
        here = workers.senders if sends else workers.receivers
        _, slot_bytes = pair.slots(self._knobs)
        programs = {
            place: pair_program(pair, tensor, index, len(here), slot_bytes, sends) for index, place in enumerate(here)
        }
        call = Call(tensor, None) if sends else Call(None, tensor)
        work.outputs = Outputs(tensor)
        work.workers, work.count = len(here), tensor.numel()
        work.on_start = lambda: self._records.note_start(work, call)
        work.on_end = lambda: self._records.note_end(work, None, call)
        places = [PePlace(self._sip.sip, *place) for place in here if programs[place]]
        self._queue.launch(work, kernel, (tensor, tensor, call.op, 2, programs), places)
        return work

    def close(self, group: ProcessGroup) -> None:
        """Close the queue pairs of a group, once its messages have ended."""
        size, own = group.group.size, group.group.rank_of(self._sip.sip)
        assert own is not None
        for peer in (each for each in range(size) if each != own):
            for pair in (Pair(group, own, peer), Pair(group, peer, own)):
                for work in self._works.pop(pair.generation, ()):
                    work.wait()
                self._made.pop(pair.generation, None)
                if self._wired.pop(pair.generation, None):
                    self._sip.close(pair.generation)

    def _work(self, pair: Pair, tensor: DeviceTensor, tag: int, where: str) -> Work:
        src, dst = pair.sips
        number = self._made[pair.generation] = self._made.get(pair.generation, 0) + 1
        work = Work(self._queue, SEND_RECV, f"a message from rank {src} to rank {dst}")
        work.has_own_row = work.is_of_row = True
        tagged = f", tag {tag}" if tag else ""
        what = f"send/recv of {tensor.numel()} {tensor.dtype} from rank {src} to rank {dst}{tagged}"
        shard = tensor.numel() // tensor.dp.blocks()
        text = PART.join(
            (what, f"message {number} of {pair.group.name}", f"on {where} with shards of {shard} elements")
        )
        work.generation, work.call, work.text = pair.generation, text, text
        work.group, work.sips, work.number, work.algorithm = -pair.generation, pair.sips, number, SEND_RECV
        works = self._works.setdefault(pair.generation, [])
        works[:] = [each for each in works if not each.is_completed()]
        works.append(work)
        self._note(GroupCall(text, -pair.generation, pair.sips, tensor.nbytes))
        return work

    def _wire(self, pair: Pair, places: list[tuple[Place, Place]]) -> None:
        wired = self._wired.setdefault(pair.generation, set())
        new = [each for each in places if each not in wired]
        if not new:
            return
        count, nbytes = pair.slots(self._knobs)
        knobs = msgspec.structs.replace(self._knobs, buffer_kind="tcm", n_slots=count, slot_size=nbytes)
        entries, members = pair_entries(self._plan.system, knobs, pair, new)
        for pe_of_rank in members:
            self._sip.install(pair.generation, entries, pe_of_rank)
        wired.update(new)


class PointToPoint:
    """Part of :class:`sipsim.chips.ahbm.host.distributed.distributed.Distributed`, which has what is declared here."""

    _pairs: PairRuns
    _member: Callable[..., ProcessGroup]
    get_rank: Callable[..., int]

    @host_call
    def isend(self, tensor: DeviceTensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> Work:
        """Send a tensor to rank ``dst`` of the run, which calls ``recv`` with one of the same size, type and layout.

        Messages from one rank to another are received in the order in which they are sent; tags must agree.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: for a rank that is not in the group, or this rank itself.
        """
        return self._pairs.start(tensor, self._member("isend", group), dst, tag, sends=True)

    @host_call
    def irecv(
        self, tensor: DeviceTensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0
    ) -> Work:
        """Receive a tensor from rank ``src`` of the run: see :meth:`isend`.

        Raises:
            RuntimeError: before ``init_process_group``.
            ValueError: without ``src``, or for a rank that is not in the group, or this rank itself.
        """
        if src is None:
            raise ValueError("irecv: name the sender, src; a receive from any rank is not available")
        return self._pairs.start(tensor, self._member("irecv", group), src, tag, sends=False)

    def send(self, tensor: DeviceTensor, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
        """:meth:`isend`, and wait until all of it has left."""
        self.isend(tensor, dst, group, tag).wait()

    def recv(
        self, tensor: DeviceTensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0
    ) -> int | None:
        """:meth:`irecv`, and wait; the rank of the sender."""
        self.irecv(tensor, src, group, tag).wait()
        return src

    def batch_isend_irecv(self, p2p_op_list: Sequence[P2POp]) -> list[Work]:
        """Start messages that do not wait for each other on any rank, whatever their order: a work for each, in order.

        Each rank takes them in the order of :func:`sipsim.chips.ahbm.collectives.wirings.pairs.turn`, messages of one
        turn by group and then as listed. Two of one turn that have a rank in common have both in common, so this is one
        order at both ends: of all that have not ended, nothing stands before the first, whichever PEs work for it, so
        it ends.

        Raises:
            TypeError: for an operation that is neither ``isend`` nor ``irecv``.
        """
        if not isinstance(p2p_op_list, list | tuple) or not all(isinstance(each, P2POp) for each in p2p_op_list):
            raise TypeError(f"batch_isend_irecv: {p2p_op_list!r}: give a list of P2POp")
        rank, found = self.get_rank(), {}
        for index, each in enumerate(p2p_op_list):
            name = getattr(each.op, "__name__", "")
            if name not in ("isend", "irecv"):
                raise TypeError(f"batch_isend_irecv: {each.op!r} is neither isend nor irecv")
            group = self._member("batch_isend_irecv", each.group)
            src, dst = (rank, each.peer) if name == "isend" else (each.peer, rank)
            found[turn(src, dst, group.group.system.n_sips), group.number, index] = each
        started = {
            index: each.op(each.tensor, each.peer, each.group, each.tag)
            for (_, _, index), each in sorted(found.items(), key=itemgetter(0))
        }
        return [started[index] for index in range(len(p2p_op_list))]
