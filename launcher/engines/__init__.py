"""Engines: where SIPs run. Each is one module here, with a function registered by name."""

from launcher.engines.base import ENGINES

__all__ = ["ENGINES"]
