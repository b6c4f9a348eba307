"""Building blocks of schedules: transfers along rings, lines, grids and trees, and between pairs of ranks."""
