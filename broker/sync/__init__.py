"""Conservative time synchronisation: the state of each SIP at the broker, and the horizons computed from it."""
