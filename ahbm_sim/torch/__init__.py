"""API of PyTorch's shape for scripts that call ``mp.spawn``: the ``torch`` of the rank whose host script runs.

``import ahbm_sim.torch as torch`` replaces ``import torch``. In the worker of a rank, each name is an attribute of the
object that ``worker(rank, world_size, torch)`` receives as ``torch``. Elsewhere, types can be used; a function raises
RuntimeError when called.
"""

import importlib
from collections.abc import Callable
from typing import Any

from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.core.dtypes import DType
from sipsim.node.script import ScriptNamespace

__all__ = ["DPPolicy", "Tensor"]


def attribute(path: str, name: str, cls: type) -> Any:
    """Return attribute ``name`` of the running rank's ``torch``, or of the attribute ``path`` of ``torch`` if not "".

    Without a running rank: a data type or class of ``cls``, or a function that looks up the attribute when called.

    Raises:
        AttributeError: ``name`` does not exist.
        RuntimeError: no rank is running, and the value belongs to a rank.
    """
    namespace = ScriptNamespace.installed
    if namespace is not None and namespace.api is not None:
        return getattr(getattr(namespace.api, path) if path else namespace.api, name)
    found = None if name.startswith("_") else getattr(cls, name, None)
    if isinstance(found, DType | type):
        return found
    where = f"torch.{path}.{name}" if path else f"torch.{name}"
    if not callable(found):
        raise AttributeError(f"{where}: no such name outside a worker; use values of a rank in its worker")
    return _later(path, name, cls, where)


def _later(path: str, name: str, cls: type, where: str) -> Callable[..., Any]:
    def call(*args: Any, **keywords: Any) -> Any:
        namespace = ScriptNamespace.installed
        if namespace is None or namespace.api is None:
            raise RuntimeError(f"{where}: this process runs no rank; call it in the worker of mp.spawn")
        return attribute(path, name, cls)(*args, **keywords)

    return call


def __getattr__(name: str) -> Any:
    if name in ("distributed", "multiprocessing"):
        return importlib.import_module(f"{__name__}.{name}")
    from sipsim.chips.ahbm.host.torch import Torch

    return attribute("", name, Torch)
