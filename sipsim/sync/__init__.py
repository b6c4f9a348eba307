"""One SIP's side of time synchronisation."""
