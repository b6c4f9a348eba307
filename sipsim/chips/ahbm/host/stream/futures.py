"""What an asynchronous collective leaves: a future of its tensors, with functions to be called on them."""

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from sipsim.chips.ahbm.host.views import TensorList


class Awaited(Protocol):
    """A launch."""

    def is_completed(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> bool:
        """Block the host script until it has ended."""


class Outputs:
    """The tensors that a launch writes, without keeping them: a script that drops one gets its memory back."""

    def __init__(self, result: Any) -> None:
        tensors = result.tensors if isinstance(result, TensorList) else [] if result is None else [result]
        self._kept = [weakref.ref(tensor) for tensor in tensors]

    def tensors(self) -> list[Any]:
        """All of them.

        Raises:
            RuntimeError: when one is gone.
        """
        found = [kept() for kept in self._kept]
        if any(each is None for each in found):
            raise RuntimeError("a tensor of this collective is gone; keep it, or take the future before")
        return found


class Future:
    """The value of a launch, or of a function of another future's, once that has ended."""

    def __init__(self, work: Awaited, compute: Callable[[], Any]) -> None:
        self._work = work
        self._compute = compute
        self._known: list[Any] = []

    def done(self) -> bool:
        """Whether :meth:`value` has one."""
        return self._work.is_completed()

    def wait(self) -> Any:
        """Block the host script until the launch has ended; the value."""
        self._work.wait()
        return self.value()

    def value(self) -> Any:
        """The tensors of a collective as a list, or what a function of :meth:`then` has returned.

        Raises:
            RuntimeError: before the launch has ended.
        """
        if not self.done():
            raise RuntimeError("the future has no value yet; wait() for it")
        if not self._known:
            self._known.append(self._compute())
        return self._known[0]

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """The future of ``callback(this one)``. It is host code: the script calls it where it first asks for its value,
        with :meth:`wait` or :meth:`value`, once.
        """
        return Future(self._work, lambda: callback(self))


def future_of(work: Awaited, outputs: Outputs) -> Future:
    """That of a launch's tensors, which it keeps."""
    tensors = outputs.tensors()
    return Future(work, lambda: tensors)
