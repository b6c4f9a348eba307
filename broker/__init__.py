"""The broker: wire messages, time synchronisation, membership and mail.

The broker knows SIPs, channels and times. It never imports SimPy, kernels or models of hardware.
"""

DISTRIBUTION = "ahbm-sim"
