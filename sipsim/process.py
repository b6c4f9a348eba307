"""One SIP's process: a ``Member`` behind ZeroMQ mail. It decides nothing itself."""

from collections import deque

from broker.wire import Abort, decode_for_sip
from broker.zmq_mail import ZmqSipMail
from sipsim.job import Job
from sipsim.member import Member
from sipsim.plan import Plan


def run_sip(rank: int, plan: Plan, job: Job, broker_endpoint: str, endpoint: str) -> int:
    """Simulate SIP ``rank`` to the end of the run; returns the process's exit code."""
    mail = ZmqSipMail(rank, broker_endpoint, endpoint)
    letters: deque[bytes] = deque()

    def abort_has_come() -> bool:
        new = list(mail.receive_waiting())
        letters.extend(new)
        return any(isinstance(decode_for_sip(frame), Abort) for frame in new)

    member = Member(rank, plan, job, mail, endpoint, abort_has_come)
    member.join()
    while not member.done:
        if not letters:
            letters.extend(mail.receive())
        member.handle(letters.popleft())
    mail.close()
    return 0
