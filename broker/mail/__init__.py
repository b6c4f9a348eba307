"""Mail: the transport of messages within one process, over ZeroMQ or over Unix datagrams."""
