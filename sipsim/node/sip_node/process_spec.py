"""Launch parameters of one SIP process, besides the plan and the job. Plain data."""

import msgspec

from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S
from broker.security.keys import SipKeys


class SipProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``broker`` and ``endpoint``: addresses of the broker and of this SIP; a TCP port may be ``*``.

    ``shared_cpu_seed``: any number, the same for all SIPs of a run on this host; None: never share a processor.
    ``keys``: the CURVE keys of this SIP; None where only processes of this user can connect.
    ``packet_log_dir``: folder of the packet logs, for restarts; empty for none.
    ``artifact_dir``: the rank's artifact folder, which its process makes; empty for none.
    ``faults``: ``--fault`` specs.
    ``silence_s``: after how long a silent TCP peer counts as dead, None for never.
    ``join_timeout_s``: how long the broker may take to answer.
    """

    rank: int
    broker: str
    endpoint: str
    incarnation: int = 0
    shared_cpu_seed: int | None = None
    keys: SipKeys | None = None
    packet_log_dir: str = ""
    artifact_dir: str = ""
    faults: tuple[str, ...] = ()
    silence_s: float | None = SILENCE_S
    join_timeout_s: float = JOIN_TIMEOUT_S
