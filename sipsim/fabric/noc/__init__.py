"""The fabric of one SIP: its graph, its routes, and the edges that transfers contend for."""
