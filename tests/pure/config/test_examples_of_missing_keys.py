"""A line about a missing key has an example that works as it is pasted, for every kind that needs parameters."""

import shlex
from collections.abc import Iterator

import pytest
from msgspec.structs import fields

from sipsim.chips.ahbm.memory.ports import FIXED_LATENCY, MEMORY_KINDS
from sipsim.chips.config import load
from sipsim.config.load import parse_set
from sipsim.core.errors import ConfigError
from sipsim.fabric.links.kind import LINK_KINDS

MOST_PASTED = 3
RESOLVED = load()


def changes() -> Iterator[str]:
    """A memory or link of each kind whose parameters are not given."""
    for memory in ("hbm", "sram", "tcm"):
        for kind in MEMORY_KINDS.names():
            if kind != FIXED_LATENCY:
                yield f"{memory}={{kind: null, params: {{}}}} {memory}.kind={kind}"
    for kind in LINK_KINDS.names():
        yield f"links.new={{kind: {kind}}}"
        yield from (f"links.{name}.kind={kind}" for name, each in RESOLVED.links.links.items() if each.kind != kind)
    yield "algorithms.new={}"


@pytest.mark.parametrize("variant", ["", "adr"])
@pytest.mark.parametrize("flags", list(changes()))
def test_examples_work_as_pasted(flags: str, variant: str) -> None:
    settings = [flags] if flags.startswith(("links", "algorithms")) else flags.rsplit(" ", 1)
    for _ in range(MOST_PASTED):
        try:
            load(overrides=[parse_set(each) for each in settings], variant=variant)
        except ConfigError as error:
            text = str(error)
            if "missing" not in text:
                # What is given is there, and does not fit the memory.
                assert "hold" in text, text
                return
            flag, example = shlex.split(text.partition("such as ")[2])
            assert flag == "--set", text
            settings.append(example)
        else:
            return
    pytest.fail(f"still refused: {settings}")


def test_kinds_need_parameters() -> None:
    """Or the test above would show nothing."""
    assert {kind for kind in LINK_KINDS.names() if any(each.required for each in fields(LINK_KINDS.get(kind)))}
    needy = {
        kind for kind in MEMORY_KINDS.names() if any(each.required for each in fields(MEMORY_KINDS.get(kind).Params))
    }
    assert needy >= {"latency_bandwidth", "hbm_controller", "banked_sram", "tcm_ports"}
