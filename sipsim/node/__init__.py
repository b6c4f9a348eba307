"""The process of a SIP: its launch parameters, its main loop, its failures."""
