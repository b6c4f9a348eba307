"""Loading of an algorithm module, checks of its contract (ADR-0023 D11, ADR-0032 D7), and calls of its hooks.

A module is named by its import path or by the path of a ``.py`` file. It exports ``kernel``, ``kernel_args`` and,
optionally, ``neighbors``, ``reference``, ``root_cube``, ``LAYOUT`` (the layout of its tensors over cubes and PEs, as in
``DPPolicy``) and ``TOPO_NAME_TO_KIND``, which changes the kernel's arguments. A module with ``schedule`` also exports
``wiring`` and ``COLLECTIVES`` and runs these collectives in any group, with its ``kernel`` or else the schedule kernel.
"""

import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from sipsim.chips.ahbm.collectives.kernel import kernel, kernel_args
from sipsim.chips.ahbm.collectives.neighbours import TABLES, NeighbourMap, NeighbourTable
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.collectives.evaluate import check_results
from sipsim.collectives.schedule import ScheduleError, check_schedule, check_wiring, units
from sipsim.collectives.semantics import wrong_units
from sipsim.config.schema import AlgorithmEntry
from sipsim.config.yaml import one_line
from sipsim.core.errors import ConfigError, error_text, pass_on_halt
from sipsim.core.moved import current
from sipsim.core.registry import source_spec
from sipsim.core.task import NOT_PLAIN, makes_generator, reason_not_callable
from sipsim.records.code_place import raised_at

OWN_PACKAGE = "sipsim."


