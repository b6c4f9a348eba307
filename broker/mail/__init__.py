"""How messages travel: within one process, over ZeroMQ, over Unix datagrams."""
