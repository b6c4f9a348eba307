"""``python -m launcher`` is ``ahbm-launch``."""

import sys

from ahbm_sim import launch

sys.exit(launch())
