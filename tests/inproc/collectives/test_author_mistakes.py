"""Errors for kernel authors: wrong arguments, unknown ``tl`` functions, kernels that cannot be called."""

import pytest
from runs import ccl_file, run

from launcher.run.options import Usage
from sipsim.errors import ConfigError
from sipsim.tl.language import HANDLES

SMALL = ("--sips", 1, "--set", "sip.cube_mesh={w: 2, h: 1}", "--n-elem", 8)
HEAD = "def kernel_args(world_size, n_elem):\n    return ()\n\n\n"


def failure_of(folder, body: str) -> tuple[str, str]:
    """Kind and message of the failure of a kernel with this body."""
    source = f"{HEAD}def kernel(t_ptr, tl):\n    {body}\n"
    error = run(*SMALL, *ccl_file(folder, source, topology="ring_1d", rank_per="cube")).outcome.error
    assert error is not None
    return error.kind, error.message.partition(" (rank 0, cube 0, PE 0, at ")[0]


MISTAKES = [
    ("tl.load(t_ptr, 4) + 1", "KernelError", f"cannot add int to a handle; {HANDLES}"),
    ("tl.add(t_ptr, tl.load(t_ptr, 4))", "KernelError", f"cannot add Pointer to a handle; {HANDLES}"),
    ("tl.store(t_ptr, 5)", "KernelError", f"tl.store takes an address and a handle, not int; {HANDLES}"),
    (
        "tl.store(tl.load(t_ptr, 4), t_ptr)",
        "KernelError",
        f"tl.store takes an address and a handle, not Pointer; {HANDLES}",
    ),
    (
        "tl.dot(1, 2)",
        "exception",
        "AttributeError: tl has no operation 'dot'; it has add, has_direction, ipcq_slots, last_polled_dir, load, "
        "num_programs, program_id, rank, recv, recv_async, send, store, wait, world_size",
    ),
]


@pytest.mark.parametrize(("body", "kind", "message"), MISTAKES)
def test_wrong_arguments(tmp_path, body: str, kind: str, message: str) -> None:
    assert failure_of(tmp_path, body) == (kind, message)


def test_hasattr_of_an_unknown_function(tmp_path) -> None:
    """``hasattr`` still works."""
    assert failure_of(tmp_path, "assert not hasattr(tl, 'dot')\n    1 / 0") == (
        "exception",
        "ZeroDivisionError: division by zero",
    )


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


def test_the_error_of_an_unknown_flag_names_the_command() -> None:
    with pytest.raises(Usage, match="see ahbm-launch --help"):
        run("--zzz")
