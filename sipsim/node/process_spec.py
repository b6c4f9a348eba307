"""Where one incarnation of a rank sits: what its process is told besides the plan and the job. Plain data."""

import msgspec

from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S
from broker.security.keys import SipKeys


class SipProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``broker`` and ``endpoint``: the broker's, and where this SIP listens; a TCP port may be ``*``.

    ``shared_cpu_seed``: any number, the same for all of a run on this host; None never shares a processor.
    ``keys``: its part of the run's; None where only processes of this user can come.
    ``packet_log_dir``: a folder for the packets that it sends, from which it can be brought back; empty for none.
    ``faults``: what the user wants to happen to it, in the words of ``--fault``.
    ``silence_s``: after how long others' silence over TCP is their death, None for never.
    ``join_timeout_s``: how long the broker may take to answer.
    """

    rank: int
    broker: str
    endpoint: str
    incarnation: int = 0
    shared_cpu_seed: int | None = None
    keys: SipKeys | None = None
    packet_log_dir: str = ""
    faults: tuple[str, ...] = ()
    silence_s: float | None = SILENCE_S
    join_timeout_s: float = JOIN_TIMEOUT_S