class Algorithm:
    """Loaded algorithm of name ``name``: the checked hooks of its module."""

    def __init__(self, name: str, entry: AlgorithmEntry) -> None:
        self.name = name
        self.entry = entry
        self._where = f"algorithms.{name}.module = {entry.module}"
        self._use_module(self._load())

    def fresh_instance(self, rank: int) -> "Algorithm":
        """Return a copy whose module is executed anew, so that SIPs in one process share no module state."""
        copied = copy.copy(self)
        path = self._module.__file__
        if path is not None:
            copied._use_module(load_file(Path(path), f"{self._module.__name__}__rank{rank}"))
        return copied

    def _use_module(self, module: ModuleType) -> None:
        self._module = module
        self.schedule: Callable[..., Any] | None = self._hook("schedule", callable, "a function", needed=False)
        is_schedule = self.schedule is not None
        has_kernel = not is_schedule or any(hasattr(module, name) for name in ("kernel", "kernel_args"))
        self.kernel: Callable[..., None] = self._hook("kernel", callable, "a function", has_kernel) or kernel
        self._kernel_args: Callable[..., tuple[Any, ...]] = (
            self._hook("kernel_args", callable, "a function", has_kernel) or kernel_args
        )
        self._topologies: dict[str, int] | None = self._hook(
            "TOPO_NAME_TO_KIND", _is_mapping, "a dict of names to ints", needed=False
        )
        self._neighbors: Callable[..., Any] | None = self._hook("neighbors", callable, "a function", needed=False)
        self.layout: tuple[str, str] | None = self._hook("LAYOUT", _is_layout, "two layouts of DPPolicy", needed=False)
        self.reference: Callable[..., Any] | None = self._hook("reference", callable, "a function", needed=False)
        self._root_cube: Callable[[AhbmSystem], int | None] | None = self._hook(
            "root_cube", callable, "a function", needed=False
        )
        self.wiring: Callable[..., Any] | None = self._hook("wiring", callable, "a function", needed=is_schedule)
        self._suits: Callable[..., str] | None = self._hook("suits", callable, "a function", needed=False)
        self.collectives: tuple[str, ...] = self._hook("COLLECTIVES", _is_names, "a tuple of names", is_schedule) or ()
        self._busiest_link: Callable[..., Any] | None = self._hook("busiest_link", callable, "a function", needed=False)
        self.rank_identical: bool | None = self._hook("RANK_IDENTICAL", _is_flag, "True or False", needed=False)

    @property
    def is_users(self) -> bool:
        """True if the module is a user's, not part of this package."""
        return not is_own(self._module.__name__)

    @property
    def about(self) -> str:
        """First sentence of the module's docstring, on one line; empty without a docstring."""
        text = " ".join((self._module.__doc__ or "").partition("\n\n")[0].split())
        return re.split(r"(?<=[^ ]{2})\.(?: |$)", re.sub(r":mod:`\.?([^`]*)`", r"\1", text))[0]

    @property
    def is_schedule(self) -> bool:
        """True if the algorithm is a schedule, which runs in any group and is wired at its first use."""
        return self.schedule is not None

    def why_not(self, task: Any) -> str:
        """Return a short reason why this schedule cannot run a task; empty if it can."""
        if task.collective.name not in self.collectives:
            return f"it runs {', '.join(self.collectives)}"
        suits = self._suits
        return "" if suits is None else str(self._call("suits", lambda: suits(task)))

    def busiest_link(self, task: Any) -> Fraction:
        """Return a lower bound of the elements over the busiest link: the formula of a built-in module, otherwise 0.

        Formulas of users' modules are ignored, since only formulas of this package are tested.
        """
        formula = None if self.is_users else self._busiest_link
        return (formula and formula(task)) or Fraction(0)

    def check_task(self, task: Any) -> str:
        """Check a task's wiring, schedule and their results for all ranks; return 8 hex digits of a hash of the two.

        Raises:
            ConfigError: names the module and the error: rank and round, or the place where an exception was raised.
        """
        wiring, schedule = self.wiring, self.schedule
        assert wiring is not None
        assert schedule is not None
        if wrong := wrong_units(task.collective, task.size, task.root):
            raise ConfigError(f"collective {task.collective.name}: {wrong}")
        ends = self._call("wiring", lambda: wiring(task.group))
        self._call("wiring", lambda: check_wiring(ends, task.size))
        made = self._call("schedule", lambda: schedule(task))
        self._call("schedule", lambda: check_schedule(made, ends, task.size, units(task.collective.cut, task.size)))
        self._call("schedule", lambda: check_results(made, ends, task))
        flows = [(flow.weight, flow.pieces, *map(flow.steps_of, range(task.size))) for flow in made]
        return hashlib.sha256(repr((sorted(ends.items()), flows)).encode()).hexdigest()[:8]

    def runs_on(self, topology: str) -> bool:
        """Return whether the algorithm runs on SIP topology ``topology``; always True without ``TOPO_NAME_TO_KIND``."""
        return self._topologies is None or topology in self._topologies

    def topology_kind(self, topology: str) -> int | None:
        """Return the kernel's code for a SIP topology; None without ``TOPO_NAME_TO_KIND``.

        Raises:
            ConfigError: the algorithm does not run on this topology.
        """
        if self._topologies is None:
            return None
        if topology not in self._topologies:
            raise ConfigError(
                f"system.sips.topology = {topology}: algorithm {self.name} does not run on it; "
                f"allowed: {', '.join(sorted(self._topologies))}"
            )
        return self._topologies[topology]

    @property
    def elects_root(self) -> bool:
        """True if the kernel elects the root cube at run time: the backend wires all cubes (ADR-0032 D3, D5)."""
        return self._root_cube is None and self._neighbors is None and self._default_neighbors is not None

    def check_root_cube(self, system: AhbmSystem) -> None:
        """Check a configured ``root_cube`` against the module's ``root_cube(system)``: the only cube, or None for any.

        Raises:
            ConfigError: another cube is configured, or the algorithm has no root cube.
        """
        configured, hook = self.entry.root_cube, self._root_cube
        if configured is None:
            return
        key = f"algorithms.{self.name}.root_cube = {configured}"
        if hook is None and not self.elects_root:
            raise ConfigError(f"{key}: the algorithm has no root cube; leave it null")
        root = None if hook is None else self._call("root_cube", lambda: hook(system))
        if root is not None and configured != root:
            raise ConfigError(f"{key}: must be null or {root}, the cube where the reduction ends")
        is_cube = configured < system.n_cubes if isinstance(configured, int) else hook is not None
        if root is None and not is_cube:
            auto = "null, auto" if hook else "null"
            raise ConfigError(f"{key}: must be {auto} or a cube of the mesh, 0 to {system.n_cubes - 1}")

    def kernel_args(self, system: AhbmSystem, world_size: int, sip: int, n_elem: int) -> tuple[Any, ...]:
        """Return the kernel's arguments on ``sip`` between the tensor's address and ``tl``.

        These are the values of the ``kernel_args`` hook for ``world_size`` ranks of the wiring (ADR-0023 D11). With
        ``TOPO_NAME_TO_KIND`` the hook gets the number of SIPs instead, and the SIP, topology code, width and height are
        appended (ADR-0032 D5, D7). The hook may take the system as a third parameter.

        Raises:
            ConfigError: the hook raised an exception.
        """
        kind = self.topology_kind(system.topology)
        ranks = world_size if kind is None else system.n_sips
        args: tuple[Any, ...] = self._call(
            f"kernel_args({ranks}, {n_elem})",
            lambda: tuple(_call_with_optional(self._kernel_args, (ranks, n_elem), system)),
        )
        return args if kind is None else (*args, sip, kind, *system.shape)

    def check_takes(self, args: tuple[Any, ...], first: tuple[str, ...] = ("the tensor's address",)) -> None:
        """Check that the kernel accepts arguments ``first`` (names), ``args`` (:meth:`kernel_args`) and ``tl``.

        Raises:
            ConfigError: shows the kernel's signature and the arguments that it gets.
        """
        refusal = reason_not_callable(self.kernel, len(first) + len(args) + 1)
        if refusal:
            values, grid = f"{len(args)} of kernel_args", ""
            if self._topologies is not None:
                values = f"{len(args) - 4} of kernel_args"
                grid = ", rank, topology code, width and height of the SIP grid"
            raise ConfigError(f"{self._where}: {refusal}: {', '.join(first)}, {values}{grid}, and tl")

    def _call(self, name: str, hook: Callable[[], Any]) -> Any:
        try:
            return hook()
        except ScheduleError as error:
            raise ConfigError(one_line(f"{self._where}: {error}")) from None
        except BaseException as error:
            pass_on_halt(error)
            place = raised_at(error)
            where = f" ({place})" if place else ""
            raise ConfigError(one_line(f"{self._where}: {name} raised {error_text(error)}{where}")) from None

    def neighbour_table(self, system: AhbmSystem, world_size: int) -> NeighbourTable:
        """Return the neighbours of all ranks: the configured table, changed or replaced by the ``neighbors`` hook.

        Raises:
            ConfigError: neither table nor hook (ADR-0023 F4), or the hook raised or returned an impossible neighbour.
        """
        table = TABLES.get(self.entry.topology)
        if self.is_schedule:
            return {}
        if table.self_wired and self._neighbors is None and table.default is None:
            built_in = ", ".join(name for name in TABLES.names() if not TABLES.get(name).self_wired)
            raise ConfigError(
                f"{self._where}: exports no neighbors, which topology {self.entry.topology} requires (ADR-0023 F4); "
                f"define neighbors, or set algorithms.{self.name}.topology to a built-in table: {built_in}"
            )
        return {
            rank: self._neighbours(rank, world_size, table.build(rank, world_size), system)
            for rank in range(world_size)
        }

    @property
    def _default_neighbors(self) -> Callable[..., Any] | None:
        """Hook in place of the ``neighbors`` that a module does not export; None if the table does not provide one."""
        return TABLES.get(self.entry.topology).default

    def _neighbours(self, rank: int, world_size: int, built_in: NeighbourMap, system: AhbmSystem) -> NeighbourMap:
        """Return a rank's neighbours by the hook, which gets a copy of map ``built_in`` and may change it (D11)."""
        hook = self._neighbors or self._default_neighbors
        if hook is None:
            return built_in
        try:
            returned = _call_with_optional(hook, (rank, world_size, dict(built_in)), system)
            neighbours = built_in if returned is None else dict(returned)
        except BaseException as error:
            pass_on_halt(error)
            if self._neighbors is None:
                raise ConfigError(f"algorithms.{self.name}: {error}") from None
            raise self._wiring_error(rank, f"raised {error_text(error)}") from None
        for direction, peer in neighbours.items():
            wrong = _wrong_neighbour(direction, peer, rank, world_size)
            if wrong:
                raise self._wiring_error(rank, f"direction {direction!r} {wrong}")
        return neighbours

    def _wiring_error(self, rank: int, what: str) -> ConfigError:
        return ConfigError(one_line(f"{self._where}: neighbors(rank={rank}) {what}"))

    def _load(self) -> ModuleType:
        try:
            if self.entry.module.endswith(".py"):
                return load_file(_on_path(self.entry.module), f"_ahbm_algorithm_{self.name}")
            return importlib.import_module(current(self.entry.module))
        except BaseException as error:
            pass_on_halt(error)
            raise ConfigError(one_line(f"{self._where}: cannot be imported: {error_text(error)}")) from None

    def _hook(self, name: str, fits: Callable[[Any], bool], what: str, needed: bool = True) -> Any:
        if not needed and getattr(self._module, name, None) is None:
            return None
        if not hasattr(self._module, name):
            raise ConfigError(f"{self._where}: exports no {name}; define {name} as {what} (ADR-0023 D11)")
        hook = getattr(self._module, name)
        if not fits(hook):
            raise ConfigError(f"{self._where}: {name} must be {what}, not {type(hook).__name__}")
        if callable(hook) and makes_generator(hook):
            raise ConfigError(f"{self._where}: {name} {NOT_PLAIN}")
        return hook


