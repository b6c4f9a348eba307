"""The names under which servers know the processes of a run."""

BROKER_NAME = "broker"


def sip_name(rank: int) -> str:
    """The process of a rank."""
    return f"sip-{rank}"


def rank_of(name: str) -> int | None:
    """The way back; None for the broker."""
    return None if name == BROKER_NAME else int(name.removeprefix("sip-"))
