"""The broker: wire messages, time synchronisation, membership and mail.

It knows nodes, channels and times. It never imports SimPy, a kernel or a cube.
"""

DISTRIBUTION = "ahbm-sim"
