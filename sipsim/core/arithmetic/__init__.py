"""What operations compute: the same bits on every machine, for the engines that time them and for the replay."""
