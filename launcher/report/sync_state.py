"""Formats the state of synchronisation as text, for ``--explain-sync``, SIGUSR1 and stalls. Pure."""

from broker.wire import SipSync, Sync
from sipsim.core.units import format_time_ps

NEVER = "never"


def explanation(sync: Sync) -> str:
    """Return text with a table of all SIPs, a table of host times, and the channels whose waits cost most."""
    lines = [f"synchronisation ({sync.phase}; {sync.reports} reports, {sync.grants} grants):"]
    lines += _table(("SIP", "state", "since", "now", "next event", "horizon", "waits for"), map(_state_row, sync.sips))
    lines.append("host time of each SIP since the start:")
    lines += _table(("SIP", "simulating", "waiting", "sending"), map(_time_row, sync.sips))
    if sync.channels:
        lines.append("channels whose waits cost most, summed over SIPs:")
        lines += [f"  {name}  {_seconds(cost_ns)}" for name, cost_ns in sync.channels]
    return "\n".join(lines)


def reason(sip: SipSync) -> str:
    """Return what a SIP waits for, as text."""
    if sip.state == "joining":
        return "its process to join"
    if sip.state == "joined":
        return "other SIPs to join"
    if sip.state == "starting":
        return "its host script to reach the first wait"
    if sip.state == "running":
        if sip.lacks:
            return "nothing, or " + " and ".join(f"{count} packets of SIP {src} in flight" for src, count in sip.lacks)
        return "nothing: it runs"
    if sip.state == "idle":
        waiting = f"; {sip.waiting} kernels and scripts of the SIP wait" if sip.waiting else ""
        return f"something to arrive: the SIP has no event{waiting}"
    return _bound(sip)


def _bound(sip: SipSync) -> str:
    if sip.by is None:
        return "a grant that is in flight"
    source = "itself" if sip.by == sip.rank else f"SIP {sip.by}"
    chain = ", ".join(sip.chain)
    return f"{source}, which may send at {format_time_ps(sip.by_ps)}; {format_time_ps(sip.delay_ps)} by {chain}"


def _state_row(sip: SipSync) -> tuple[str, ...]:
    return (
        str(sip.rank),
        sip.state,
        _seconds(sip.since_ns),
        format_time_ps(sip.now_ps),
        NEVER if sip.next_ps is None else format_time_ps(sip.next_ps),
        NEVER if sip.horizon_ps is None else format_time_ps(sip.horizon_ps),
        reason(sip),
    )


def _time_row(sip: SipSync) -> tuple[str, ...]:
    return str(sip.rank), _seconds(sip.run_ns), _seconds(sip.wait_ns), _seconds(sip.send_ns)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.3f} s"


def _table(head: tuple[str, ...], rows: "map[tuple[str, ...]]") -> list[str]:
    every = [head, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every)
    return [f"  {line.rstrip()}" for line in lines]
