"""``python -m launcher`` is ``ahbm-launch``."""

import sys

from launcher.cli import main

sys.exit(main())
