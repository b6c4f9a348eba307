"""Errors for the author of a kernel: invalid arguments, operations that do not exist, kernels that cannot run."""

import pytest
from runs import ccl_file, run, script_file

from sipsim.errors import ConfigError

SMALL = ("--sips", 1, "--set", "sip.cube_mesh={w: 2, h: 1}", "--n-elem", 8)
HEAD = "def kernel_args(world_size, n_elem):\n    return ()\n\n\n"


def failure(folder, body: str, cube: int = 0) -> tuple[str, str]:
    """Kind and message of the failure of a kernel with this body."""
    source = f"{HEAD}def kernel(t_ptr, tl):\n    {body}\n"
    error = run(*SMALL, *ccl_file(folder, source, topology="ring_1d", rank_per="cube")).outcome.error
    assert error is not None
    return error.kind, error.message.partition(f" (rank 0, cube {cube}, PE 0, at ")[0]


OPERATIONS = [
    "program_id(0)",
    "num_programs(0)",
    "rank()",
    "world_size()",
    "ipcq_slots('E')",
    "has_direction('E')",
    "load(t_ptr, 4)",
    "store(t_ptr, tl.load(t_ptr + 16, 4))",
    "add(tl.load(t_ptr + 16, 4), tl.load(t_ptr + 16, 4))",
    "send('E', tl.load(t_ptr + 16, 4))",
    "recv('E', 4, 'f16')",
    "recv_async('E', 4, 'f16')",
    "last_polled_dir",
]
FOREIGN = "this tl is that of another kernel, on PE 0.0.0 (SIP, cube, PE); a kernel uses the tl that it was called with"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_tl_of_another_pe_raises(tmp_path, operation: str) -> None:
    """PE 0 of cube 1 uses the ``tl`` of PE 0 of cube 0, whose kernel is not over."""
    body = f"known.append(tl)\n    tl.load(t_ptr, 4) if tl.rank() == 0 else known[0].{operation}\n\n\nknown = []"
    assert failure(tmp_path, body, cube=1) == ("KernelError", FOREIGN)


def test_the_tl_of_an_ended_kernel_raises(tmp_path) -> None:
    """On the same PE, in the next launch."""
    kernels = "known = []\n\ndef first(tl):\n    known.append(tl)\n\ndef second(tl):\n    known[0].rank()\n"
    worker = "def worker(rank, world_size, torch):\n    torch.launch(first)\n    torch.launch(second)\n"
    wiring = ccl_file(tmp_path, f"{HEAD}def kernel(t_ptr, tl):\n    pass\n", topology="ring_1d", rank_per="cube")
    error = run(*SMALL[:-2], *wiring, script_file(tmp_path, kernels + worker)).outcome.error
    assert error is not None
    assert error.message.startswith(FOREIGN)


@pytest.mark.parametrize("kernel", ["def kernel(t_ptr): pass", "def kernel(t_ptr, tl):\n    yield"])
def test_a_kernel_that_cannot_run_is_refused_before_the_start(tmp_path, kernel: str) -> None:
    with pytest.raises(ConfigError, match=r"^algorithms\.mine\.module = "):
        run(*SMALL, "--dry-run", *ccl_file(tmp_path, f"{HEAD}{kernel}\n", topology="ring_1d"))


def test_a_launched_generator_is_refused(tmp_path) -> None:
    """It would do nothing, silently."""
    script = tmp_path / "script.py"
    script.write_text("def worker(rank, world_size, torch):\n    torch.launch(k)\n\ndef k(tl):\n    yield\n")
    error = run(*SMALL[:-2], str(script)).outcome.error
    assert error is not None
    assert error.message.startswith("TypeError: torch.launch: the kernel must be a plain function, without yield")
