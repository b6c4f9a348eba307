"""Errors for the author of a kernel: invalid arguments, operations that do not exist, kernels that cannot run."""

import pytest
from runs import ccl_file, run, script_file

from launcher.run.options import Usage
from sipsim.errors import ConfigError
from sipsim.tl.language import TL
from sipsim.tl.values import HANDLES

SMALL = ("--sips", 1, "--set", "sip.cube_mesh={w: 2, h: 1}", "--n-elem", 8)
HEAD = "def kernel_args(world_size, n_elem):\n    return ()\n\n\n"


def failure(folder, body: str, cube: int = 0) -> tuple[str, str]:
    """Kind and message of the failure of a kernel with this body."""
    source = f"{HEAD}def kernel(t_ptr, tl):\n    {body}\n"
    error = run(*SMALL, *ccl_file(folder, source, topology="ring_1d", rank_per="cube")).outcome.error
    assert error is not None
    return error.kind, error.message.partition(f" (rank 0, cube {cube}, PE 0, at ")[0]


WORDS = ", ".join(each for each in dir(TL) if not each.startswith("_"))
NO_OPERATION = "AttributeError: tl has no operation"


@pytest.mark.parametrize(("name", "hint"), [("softmax", ";"), ("maximun", "; did you mean 'maximum'?")])
def test_operations_that_do_not_exist_raise(tmp_path, name: str, hint: str) -> None:
    assert failure(tmp_path, f"tl.{name}(1)") == ("exception", f"{NO_OPERATION} '{name}'{hint} it has {WORDS}")


ADDRESS, OFFSET = "is not an address; give an int, in bytes", "is not an offset; give an int, in bytes"
SHAPE = "is not a shape; give one or more sizes of at least 1"
DTYPE, SPACE = "is not known; allowed: f16, bf16, f32, i32, i8", "is not known; allowed: tcm, hbm, sram"
DIRECTION = "is not installed; installed: E, W; algorithms.mine wires them, by topology or neighbors()"
AXIS = "does not exist; 0 is PE in its cube, 1 cube in its SIP, 2 SIP"
ARGUMENTS = [
    ("tl.load(t_ptr, 4) + '1'", f"tl.add takes handles and numbers, not str; {HANDLES}"),
    ("tl.add(t_ptr, tl.load(t_ptr, 4))", f"tl.add takes handles and numbers, not Pointer; {HANDLES}"),
    ("tl.store(t_ptr, 5)", f"tl.store takes an address and a handle, not int; {HANDLES}"),
    ("tl.store(tl.load(t_ptr, 4), t_ptr)", f"tl.store takes an address and a handle, not Pointer; {HANDLES}"),
    ("tl.load('x', 4)", f"'x' {ADDRESS}"),
    ("tl.load(1.5, 4, 'f16')", f"1.5 {ADDRESS}"),
    ("tl.load(None, 4, 'f16')", f"None {ADDRESS}"),
    ("tl.load(t_ptr + 'x', 4)", f"'x' {OFFSET}"),
    ("tl.load(t_ptr + 1.5, 4)", f"1.5 {OFFSET}"),
    ("tl.load(t_ptr - [], 4)", f"[] {OFFSET}"),
    ("tl.load(t_ptr, 'x')", f"shape 'x' {SHAPE}"),
    ("tl.load(t_ptr, True)", f"shape True {SHAPE}"),
    ("tl.load(t_ptr, [4, True])", f"shape [4, True] {SHAPE}"),
    ("tl.load(t_ptr, [4, 'x'])", f"shape [4, 'x'] {SHAPE}"),
    ("tl.load(t_ptr, 4, ['f16'])", f"dtype ['f16'] {DTYPE}"),
    ("tl.store('x', tl.load(t_ptr, 4))", f"'x' {ADDRESS}"),
    ("tl.add([], tl.load(t_ptr, 4))", f"tl.add takes handles and numbers, not list; {HANDLES}"),
    ("tl.send(['E'], tl.load(t_ptr, 4))", f"direction ['E'] {DIRECTION}"),
    ("tl.send('E', [1])", "tl.send takes a handle as src, not list; an address is src_addr="),
    ("tl.send('E', src_addr='x', shape=4, dtype='f16')", f"'x' {ADDRESS}"),
    ("tl.send('E', src_addr=t_ptr, shape={})", f"shape {{}} {SHAPE}"),
    ("tl.send('E', src_addr=t_ptr, nbytes='8')", "nbytes='8' is not a size; give at least 1"),
    ("tl.send('E', src_addr=t_ptr, shape=4, dtype=[])", f"dtype [] {DTYPE}"),
    ("tl.send('E', src_addr=t_ptr, shape=4, space=['hbm'])", f"space ['hbm'] {SPACE}"),
    ("tl.recv(['E'], 4, 'f16')", f"direction ['E'] {DIRECTION}"),
    ("tl.recv('E', 'x', 'f16')", f"shape 'x' {SHAPE}"),
    ("tl.recv('E', 4, [])", f"dtype [] {DTYPE}"),
    ("tl.recv('E', 4, dst_addr='x')", f"'x' {ADDRESS}"),
    ("tl.recv('E', 4, dst_addr=t_ptr, dst_space=[])", f"space [] {SPACE}"),
    ("tl.recv_async({}, 4, 'f16')", f"direction {{}} {DIRECTION}"),
    ("tl.recv_async('E', 4, 'f16', dst_addr=[])", f"[] {ADDRESS}"),
    ("tl.wait([])", "tl.wait takes what tl.recv_async, load_async, store_async or gemm_async returned, not []"),
    ("tl.program_id('x')", f"axis 'x' {AXIS}"),
    ("tl.program_id(1.0)", f"axis 1.0 {AXIS}"),
    ("tl.num_programs([])", f"axis [] {AXIS}"),
    ("tl.ipcq_slots(['E'])", f"direction ['E'] {DIRECTION}"),
    ("tl.has_direction(['E'])", "direction ['E'] is not a name, such as 'E'"),
]


@pytest.mark.parametrize(("body", "says"), ARGUMENTS)
def test_arguments_of_another_type_raise(tmp_path, body: str, says: str) -> None:
    """Every argument of every operation: a named error with what is allowed."""
    kind = "IpcqInvalidDirection" if says.startswith("direction") else "KernelError"
    assert failure(tmp_path, body) == (kind, says)


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


def test_hasattr_of_an_unknown_operation_is_false(tmp_path) -> None:
    assert failure(tmp_path, "assert not hasattr(tl, 'softmax')\n    1 / 0") == (
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


def test_an_unknown_flag_names_the_command() -> None:
    with pytest.raises(Usage, match="see ahbm-launch --help"):
        run("--zzz")
