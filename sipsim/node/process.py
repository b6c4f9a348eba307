"""The main loop of one SIP's process: passes messages between its mail and its ``SyncClient``."""

import contextlib
import signal
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType

from broker.colocation import CpuAffinity
from broker.ids import BROKER, address_of
from broker.mail.base import Disconnected, MailOptions, Notice, SipMail
from broker.mail.kinds import mail_for
from broker.mail.sockets import ConnectionWarnings
from broker.wire import Abort, BadFrame, ConnectionLost, Failed, Refused, decode_for_sip, encode
from sipsim.chips.api.run_plan import RunPlan
from sipsim.core.errors import AhbmError
from sipsim.core.forks import watched
from sipsim.node.client import SyncClient
from sipsim.node.failure import describe
from sipsim.node.sip_node import SipNode, SipProcessSpec
from sipsim.records.dump import dump_as_text
from sipsim.records.job import Job

POSITION_SIGNAL = signal.SIGUSR2
"""Signal that requests the position of each task from a SIP's process; all other processes of a run ignore it."""
LOST_BROKER_EXIT = 4
"""The exit code of a SIP that has lost its broker."""
Make = Callable[[SipMail, Callable[[], bool], Callable[[bool], None]], SyncClient]


def run_sip(spec: SipProcessSpec, plan: RunPlan, job: Job, reply: Callable[[str], None] | None = None) -> int:
    """Simulate a SIP to the end of the run; return the process's exit code.

    ``reply``: called with the text of the tasks' positions at each ``POSITION_SIGNAL``; None if nobody requests them.
    """

    def make(mail: SipMail, interrupted: Callable[[], bool], colocate: Callable[[bool], None]) -> SipNode:
        node = SipNode(spec, plan, job, mail, interrupted, colocate)
        if reply is not None:
            _answer_signal(node, reply)
        return node

    with watched():
        return run_client(spec, make)


def _answer_signal(node: SipNode, reply: Callable[[str], None]) -> None:
    def answer(_signum: int, frame: FrameType | None) -> None:
        # The requester may have exited, and a request for positions must not end a run.
        with contextlib.suppress(Exception):
            reply(dump_as_text(node.tasks_dump(frame)))

    signal.signal(POSITION_SIGNAL, answer)


def run_client(spec: SipProcessSpec, make: Make) -> int:
    """Run the client that ``make(mail, interrupted, colocate)`` returns; return the process's exit code."""
    address = address_of(spec.rank, spec.incarnation)
    frames: deque[bytes] = deque()
    abort_received = window_aborted = False

    def peer_lost(rank: int, notice: Notice) -> None:
        mail.send(BROKER, encode(ConnectionLost(rank, notice.endpoint, notice.text)))

    options = MailOptions(spec.silence_s, spec.join_timeout_s, peer_lost)
    mail = mail_for(spec.broker).sip(address, spec.broker, spec.endpoint, spec.keys, options)

    def poll_abort() -> bool:
        nonlocal abort_received, window_aborted
        new = [frame for frame in mail.poll_control() if not client.handle_within_window(frame)]
        frames.extend(new)
        abort_received = abort_received or any(_is_abort(frame) for frame in new)
        window_aborted = mail.broker_lost is not None
        return window_aborted or abort_received

    try:
        with watched():
            # Within ``watched``, since definitions of a user are instantiated too.
            client = make(mail, poll_abort, _colocation(spec.shared_cpu_seed))
    except AhbmError as error:
        failure = describe(error, spec.rank, 0)
        mail.send(BROKER, encode(Failed(failure.kind, failure.message, failure.detail, 0, failure.where)))
        _await_refusal(mail)
        mail.close()
        return error.exit_code
    warnings = ConnectionWarnings(f"SIP {spec.rank}")
    try:
        _run_loop(client, mail, frames, lambda: window_aborted)
        warnings.write(mail.notices())
    except Disconnected as lost:
        # This SIP may have been replaced already, so it must not send any more packets.
        print(f"SIP {spec.rank}: {lost}", file=sys.stderr)
        return LOST_BROKER_EXIT
    client.close_log()
    mail.close()
    return 0


def _await_refusal(mail: SipMail) -> None:
    """Wait until the broker has the failure. Otherwise the launcher may report the process's exit as the cause."""
    with contextlib.suppress(Disconnected, BadFrame):
        while not isinstance(decode_for_sip(mail.recv_control()), Refused):
            pass


def _run_loop(client: SyncClient, mail: SipMail, frames: deque[bytes], window_aborted: Callable[[], bool]) -> None:
    """Pass messages to the client until it is done. ``window_aborted``: the broker was lost within a window."""
    client.join()
    while not client.done:
        if window_aborted() and mail.broker_lost is not None:
            raise Disconnected(mail.broker_lost)
        if frames:
            client.handle(frames.popleft())
        elif client.lacks_packets:
            client.handle(mail.recv_data())
        else:
            client.handle(mail.recv_control())


def _is_abort(frame: bytes) -> bool:
    """Whether a frame ends the window: an ``Abort``, or invalid bytes, which ``SyncClient.handle`` reports."""
    try:
        return isinstance(decode_for_sip(frame), Abort)
    except BadFrame:
        return True


def _colocation(shared_cpu_seed: int | None) -> Callable[[bool], None]:
    return (lambda _together: None) if shared_cpu_seed is None else CpuAffinity(shared_cpu_seed).colocate
