"""One SIP's process: a ``Participant`` behind mail. It decides nothing itself."""

import sys
from collections import deque
from collections.abc import Callable

from broker.ids import BROKER, address_of
from broker.mail.base import Disconnected, Notice, SipMail
from broker.mail.connection_warnings import Gazette
from broker.mail.kinds import mail_for
from broker.sync.colocation import Placement
from broker.wire import Abort, BadFrame, CutOff, Failed, decode_for_sip, encode
from sipsim.errors import AhbmError
from sipsim.node.failure import describe
from sipsim.node.process_spec import Seat
from sipsim.node.sip_node import Member
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan
from sipsim.sync.client import Participant

CUT_OFF = 4
"""The exit code of a SIP that has lost its broker."""
Make = Callable[[SipMail, Callable[[], bool], Callable[[bool], None]], Participant]


def run_sip(seat: Seat, plan: Plan, job: Job) -> int:
    """Simulate a SIP to the end of the run; returns the process's exit code."""
    return run_participant(
        seat, lambda mail, interrupted, gather: Member(seat, plan, job, mail, mail.endpoint, interrupted, gather)
    )


def run_participant(seat: Seat, make: Make) -> int:
    """Run what ``make(mail, interrupted, gather)`` makes to the end of the run; returns the process's exit code."""
    address = address_of(seat.rank, seat.incarnation)
    letters: deque[bytes] = deque()
    has_come = is_torn = False

    def peer_lost(rank: int, notice: Notice) -> None:
        mail.send(BROKER, encode(CutOff(rank, notice.endpoint, notice.text)))

    mail = mail_for(seat.broker).sip(
        address, seat.broker, seat.endpoint, seat.keys, seat.silence_s, seat.join_timeout_s, peer_lost
    )

    def abort_has_come() -> bool:
        nonlocal has_come, is_torn
        new = [frame for frame in mail.control_here() if not participant.heed(frame)]
        letters.extend(new)
        has_come = has_come or any(_is_abort(frame) for frame in new)
        is_torn = mail.cut_off is not None
        return is_torn or has_come

    try:
        participant = make(mail, abort_has_come, _gathering(seat.meeting))
    except AhbmError as error:
        failure = describe(error, seat.rank, 0)
        mail.send(BROKER, encode(Failed(failure.kind, failure.message, failure.detail, 0, failure.where)))
        mail.close()
        return error.exit_code
    gazette = Gazette(f"SIP {seat.rank}")
    try:
        _take_part(participant, mail, letters, lambda: is_torn)
        gazette.tell(mail.notices())
    except Disconnected as lost:
        # Whoever is still there goes on without us, or starts us again: we must not speak any more.
        print(f"SIP {seat.rank}: {lost}", file=sys.stderr)
        return CUT_OFF
    if participant.log is not None:
        participant.log.close()
    mail.close()
    return 0


def _take_part(participant: Participant, mail: SipMail, letters: deque[bytes], is_torn: Callable[[], bool]) -> None:
    """``is_torn``: a window was left in its middle because the broker is lost; no letter can be obeyed after that."""
    participant.join()
    while not participant.done:
        if is_torn() and mail.cut_off is not None:
            raise Disconnected(mail.cut_off)
        if letters:
            participant.handle(letters.popleft())
        elif participant.lacks_packets:
            participant.handle(mail.parcel())
        else:
            participant.handle(mail.control())


def _is_abort(frame: bytes) -> bool:
    """Bytes that are no message end the window too; ``Participant.handle`` tells of them when their turn comes."""
    try:
        return isinstance(decode_for_sip(frame), Abort)
    except BadFrame:
        return True


def _gathering(meeting: int | None) -> Callable[[bool], None]:
    return (lambda _together: None) if meeting is None else Placement(meeting).gather
