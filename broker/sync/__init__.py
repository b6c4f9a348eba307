"""Conservative time synchronisation: what the broker knows of each SIP, and the horizons that follow."""
