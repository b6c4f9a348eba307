"""The names of the collectives over groups that patterns know the meaning of."""

EVERY = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all")
