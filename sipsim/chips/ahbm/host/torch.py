"""The object that host scripts get as ``torch``: the implemented part of PyTorch's API."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sipsim.chips.ahbm.host.distributed import Distributed
from sipsim.chips.ahbm.host.layout import NO_NUMBERS, DPPolicy, HostTensor
from sipsim.chips.ahbm.host.memory import AddressSpace
from sipsim.chips.ahbm.host.process_groups import Numbers, chosen_places
from sipsim.chips.ahbm.host.stream import Event, KernelQueue, Work
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.api.bridge import Bridge, host_call
from sipsim.config.schema import ComponentsFile
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES, DType, dtype_of
from sipsim.core.registry import nearest
from sipsim.core.task import NOT_PLAIN, makes_generator, why_not_called


class Torch:
    """One rank's view of its SIP. Its factories make device tensors; ``from_numpy`` makes host tensors.

    ``bridge``: how the host program runs; as a greenlet unless given.
    """

    float16 = DTYPES["f16"]
    bfloat16 = DTYPES["bf16"]
    float32 = DTYPES["f32"]
    int32 = DTYPES["i32"]
    int8 = DTYPES["i8"]

    def __init__(self, sip: Sip, recorded_io_dir: str = "", bridge: Bridge | None = None) -> None:
        self._sip = sip
        self.space = AddressSpace(sip.memory, sip.sip, sip.plan.hbm_room_bytes, bridge, sip.page_table)
        self.bridge = self.space.bridge
        self.kernels = KernelQueue(sip, self.space, sip.plan.world.places_on(sip.sip))
        self.distributed = Distributed(sip, self.kernels, recorded_io_dir)
        self.distributed.tensors_on(self)
        # What PyTorch has beside the generic names, for scripts that use these.
        self.ahbm = SimpleNamespace(row=self.distributed.row)
        self.cuda = self.accelerator = SimpleNamespace(Event=self.Event, synchronize=self.synchronize)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            types = {str(each): long for long, each in vars(Torch).items() if isinstance(each, DType)}
            near = types.get(name) or nearest(name, dir(Torch))
            raise AttributeError(f"torch has no {name!r} here" + (f"; did you mean torch.{near}?" if near else ""))

    @host_call
    def zeros(self, *shape: Any, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None) -> Tensor:
        """A device tensor of zeros; ``shape`` as one tuple or as sizes. Default layout: a block of rows per cube.

        ``dtype``: f16 if none is named, as on the command line, and not PyTorch's f32.
        """
        dims = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else tuple(shape)
        policy = DPPolicy(num_cubes=self._sip.plan.system.n_cubes) if dp is None else dp
        if not isinstance(policy, DPPolicy):
            raise TypeError(f"dp={policy!r}: give a DPPolicy, such as DPPolicy(num_cubes=1)")
        if not dims or not all(isinstance(d, int) and d >= 1 for d in dims):
            raise ValueError(f"shape {dims} is not a shape; give one or more sizes of at least 1")
        system = self._sip.plan.system
        if policy.num_cubes > system.n_cubes:
            raise ValueError(f"DPPolicy num_cubes={policy.num_cubes}: a SIP has {system.describe_sip()}")
        if policy.num_pes > system.n_pes:
            raise ValueError(f"DPPolicy num_pes={policy.num_pes}: a cube has {system.n_pes} PEs")
        return Tensor(self._sip.memory, self.space, dims, dtype_of(dtype), policy, self)

    empty = zeros

    def ones(self, *shape: Any, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None) -> Tensor:
        """A device tensor of ones."""
        return self.zeros(*shape, dtype=dtype, dp=dp).fill_(1)

    def full(
        self, shape: tuple[int, ...], value: float, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None
    ) -> Tensor:
        """A device tensor of one value."""
        return self.zeros(shape, dtype=dtype, dp=dp).fill_(value)

    @host_call
    def from_numpy(self, array: "np.ndarray[Any, Any]") -> HostTensor:
        """A host tensor over a NumPy array.

        Raises:
            TypeError: for what is no array of numbers.
        """
        found = np.asarray(array)
        if found.dtype.kind in NO_NUMBERS:
            raise TypeError(f"from_numpy({array!r}): give an array of numbers")
        return HostTensor(found)

    @host_call
    def launch(
        self,
        kernel: Callable[..., None],
        *args: object,
        cubes: Numbers = None,
        pes: Numbers = None,
        async_op: bool = False,
    ) -> Work | None:
        """Run ``kernel(*args, tl)`` on PEs of this SIP, and wait.

        On each of ``pes`` of each of ``cubes``, numbers from 0: all cubes if only ``pes`` is given, the lead PE if only
        ``cubes`` is, and with neither every wired PE (ADR-0023 D10). Tensors among ``args`` become typed addresses, as
        in a collective. A launch waits for the earlier ones that share a PE with it, and runs beside all others; with
        ``async_op`` it is only queued, and its :class:`Work` is returned.

        Raises:
            TypeError: for a kernel that is not a plain function, or a host tensor among ``args``.
            ValueError: for cubes or PEs that do not exist, twice the same, or none.
        """
        if not callable(kernel):
            raise TypeError(f"torch.launch needs a function kernel(*args, tl), not {kernel!r}")
        if makes_generator(kernel):
            raise TypeError(f"torch.launch: the kernel {NOT_PLAIN}")
        if problem := why_not_called(kernel, len(args) + 1):
            raise TypeError(f"torch.launch: {problem}, the {len(args)} that are given and tl")
        if any(isinstance(arg, HostTensor) for arg in args):
            raise TypeError("torch.launch: a tensor on the host has no address; copy_ it into one of torch.zeros")
        places = chosen_places(self._sip.plan, self._sip.sip, cubes, pes)
        work = Work(self.kernels, kernel.__name__, "a launched kernel")
        self.kernels.launch(work, kernel, args, places)
        if async_op:
            return work
        work.wait()
        return None

    def Event(self, *, enable_timing: bool = False) -> Event:
        """A point in the launches of this SIP, to be recorded; with ``enable_timing``, :meth:`Event.elapsed_time`."""
        return Event(self.kernels, enable_timing)

    @property
    def components(self) -> ComponentsFile:
        """What the parts of this SIP cost, as in ``components.yaml``, with all that the run has set."""
        return self._sip.plan.resolved.components

    @host_call
    def synchronize(self) -> None:
        """Block the host script until all its launches and collectives have ended."""
        self.kernels.host_task()
        for work in self.kernels.unfinished():
            work.wait()

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """``a @ b``."""
        return a @ b

    def relu(self, x: Tensor) -> Tensor:
        """``x.relu()``."""
        return x.relu()

    def softmax(self, x: Tensor, dim: int = -1) -> Tensor:
        """``x.softmax(dim)``."""
        return x.softmax(dim)
