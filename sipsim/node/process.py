"""One SIP's process: a ``SyncClient`` behind mail. It decides nothing itself."""

import sys
from collections import deque
from collections.abc import Callable

from broker.cpu_affinity import CpuAffinity
from broker.ids import BROKER, address_of
from broker.mail.base import Disconnected, MailOptions, Notice, SipMail
from broker.mail.connection_warnings import ConnectionWarnings
from broker.mail.kinds import mail_for
from broker.wire import Abort, BadFrame, ConnectionLost, Failed, decode_for_sip, encode
from sipsim.errors import AhbmError
from sipsim.node.failure import describe
from sipsim.node.process_spec import SipProcessSpec
from sipsim.node.sip_node import SipNode
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan
from sipsim.sync.client import SyncClient

CUT_OFF = 4
"""The exit code of a SIP that has lost its broker."""
Make = Callable[[SipMail, Callable[[], bool], Callable[[bool], None]], SyncClient]


def run_sip(spec: SipProcessSpec, plan: Plan, job: Job) -> int:
    """Simulate a SIP to the end of the run; returns the process's exit code."""
    return run_client(
        spec, lambda mail, interrupted, colocate: SipNode(spec, plan, job, mail, mail.endpoint, interrupted, colocate)
    )


def run_client(spec: SipProcessSpec, make: Make) -> int:
    """Run what ``make(mail, interrupted, colocate)`` makes to the end of the run; returns the process's exit code."""
    address = address_of(spec.rank, spec.incarnation)
    frames: deque[bytes] = deque()
    has_come = is_torn = False

    def peer_lost(rank: int, notice: Notice) -> None:
        mail.send(BROKER, encode(ConnectionLost(rank, notice.endpoint, notice.text)))

    options = MailOptions(spec.silence_s, spec.join_timeout_s, peer_lost)
    mail = mail_for(spec.broker).sip(address, spec.broker, spec.endpoint, spec.keys, options)

    def abort_has_come() -> bool:
        nonlocal has_come, is_torn
        new = [frame for frame in mail.poll_control() if not client.handle_within_window(frame)]
        frames.extend(new)
        has_come = has_come or any(_is_abort(frame) for frame in new)
        is_torn = mail.broker_lost is not None
        return is_torn or has_come

    try:
        client = make(mail, abort_has_come, _gathering(spec.shared_cpu_seed))
    except AhbmError as error:
        failure = describe(error, spec.rank, 0)
        mail.send(BROKER, encode(Failed(failure.kind, failure.message, failure.detail, 0, failure.where)))
        mail.close()
        return error.exit_code
    warnings = ConnectionWarnings(f"SIP {spec.rank}")
    try:
        _take_part(client, mail, frames, lambda: is_torn)
        warnings.write(mail.notices())
    except Disconnected as lost:
        # Whoever is still there goes on without us, or starts us again: we must not speak any more.
        print(f"SIP {spec.rank}: {lost}", file=sys.stderr)
        return CUT_OFF
    if client.log is not None:
        client.log.close()
    mail.close()
    return 0


def _take_part(client: SyncClient, mail: SipMail, frames: deque[bytes], is_torn: Callable[[], bool]) -> None:
    """``is_torn``: a window was left in its middle because the broker is lost; no letter can be obeyed after that."""
    client.join()
    while not client.done:
        if is_torn() and mail.broker_lost is not None:
            raise Disconnected(mail.broker_lost)
        if frames:
            client.handle(frames.popleft())
        elif client.lacks_packets:
            client.handle(mail.recv_data())
        else:
            client.handle(mail.recv_control())


def _is_abort(frame: bytes) -> bool:
    """Bytes that are no message end the window too; ``SyncClient.handle`` tells of them when their turn comes."""
    try:
        return isinstance(decode_for_sip(frame), Abort)
    except BadFrame:
        return True


def _gathering(shared_cpu_seed: int | None) -> Callable[[bool], None]:
    return (lambda _together: None) if shared_cpu_seed is None else CpuAffinity(shared_cpu_seed).colocate
