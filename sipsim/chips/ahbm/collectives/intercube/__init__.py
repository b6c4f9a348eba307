"""What the algorithms of the meaning ``intercube`` share: trees of units, schedules, the kernel's loop, bounds."""
