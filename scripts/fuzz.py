"""Coverage-guided search for bytes that a decoder answers with anything but a value or its own error.

The targets, and what each may raise, are those of ``tests/pure/helpers/fuzz_targets.py``. Needs ``pip install
atheris`` (the extra ``fuzz``). One line a target; what was found is shown with its traceback and kept in ``--keep``.
The code in Python guides the search; of msgspec, which is C, only its answers are seen, so that half of the inputs
are made by changing values inside valid MessagePack or JSON. The exit code is 1 when something was found.
"""

import argparse
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/pure/helpers")]

TARGETS = ("wire", "packets", "outcome", "yaml", "config", "set", "fault", "ticket", "agent", "log", "dump", "run_file")
TARGETS += ("hosts", "environ", "evidence", "trace", "news")
VALUES = ("wire", "packets", "agent", "outcome", "ticket", "dump", "run_file", "news")
"""Whose bytes are MessagePack or JSON."""
SLOWEST_S = 1
MOST_BYTES = 4096
MOST_MIB = 2048


def main() -> int:
    """One process a target: libFuzzer ends its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="all", help=f"which, comma between: {', '.join(TARGETS)} (all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--keep", type=Path, help="folder for what is found and for what covers new code")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not installed; pip install 'ahbm-sim[fuzz]'", file=sys.stderr)
        return 2
    if args.child:
        fuzz(args.child, args.seconds, args.keep)
        return 0
    names = list(TARGETS) if args.target == "all" else args.target.split(",")
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"unknown target {unknown[0]!r}; allowed: {', '.join(TARGETS)}, all")
    print(f"{'target':<9}{'executions':>12}{'a second':>10}{'seconds':>9}  found")
    with tempfile.TemporaryDirectory(prefix="ahbm-fuzz-") as folder:
        return max([run(name, args.seconds, args.keep or Path(folder)) for name in names])


def run(name: str, seconds: int, keep: Path) -> int:
    """A target in a process of its own; prints its line."""
    (keep / name).mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    command = [sys.executable, __file__, "--child", name, "--seconds", str(seconds), "--keep", str(keep)]
    # libFuzzer ends a process on the spot, so what targets write goes where it is cleared away.
    environ = {**os.environ, "TMPDIR": str(keep)}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environ)
    took_s = time.monotonic() - began_s
    counts = re.findall(r"stat::number_of_executed_units:\s+(\d+)", done.stderr) or ["0"]
    found = "nothing" if done.returncode == 0 else "something, below"
    print(f"{name:<9}{int(counts[-1]):>12}{int(counts[-1]) / took_s:>10.0f}{took_s:>9.0f}  {found}", flush=True)
    if done.returncode:
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith(("#", "\t", "INFO:")))
        print(said[-6000:], file=sys.stderr)
    return 1 if done.returncode else 0


def fuzz(name: str, seconds: int, keep: Path) -> None:
    """Search; does not return when something is found."""
    import atheris

    with atheris.instrument_imports(include=["broker", "sipsim", "launcher", "yaml"], enable_loader_override=False):
        from fuzz_targets import targets
    target = targets()[name]
    corpus = keep / name
    for number, sample in enumerate(target.samples):
        (corpus / f"sample-{number}").write_bytes(sample)
    words = keep / f"{name}.words"
    spelled = ["".join(f"\\x{byte:02x}" for byte in word) for word in target.words]
    words.write_text("".join(f'"{word}"\n' for word in spelled))
    options = [
        f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MIB}",
        "-print_final_stats=1", f"-artifact_prefix={keep / name}-", str(corpus),
    ]  # fmt: skip
    if target.words:
        # An empty one is refused.
        options.append(f"-dict={words}")

    def one(data: bytes) -> None:
        target.try_on(data)

    # Looked up late: atheris has another ``Mutate`` once it runs.
    change = change_values(lambda data, most: atheris.Mutate(data, most))
    mutator = {"custom_mutator": change} if name in VALUES else {}
    atheris.Setup([sys.argv[0], *options], one, **mutator)
    atheris.Fuzz()


def change_values(change_bytes: Callable[[bytes, int], bytes]) -> Callable[[bytes, int, int], bytes]:
    """Half of the time a value inside the MessagePack or JSON, where it is one; else bytes, as libFuzzer does."""
    from mangle import with_value_changed

    def change(data: bytes, most: int, seed: int) -> bytes:
        dice = random.Random(seed)
        other = with_value_changed(data, dice) if dice.random() < 0.5 else None
        return change_bytes(data, most) if other is None else other[:most]

    return change


if __name__ == "__main__":
    sys.exit(main())
