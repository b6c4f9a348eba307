"""Entry point of ``python -m launcher``, which does the same as ``ahbm-launch``."""

import sys

from ahbm_sim import launch

sys.exit(launch())