def is_own(module: str) -> bool:
    """Return whether an entry's module belongs to this package; the program's version identifies its source."""
    return module.startswith(OWN_PACKAGE)


def source_hash(module: str) -> str:
    """Return the hash of an entry's module source without running the module; empty if no source file is found."""
    file = _source_of(module)
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def _source_of(module: str) -> Path | None:
    path = current(module).replace(".", "/")
    files = (module,) if module.endswith(".py") else (f"{path}.py", f"{path}/__init__.py")
    return next((each for each in map(_on_path, files) if each.is_file()), None)


def exports(module: str, name: str) -> bool:
    """Return whether the source of an entry's module binds a name; the module is not run.

    Names from ``from ... import *`` and names that are bound only at run time are not found.
    """
    file = _source_of(module)
    try:
        body = [] if file is None else ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    return any(name in _bound_by(statement) for statement in body)


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the names that a module-level statement binds."""
    match statement:
        case ast.FunctionDef(name=name):
            return {name}
        case ast.ImportFrom(names=names):
            return {each.asname or each.name for each in names}
        case ast.Assign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return set()


def _wrong_neighbour(direction: object, peer: object, rank: int, world_size: int) -> str:
    """Describe the error in one item of a neighbour map; empty if there is none."""
    if not isinstance(direction, str):
        return "is not a string; directions are strings"
    if "#" in direction:
        return "contains #, which is reserved for queue pairs that are created during the run"
    if not isinstance(peer, int) or isinstance(peer, bool):
        return f"leads to {peer!r}, which is not a rank; ranks are 0 to {world_size - 1}"
    if not 0 <= peer < world_size:
        return f"leads to rank {peer}, which does not exist; ranks are 0 to {world_size - 1}"
    return "leads back to the rank itself; remove this direction" if peer == rank else ""


def _on_path(file: str) -> Path:
    """Return the path of a ``.py`` file, searched in the working directory and then in the folders of ``sys.path``."""
    candidates = [Path(folder, file) for folder in ("", *sys.path)]
    return next((path for path in candidates if path.is_file()), Path(file))


def _is_names(thing: Any) -> bool:
    return isinstance(thing, tuple) and all(isinstance(each, str) for each in thing)


def _is_flag(thing: Any) -> bool:
    return isinstance(thing, bool)


def _is_mapping(thing: Any) -> bool:
    return isinstance(thing, dict) and all(isinstance(k, str) and isinstance(v, int) for k, v in thing.items())


def _is_layout(thing: Any) -> bool:
    return isinstance(thing, tuple) and len(thing) == 2 and all(isinstance(name, str) for name in thing)


def load_file(path: Path, name: str) -> ModuleType:
    """Import a ``.py`` file as module ``name``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such Python file")
    spec = source_spec(name, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _call_with_optional(hook: Callable[..., Any], args: tuple[Any, ...], extra: Any) -> Any:
    """Call a hook, with ``extra`` as last argument if the hook takes one more positional parameter."""
    parameters = [
        p for p in inspect.signature(hook).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return hook(*args, extra) if len(parameters) > len(args) else hook(*args)
