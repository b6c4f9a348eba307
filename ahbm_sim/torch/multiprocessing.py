"""``mp.spawn``: runs a worker of a script in the processes of all SIPs (:func:`launcher.spawn.spawn`)."""

from launcher.spawn import ProcessException, ProcessExitedException, ProcessRaisedException, SpawnContext, spawn

__all__ = ["ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn"]
