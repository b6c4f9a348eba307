"""Loads a host script, a file or module with ``worker(rank, world_size, torch)``, and isolates the ranks.

Only the script and the algorithm module run as code; no other config value and no message is executed. If one process
runs all SIPs, each rank has its own copy of the script's modules and its own random states, so that ``inproc`` and
``local`` give the same results.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import random
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

import numpy as np

from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.config.yaml import one_line
from sipsim.core.errors import ConfigError, error_text, pass_on_halt
from sipsim.core.files import read_limited
from sipsim.core.registry import is_definer, source_spec
from sipsim.core.task import NOT_PLAIN, Task, makes_generator, reason_not_callable
from sipsim.records.code_place import INSTALLED
from sipsim.records.spawn_call import MAIN, SpawnCall

Worker = Callable[[int, int, Any], object]
MODULE_NAME = "__ahbm_script__"
MAX_SCRIPT_BYTES = 16 * 2**20
WORKER_PARAMETERS = 3
"""Parameters of ``worker(rank, world_size, torch)``."""
SHARED_PACKAGES = ("ahbm_sim", "broker", "sipsim", "launcher", "__main__")


def find_script(script: str, as_module: bool) -> Path:
    """Return the file of a script without running the script.

    Raises:
        ConfigError: when there is no such file or module.
    """
    if as_module:
        try:
            spec = importlib.util.find_spec(script)
        except BaseException as error:
            # find_spec imports the packages that contain the module, so any error may occur.
            pass_on_halt(error)
            raise ConfigError(one_line(f"-m {script}: cannot be found: {error_text(error)}")) from None
        if spec is None or spec.origin is None:
            raise ConfigError(f"-m {script}: no such module; check PYTHONPATH and the name")
        if not isinstance(spec.loader, SourceFileLoader):
            raise ConfigError(f"-m {script}: no Python file ({spec.origin}); name a module that defines worker()")
        return Path(spec.origin)
    path = Path(script)
    if not os.path.isfile(path):
        raise ConfigError(f"{script}: no such file; give the path of a Python script that defines worker()")
    return path


def check_script(path: Path, name: str = "worker") -> None:
    """Check, before any process starts, that a script compiles and mentions ``name``, if that is not empty.

    Raises:
        ConfigError: when the check fails, or the file cannot be read; the message gives the line of a syntax error.
    """
    try:
        source = read_limited(path, MAX_SCRIPT_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if source is None:
        raise ConfigError(f"{path}: larger than {MAX_SCRIPT_BYTES // 2**20} MiB, the limit of a host script")
    try:
        code = compile(source, str(path), "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno is not None else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "the code nests too deep"
        raise ConfigError(one_line(f"{path}{line}: not valid Python: {reason}")) from None
    if name and name not in code.co_names:
        raise ConfigError(f"{path}: defines no worker; a host script defines worker(rank, world_size, torch)")


def calls_spawn(script: str, as_module: bool) -> bool:
    """Return whether a script runs once as ``__main__``: it names ``spawn``, and has no ``worker`` of three parameters.

    A script that cannot be found, read or compiled is left to the checks of a host script.
    """
    try:
        path = find_script(script, as_module)
        source = read_limited(path, MAX_SCRIPT_BYTES) or b""
        if b"spawn" not in source:
            return False
        tree = ast.parse(source)
        names = _names(compile(tree, str(path), "exec"))
    except (ConfigError, OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    workers = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "worker")
    parameters = [len(each.args.posonlyargs) + len(each.args.args) for each in workers]
    return "spawn" in names and WORKER_PARAMETERS not in parameters


def _names(code: CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*inner)


class ScriptTask(Task):
    """A task of a script, or of a kernel that the script launched, which runs inside ``namespace``."""

    def __init__(self, *args: Any, namespace: "ScriptNamespace", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._namespace = namespace

    def resume(self, value: Any = None) -> None:
        self._namespace.enter()
        super().resume(value)

    def stop(self) -> None:
        self._namespace.enter()
        super().stop()


class ScriptNamespace:
    """The interpreter state that one rank's script may change: modules, ``sys.argv``, ``sys.path``, random states.

    ``api``: the object that the script gets as ``torch``; None before its worker runs.

    The rank's kernels run in this namespace too. A namespace is entered when a task of the rank runs and left only when
    a task of another rank runs, or at the end, since a switch costs more than a task's turn. The random
    generators are seeded with (seed, rank), so that a script that never seeds them is repeatable too.
    """

    installed: "ClassVar[ScriptNamespace | None]" = None

    def __init__(self, path: Path, args: tuple[str, ...], seed: int, rank: int, package: str = "") -> None:
        self._folder = path.resolve().parent
        self._path = path
        self._name = f"{package}.{MODULE_NAME}" if package else MODULE_NAME
        self._argv = [str(path), *args]
        self._sys_path = [str(self._folder), *sys.path]
        self._modules: dict[str, ModuleType] = {}
        self._bound: list[tuple[ModuleType, str, ModuleType]] = []
        self._random = random.Random(f"{seed}.{rank}").getstate()
        self._numpy_random = np.random.RandomState([seed % 2**32, rank]).get_state()
        self._outside: tuple[list[str], list[str], Any, Any, frozenset[str]] | None = None
        self._foreign: set[str] = set()
        self.api: Any = None

    def enter(self) -> None:
        """Install this rank's state before the rank's code runs; no-op if the state is installed already."""
        if self._outside is not None:
            return
        leave_namespace()
        ScriptNamespace.installed = self
        self._outside = (sys.argv, sys.path, random.getstate(), np.random.get_state(), frozenset(sys.modules))
        sys.argv, sys.path = self._argv, self._sys_path
        sys.modules.update(self._modules)
        for package, name, module in self._bound:
            setattr(package, name, module)
        random.setstate(self._random)
        np.random.set_state(self._numpy_random)

    def leave(self) -> None:
        """Save this rank's state and restore the process's state; no-op if this rank's state is not installed."""
        if self._outside is None:
            return
        ScriptNamespace.installed = None
        self._random, self._numpy_random = random.getstate(), np.random.get_state()
        self._argv, self._sys_path = sys.argv, sys.path
        sys.argv, sys.path, outside_random, outside_numpy, outside_modules = self._outside
        self._outside = None
        random.setstate(outside_random)
        np.random.set_state(outside_numpy)
        loaded = {name: sys.modules[name] for name in sys.modules.keys() - self._foreign}
        self._modules = {
            name: module for name, module in loaded.items() if self._is_own(name, module, name not in outside_modules)
        }
        self._foreign |= loaded.keys() - self._modules.keys()
        self._bound = [each for each in submodules(self._modules) if each[0].__name__ not in self._modules]
        for package, name, _ in self._bound:
            delattr(package, name)
        for name in self._modules:
            del sys.modules[name]

    def run_worker(self, rank: int, world_size: int, torch: object, spawned: SpawnCall | None) -> None:
        """Load the script and run its ``worker``, or the call of ``mp.spawn`` if there is one.

        ``sys.exit`` without a code or with code 0 is a normal end.

        Raises:
            ConfigError: when ``worker`` is missing, or is a generator or coroutine function.
        """
        self.api = torch
        try:
            if spawned is None:
                result = self._load_worker()(rank, world_size, torch)
            else:
                result = self._load_function(spawned)(rank, *spawned.args())
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            return
        if inspect.iscoroutine(result):
            # ``makes_generator`` does not detect a plain function that wraps a coroutine function.
            result.close()
            raise self._not_plain()

    def _load_worker(self) -> Worker:
        """Load the script; return its ``worker``.

        Raises:
            ConfigError: when the script defines no function ``worker`` of three arguments.
        """
        worker = getattr(self._load_script(), "worker", None)
        if not callable(worker):
            raise ConfigError(f"{self._path}: worker is not a function; define worker(rank, world_size, torch)")
        if makes_generator(worker):
            raise self._not_plain()
        if problem := reason_not_callable(worker, WORKER_PARAMETERS):
            raise ConfigError(f"{self._path}: {problem}; define worker(rank, world_size, torch)")
        found: Worker = worker
        return found

    def _load_function(self, call: SpawnCall) -> Callable[..., object]:
        """Load the script, and return the function of a call of ``mp.spawn``, in the script or in another module.

        Raises:
            ConfigError: when the module has no such function.
        """
        script = self._load_script()
        module = script if call.module == MAIN else importlib.import_module(call.module)
        found = getattr(module, call.name, None)
        if not callable(found):
            where = self._path if call.module == MAIN else f"module {call.module}"
            raise ConfigError(f"{where}: has no {call.name} when a rank loads it; define the function at module level")
        if makes_generator(found):
            raise self._not_plain()
        function: Callable[..., object] = found
        return function

    def _load_script(self) -> ModuleType:
        """Run the script's top level, between :meth:`enter` and :meth:`leave`; return its module."""
        spec = source_spec(self._name, self._path)
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__.setdefault("DPPolicy", DPPolicy)
        sys.modules[self._name] = module
        spec.loader.exec_module(module)
        return module

    def _not_plain(self) -> ConfigError:
        return ConfigError(f"{self._path}: worker {NOT_PLAIN}")

    def _is_own(self, name: str, module: ModuleType, is_new: bool) -> bool:
        """Whether a module belongs to this rank alone: it is next to the script, or the script loaded it.

        Installed modules and modules with definitions are shared by all ranks.
        """
        if name == self._name:
            return True
        if is_shared(name, module) or is_definer(name):
            return False
        return is_new or Path(_origin(module)).is_relative_to(self._folder)


def leave_namespace() -> None:
    """Restore the process's state, if the state of a rank is installed."""
    if ScriptNamespace.installed is not None:
        ScriptNamespace.installed.leave()


def is_shared(name: str, module: ModuleType) -> bool:
    """Whether a module belongs to the interpreter, this project or an installed package, in contrast to the user's."""
    origin = _origin(module)
    return not origin or name.partition(".")[0] in SHARED_PACKAGES or origin.startswith(INSTALLED)


def submodules(modules: Mapping[str, ModuleType]) -> list[tuple[ModuleType, str, ModuleType]]:
    """Return (package, attribute, module) for each of ``modules`` that its package has as an attribute."""
    parts = ((name.rpartition("."), module) for name, module in modules.items())
    within = [(sys.modules.get(package), own, module) for (package, _, own), module in parts if package]
    return [(package, own, module) for package, own, module in within if package and vars(package).get(own) is module]


def _origin(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
