"""Built-in algorithms that are kernels. The schedules lie in :mod:`sipsim.collectives.algorithms`."""
