"""The ERISC data mover: channels over one Ethernet link, for workers of both chips (CCL developer guide)."""
