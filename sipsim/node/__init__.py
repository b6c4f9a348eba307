"""The process of a SIP: launch parameters, main loop, packet log, injected faults and descriptions of failures."""
