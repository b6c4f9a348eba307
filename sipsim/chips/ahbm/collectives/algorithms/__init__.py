"""Built-in algorithms that have their own kernels. Schedules are in :mod:`sipsim.collectives.algorithms`."""
