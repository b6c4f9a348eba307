"""How a SIP reaches other SIPs."""
