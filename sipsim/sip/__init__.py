"""One SIP put together."""
