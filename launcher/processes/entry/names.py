"""Names of the processes of a run."""

import re

BROKER_NAME = "broker"


def sip_name(rank: int) -> str:
    """The name of a rank's process."""
    return f"sip-{rank}"


def is_sip_name(name: str) -> bool:
    """Whether it is the name of a rank's process."""
    return re.fullmatch(r"sip-[0-9]{1,6}", name, re.ASCII) is not None


def rank_of(name: str) -> int | None:
    """The rank of a process; None for the broker."""
    return None if name == BROKER_NAME else int(name.removeprefix("sip-"))
