"""What a schedule costs on a system, by the config alone: the estimate by which ``auto`` chooses."""
