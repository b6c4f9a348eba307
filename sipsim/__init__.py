"""One SIP: its hardware, kernels, collectives, host API, and the process that runs it."""

from sipsim.core.moved import refuse_old_paths

DISTRIBUTION = "ahbm-sim"
VERSION = "0.1.0"
"""Program version; the layout test holds it equal to the one in ``pyproject.toml``."""
refuse_old_paths()
