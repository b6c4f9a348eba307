"""One SIP's process: a ``Participant`` behind mail. It decides nothing itself."""

from collections import deque
from collections.abc import Callable

from broker.mail import SipMail
from broker.mails import mail_for
from broker.placement import Placement
from broker.wire import Abort, BadFrame, decode_for_sip
from sipsim.job import Job
from sipsim.member import Member
from sipsim.participant import Participant
from sipsim.plan import Plan

Make = Callable[[SipMail, Callable[[], bool], Callable[[bool], None]], Participant]


def run_sip(rank: int, plan: Plan, job: Job, broker_endpoint: str, endpoint: str, meeting: int = 0) -> int:
    """Simulate SIP ``rank`` to the end of the run; returns the process's exit code."""
    return run_participant(
        rank,
        broker_endpoint,
        endpoint,
        lambda mail, interrupted, gather: Member(rank, plan, job, mail, endpoint, interrupted, gather),
        meeting,
    )


def run_participant(rank: int, broker_endpoint: str, endpoint: str, make: Make, meeting: int = 0) -> int:
    """Run what ``make(mail, interrupted, gather)`` makes to the end of the run; returns the process's exit code."""
    mail = mail_for(broker_endpoint).sip(rank, broker_endpoint, endpoint)
    letters: deque[bytes] = deque()

    def abort_has_come() -> bool:
        new = mail.control_here()
        letters.extend(new)
        return any(_is_abort(frame) for frame in new)

    participant = make(mail, abort_has_come, Placement(meeting).gather)
    participant.join()
    while not participant.done:
        if letters:
            participant.handle(letters.popleft())
        elif participant.lacks_packets:
            participant.handle(mail.parcel())
        else:
            participant.handle(mail.control())
    mail.close()
    return 0


def _is_abort(frame: bytes) -> bool:
    """Bytes that are no message end the window too; ``Participant.handle`` tells of them when their turn comes."""
    try:
        return isinstance(decode_for_sip(frame), Abort)
    except BadFrame:
        return True
