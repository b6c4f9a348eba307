"""Collective algorithms that come with the simulator; ``ccl.yaml`` names them by module."""
