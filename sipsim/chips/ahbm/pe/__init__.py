"""The parts of a processing element."""
