"""Builds the ``Sync`` message: the synchronisation state of every SIP, and which SIP waits for which. Pure."""

from broker.membership import Membership
from broker.sync.timesync import TimeSync
from broker.wire import SipSync, Sync

COSTLIEST_CHANNELS = 3


def explain(sync: TimeSync, membership: Membership, phase: str, began_ns: int, now_ns: int, last: bool) -> Sync:
    """Return the state of every SIP at host time ``now_ns`` of a run that began at host time ``began_ns``."""
    missing = set(membership.missing())
    sips = tuple(
        _sip(sync, rank, membership.incarnation(rank), rank not in missing, not missing, began_ns, now_ns)
        for rank in range(sync.size)
    )
    channels = tuple(sync.waits.costliest_channels(sync.delays, COSTLIEST_CHANNELS, now_ns))
    return Sync(last, phase, sync.reports, sync.grants, sips, channels)


def _sip(
    sync: TimeSync,
    rank: int,
    incarnation: int,
    has_joined: bool,
    membership_complete: bool,
    began_ns: int,
    now_ns: int,
) -> SipSync:
    waits = sync.waits
    reported = sync.has_reported(rank)
    since_ns = waits.since_ns[rank] if reported else began_ns
    state = _state(sync, rank, has_joined, membership_complete)
    bound = sync.bound(rank) if reported else None
    run_ns, send_ns = waits.run_ns[rank], waits.send_ns[rank]
    running_ns = now_ns - since_ns if state in ("starting", "running") else 0
    elapsed_ns = now_ns - began_ns if has_joined else 0
    return SipSync(
        rank=rank,
        state=state,
        now_ps=sync.now_ps(rank),
        next_ps=sync.next_event_bound_ps(rank),
        horizon_ps=sync.granted_ps(rank) if sync.is_running(rank) or not reported else sync.horizon_ps(rank),
        since_ns=max(now_ns - since_ns, 0),
        by=None if bound is None else bound.by,
        by_ps=0 if bound is None else bound.next_send_bound_ps,
        delay_ps=0 if bound is None else bound.delay_ps,
        chain=() if bound is None else tuple(bound.chain),
        lacks=sync.lacks(rank),
        waiting=sync.waiting(rank),
        run_ns=run_ns + running_ns,
        send_ns=send_ns,
        wait_ns=max(elapsed_ns - run_ns - running_ns - send_ns, 0),
        quiet_ns=max(now_ns - max(waits.moved_ns[rank], began_ns), 0),
        incarnation=incarnation,
    )


def _state(sync: TimeSync, rank: int, has_joined: bool, membership_complete: bool) -> str:
    if not has_joined:
        return "joining"
    if not membership_complete:
        return "joined"
    if not sync.has_reported(rank):
        return "starting"
    if sync.is_running(rank):
        return "running"
    return "idle" if sync.next_event_bound_ps(rank) is None else "waiting"
