"""Fabric of Ethernet data movers: routers that forward packets over many chips, and how workers connect to them."""
