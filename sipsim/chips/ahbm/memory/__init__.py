"""Memories of a SIP: contents, access times, address translation."""
