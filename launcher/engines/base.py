"""What an engine is: a function that runs a prepared plan and returns its outcome."""

from collections.abc import Callable

from launcher.report.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals import StopSignals
from sipsim.registry import Registry

Engine = Callable[[Request, StopSignals], Outcome]
ENGINES: Registry[Engine] = Registry("engine", "launcher.engines")
