"""Algorithm modules: loading one, checking its contract (ADR-0032 D7), and calling its hooks.

A module is named by its import path or by the path of a ``.py`` file, and exports ``kernel``, ``kernel_args``,
``TOPO_NAME_TO_KIND`` and, where it needs them, ``neighbors`` and ``reference``.
"""

import copy
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from sipsim.ccl.neighbours import NeighbourMap
from sipsim.config.model import AlgorithmEntry
from sipsim.config.strict_yaml import one_line
from sipsim.errors import ConfigError
from sipsim.system import System


class Algorithm:
    """A loaded algorithm: its hooks, checked, and the hash of its source."""

    def __init__(self, name: str, entry: AlgorithmEntry) -> None:
        self.name = name
        self.entry = entry
        self._where = f"algorithms.{name}.module = {entry.module}"
        self._adopt(self._load())

    def private_copy(self, rank: int) -> "Algorithm":
        """The same algorithm from a fresh run of its module, so that SIPs in one process share none of its state."""
        twin = copy.copy(self)
        path = self._module.__file__
        if path is not None:
            twin._adopt(load_file(Path(path), f"{self._module.__name__}__rank{rank}"))
        return twin

    def _adopt(self, module: ModuleType) -> None:
        self._module = module
        self.kernel: Callable[..., None] = self._hook("kernel", callable, "a function")
        self._kernel_args: Callable[..., tuple[Any, ...]] = self._hook("kernel_args", callable, "a function")
        self._topologies: dict[str, int] = self._hook("TOPO_NAME_TO_KIND", _is_mapping, "a dict of names to ints")
        self.reference: Callable[..., Any] | None = getattr(self._module, "reference", None)

    def topology_kind(self, topology: str) -> int:
        """The code that the kernel branches on for a SIP topology.

        Raises:
            ConfigError: when this algorithm cannot run on it.
        """
        if topology not in self._topologies:
            raise ConfigError(
                f"system.sips.topology = {topology}: algorithm {self.name} does not run on it; "
                f"allowed: {', '.join(sorted(self._topologies))}"
            )
        return self._topologies[topology]

    def kernel_args(self, system: System, n_elem: int) -> tuple[Any, ...]:
        """The per-tensor arguments; the hook may take the system as a third parameter."""
        return tuple(_call_with_optional(self._kernel_args, (system.n_sips, n_elem), system))

    def neighbours(self, rank: int, world_size: int, built_in: NeighbourMap, system: System) -> NeighbourMap:
        """The neighbour map of one rank after the ``neighbors`` hook: changed, replaced, or kept as it was."""
        hook = getattr(self._module, "neighbors", None)
        if hook is None:
            return built_in
        try:
            answer = _call_with_optional(hook, (rank, world_size, built_in), system)
            ours = built_in if answer is None else dict(answer)
        except (Exception, SystemExit) as error:
            what = f"neighbors(rank={rank}) raised {type(error).__name__}: {error}"
            raise ConfigError(one_line(f"{self._where}: {what}")) from None
        if not _is_mapping(ours):
            what = f"neighbors(rank={rank}) must return a dict of direction names to ranks, or None"
            raise ConfigError(one_line(f"{self._where}: {what}, not {answer!r}"))
        return ours

    def source_sha256(self) -> str:
        """Hash of the module's source; every SIP must run the same."""
        path = self._module.__file__
        return hashlib.sha256(Path(path).read_bytes() if path else b"").hexdigest()

    def _load(self) -> ModuleType:
        try:
            if self.entry.module.endswith(".py"):
                return load_file(_on_path(self.entry.module), f"_ahbm_algorithm_{self.name}")
            return importlib.import_module(self.entry.module)
        except (Exception, SystemExit) as error:
            what = f"cannot be imported: {type(error).__name__}: {error}"
            raise ConfigError(one_line(f"{self._where}: {what}")) from None

    def _hook(self, name: str, fits: Callable[[Any], bool], what: str) -> Any:
        if not hasattr(self._module, name):
            raise ConfigError(f"{self._where}: exports no {name}; an algorithm module must (ADR-0032 D7)")
        hook = getattr(self._module, name)
        if not fits(hook):
            raise ConfigError(f"{self._where}: {name} must be {what}, not {type(hook).__name__}")
        return hook


def _on_path(file: str) -> Path:
    """A relative ``.py`` file may lie here or in any folder that modules are imported from."""
    candidates = [Path(folder, file) for folder in ("", *sys.path)]
    return next((path for path in candidates if path.is_file()), Path(file))


def _is_mapping(thing: Any) -> bool:
    return isinstance(thing, dict) and all(isinstance(k, str) and isinstance(v, int) for k, v in thing.items())


def load_file(path: Path, name: str) -> ModuleType:
    """Import a ``.py`` file as module ``name``."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _call_with_optional(hook: Callable[..., Any], args: tuple[Any, ...], extra: Any) -> Any:
    """Call a hook with ``extra`` too when it has room for one more positional parameter."""
    takes = [
        p
        for p in inspect.signature(hook).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return hook(*args, extra) if len(takes) > len(args) else hook(*args)
