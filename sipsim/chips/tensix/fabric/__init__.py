"""The fabric of Ethernet data movers: routers that pass packets over many chips, and how workers send into them."""
