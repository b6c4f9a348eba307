"""``python -m launcher`` is ``ahbm-launch``."""

import sys

from launcher.cli.launch import main

sys.exit(main())
