"""The object that host scripts get as ``torch``: a part of PyTorch's API."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sipsim.chips.ahbm.host.copies import DeviceMemory
from sipsim.chips.ahbm.host.distributed import Distributed
from sipsim.chips.ahbm.host.layout import NO_NUMBERS, DPPolicy, HostTensor, PartLayout
from sipsim.chips.ahbm.host.memory import AddressSpace
from sipsim.chips.ahbm.host.process_groups import Numbers, select_pes
from sipsim.chips.ahbm.host.stream import Event, Stream, Work
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.api.bridge import Bridge, host_call
from sipsim.config.schema import ComponentsFile
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES, DType, dtype_of
from sipsim.core.registry import nearest
from sipsim.core.task import NOT_PLAIN, makes_generator, reason_not_callable


class Torch:
    """``torch`` of one rank. Factories such as ``zeros`` make device tensors; ``from_numpy`` makes host tensors.

    ``recorded_io_dir``: directory for files of the collectives' data, or empty to write none. ``bridge``: connects the
    host program to the simulation; a greenlet bridge by default.
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
        self.kernels = Stream(sip, self.space, sip.plan.world.places_on(sip.sip))
        self.space.access = self._memory = DeviceMemory(sip, self.space, self.kernels)
        self.distributed = Distributed(sip, self.kernels, recorded_io_dir)
        self.distributed.set_device(self)
        # Aliases of PyTorch, for scripts that use them.
        self.ahbm = SimpleNamespace(row=self.distributed.row)
        self.cuda = self.accelerator = SimpleNamespace(Event=self.Event, synchronize=self.synchronize)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            types = {str(each): long for long, each in vars(Torch).items() if isinstance(each, DType)}
            near = types.get(name) or nearest(name, dir(Torch))
            hint = f"did you mean torch.{near}?" if near else "dir(torch) lists the names"
            raise AttributeError(f"the simulator's torch has no {name!r}; {hint}")

    @host_call
    def zeros(self, *shape: Any, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None) -> Tensor:
        """Return a device tensor of zeros. ``shape``: one tuple, or sizes. ``dp``: by default a block of rows per cube.

        ``dtype``: f16 by default, as on the command line; PyTorch's default is f32.
        """
        dims = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else tuple(shape)
        policy = DPPolicy(num_cubes=self._sip.plan.system.n_cubes) if dp is None else dp
        if not isinstance(policy, DPPolicy) or isinstance(policy, PartLayout):
            raise TypeError(f"dp={policy!r}: give a DPPolicy, such as DPPolicy(num_cubes=1)")
        if not dims or not all(isinstance(d, int) and d >= 1 for d in dims):
            raise ValueError(f"shape {dims} is not a shape; give one or more sizes of at least 1")
        system = self._sip.plan.system
        policy = policy.fitted(dims, system.n_cubes)
        if policy.num_cubes > system.n_cubes:
            raise ValueError(f"DPPolicy num_cubes={policy.num_cubes}: a SIP has {system.describe_sip()}; give fewer")
        if policy.num_pes > system.n_pes:
            raise ValueError(f"DPPolicy num_pes={policy.num_pes}: a cube has {system.n_pes} PEs; give fewer")
        tensor = Tensor(self.space, dims, dtype_of(dtype), policy, self)
        self._memory.map_new()
        return tensor

    def new_tensor(self, shape: tuple[int, ...], dtype: DType, dp: DPPolicy) -> Tensor:
        """Return a device tensor of zeros, mapped in no simulated time: for the simulator's own tensors."""
        tensor = Tensor(self.space, shape, dtype, dp, self)
        self.space.drop_maps()
        return tensor

    empty = zeros

    def ones(self, *shape: Any, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None) -> Tensor:
        """Return a device tensor of ones."""
        return self.zeros(*shape, dtype=dtype, dp=dp).fill_(1)

    def full(
        self, shape: tuple[int, ...], value: float, dtype: object = DEFAULT_DTYPE, dp: DPPolicy | None = None
    ) -> Tensor:
        """Return a device tensor whose elements are all ``value``."""
        return self.zeros(shape, dtype=dtype, dp=dp).fill_(value)

    @host_call
    def from_numpy(self, array: "np.ndarray[Any, Any]") -> HostTensor:
        """Return a host tensor that shares the memory of a NumPy array.

        Raises:
            TypeError: when ``array`` is not an array of numbers.
        """
        values = np.asarray(array)
        if values.dtype.kind in NO_NUMBERS:
            raise TypeError(f"from_numpy({array!r}): give an array of numbers")
        return HostTensor(values)

    @host_call
    def launch(
        self,
        kernel: Callable[..., None],
        *args: object,
        cubes: Numbers = None,
        pes: Numbers = None,
        async_op: bool = False,
    ) -> Work | None:
        """Run ``kernel(*args, tl)`` on PEs of this SIP, and wait for its end.

        The kernel runs on each PE of ``pes`` on each cube of ``cubes``, numbered from 0. If ``cubes`` is None, these
        are all cubes; if ``pes`` is None, the lead PE; if both are None, every wired PE (ADR-0023 D10). Tensors among
        ``args`` become typed addresses. A launch waits for earlier launches that share a PE with it, and overlaps
        with other launches. With ``async_op`` the call returns the :class:`Work` at once.

        Raises:
            TypeError: for a kernel that is not a plain function, or a host tensor among ``args``.
            ValueError: for a cube or PE that does not exist or is named twice, or an empty list.
        """
        if not callable(kernel):
            raise TypeError(f"torch.launch needs a function kernel(*args, tl), not {kernel!r}")
        if makes_generator(kernel):
            raise TypeError(f"torch.launch: the kernel {NOT_PLAIN}")
        if problem := reason_not_callable(kernel, len(args) + 1):
            raise TypeError(f"torch.launch: {problem}, the {len(args)} that are given and tl")
        if any(isinstance(arg, HostTensor) for arg in args):
            raise TypeError("torch.launch: a host tensor has no address; copy_ it into a tensor of torch.zeros")
        places = select_pes(self._sip.plan, self._sip.sip, cubes, pes)
        work = Work(self.kernels, kernel.__name__, "a launched kernel")
        self.kernels.launch(work, kernel, args, places)
        if async_op:
            return work
        work.wait()
        return None

    def Event(self, *, enable_timing: bool = False) -> Event:
        """Return an event of this SIP's launches; :meth:`Event.elapsed_time` needs ``enable_timing``."""
        return Event(self.kernels, enable_timing)

    @property
    def components(self) -> ComponentsFile:
        """Parameters of this SIP's components, as in ``components.yaml``, with the settings of the run."""
        return self._sip.plan.resolved.components

    @host_call
    def synchronize(self) -> None:
        """Block the host script until all launches and collectives of this SIP have ended."""
        self.kernels.host_task()
        for work in self.kernels.unfinished():
            work.wait()

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``a @ b``."""
        return a @ b

    def relu(self, x: Tensor) -> Tensor:
        """Return ``x.relu()``."""
        return x.relu()

    def softmax(self, x: Tensor, dim: int = -1) -> Tensor:
        """Return ``x.softmax(dim)``."""
        return x.softmax(dim)
