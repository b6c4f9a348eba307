"""Routers with finite input buffers: packets, credits, back-pressure and head-of-line blocking."""
