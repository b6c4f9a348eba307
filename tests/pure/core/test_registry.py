"""Registries: dotted names are modules on the import path, and what is said of those that are not."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launcher.bench.base import BENCHES
from launcher.options import ENGINES as LAUNCHERS
from sipsim.chips.ahbm.collectives.neighbours import TABLES
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS
from sipsim.chips.ahbm.mesh import PARTS
from sipsim.chips.api.chip import CHIPS
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.registry import Registry, TypeRegistry, UnknownName, forget_modules, is_definer
from sipsim.fabric.links.kind import LINK_KINDS
from sipsim.topology.links import TOPOLOGIES

WIDGET = "from built_in import WIDGETS\n"
BUILT_IN = """
from sipsim.core.registry import Registry
WIDGETS = Registry("widget", {"built_in.plain": ["plain"]})
"""


@pytest.fixture
def widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[str]]:
    """A registry over a package of one definition, ``plain``, and user's modules in ``shop``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "built_in/__init__.py": BUILT_IN,
        "built_in/plain.py": f"{WIDGET}WIDGETS.register('plain')('a plain one')\n",
        "shop/__init__.py": "",
        "shop/own.py": f"{WIDGET}WIDGETS.register('shop.own')('one of the shop')\n",
        "shop/other.py": f"{WIDGET}WIDGETS.register('shop.another')('under another name')\n",
        "shop/later.py": "",
        "shop/broken.py": "raise ValueError('two\\nlines')\n",
        "shop/leaving.py": "import sys\nsys.exit(3)\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = set(sys.modules)
    import built_in  # type: ignore[import-not-found]

    yield built_in.WIDGETS
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("built_in", "shop", "tools"):
            del sys.modules[name]


def test_a_dotted_name_is_a_module_that_is_imported_when_asked_for(widgets: Registry[str]) -> None:
    assert "shop.own" not in sys.modules
    assert widgets.get("shop.own") == "one of the shop"
    assert widgets.get("shop.own") == "one of the shop"
    assert widgets.names() == ["plain"]


def test_a_module_that_is_gone_is_forgotten(widgets: Registry[str], tmp_path: Path) -> None:
    """Two runs of one process may name two modules alike."""
    assert widgets.get("shop.own") == "one of the shop"
    forget_modules()
    assert widgets.get("shop.own") == "one of the shop"
    (tmp_path / "shop/own.py").write_text(f"{WIDGET}WIDGETS.register('shop.own')('another one, of that name')\n")
    del sys.modules["shop.own"]
    forget_modules()
    assert widgets.get("shop.own") == "another one, of that name"
    assert widgets.names() == ["plain"]


MISTAKES = [
    ("plian", "unknown widget 'plian'; did you mean 'plain'? allowed: plain"),
    ("claim", "unknown widget 'claim'; allowed: plain; a module of yours is named with a dot, such as my_lab.claim"),
    ("pl", "unknown widget 'pl'; did you mean 'plain'? allowed: plain"),
    (
        "shop.none",
        "unknown widget 'shop.none'; the module cannot be imported: ModuleNotFoundError: No module named 'shop.none'; "
        "allowed: plain",
    ),
    ("shop.other", "unknown widget 'shop.other'; the module registers nothing under this name; allowed: plain"),
    (
        "shop.broken",
        "unknown widget 'shop.broken'; the module cannot be imported: ValueError: two lines; allowed: plain",
    ),
    ("shop.leaving", "unknown widget 'shop.leaving'; the module cannot be imported: SystemExit: 3; allowed: plain"),
    (
        ".own",
        "unknown widget '.own'; the module cannot be imported: TypeError: the 'package' argument is required to "
        "perform a relative import for '.own'; allowed: plain",
    ),
]


@pytest.mark.parametrize(("name", "message"), MISTAKES, ids=[name for name, _ in MISTAKES])
def test_what_is_not_registered_is_refused_in_one_line(widgets: Registry[str], name: str, message: str) -> None:
    with pytest.raises(UnknownName) as caught:
        widgets.get(name)
    assert str(caught.value) == message


def _definition(module: str, qualname: str = "Kind") -> type:
    return type("Kind", (), {"__module__": module, "__qualname__": qualname})


def _imported(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)


AGAIN = [
    ("reloaded", "mine.kind", "mine.kind", "Kind", "second"),
    ("a copy for a rank", "mine.kind", "mine.kind__rank0", "Kind", "first"),
    ("another of its module", "mine.kind", "mine.kind", "Other", None),
    ("another module's", "mine.kind", "mine.other", "Kind", None),
    ("another module's, without a dot", "kind", "mine.other", "Kind", None),
]
"""What, name, module and name in it of the second definition, and which is kept; None where the second is refused."""


@pytest.mark.parametrize(("_what", "name", "module", "qualname", "kept"), AGAIN, ids=[row[0] for row in AGAIN])
def test_a_name_is_one_definition(
    _what: str, name: str, module: str, qualname: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each, file in (("mine.kind", "kind.py"), ("mine.kind__rank0", "kind.py"), ("mine.other", "other.py")):
        _imported(each, file, monkeypatch)
    widgets: Registry[type] = Registry("widget")
    things = {"first": _definition("mine.kind"), "second": _definition(module, qualname)}
    widgets.register(name)(things["first"])
    if kept is None:
        with pytest.raises(ValueError, match=f"widget '{name}' is defined twice"):
            widgets.register(name)(things["second"])
    else:
        widgets.register(name)(things["second"])
    assert widgets.get(name) is things[kept or "first"]


@pytest.mark.parametrize("registry", [Registry("widget", objects_of=Path), Registry("widget", classes_of=Path)])
def test_a_definition_is_of_its_sort(registry: Registry[object]) -> None:
    """A class is no object of it, nor the other way round."""
    fits = {Path(): registry._objects_of, Path: registry._classes_of, int: None, 7: None}
    for thing, base in fits.items():
        if base is Path:
            registry.register("mine")(thing)
        else:
            with pytest.raises(TypeError, match=r"widget 'other' is .*; must be an? (object|subclass) of Path"):
                registry.register("other")(thing)
    assert registry.names() == ["mine"]


def test_a_name_of_the_package_is_one_definition(widgets: Registry[str]) -> None:
    widgets.names()
    with pytest.raises(ValueError, match="widget 'plain' is defined twice"):
        widgets.register("plain")("a second")


def test_a_definition_goes_with_its_module_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user's module, without a dot; and one of a built-in class under a user's name."""
    widgets: Registry[object] = Registry("widget")
    for name in ("mine.kind", "mine.other"):
        _imported(name, "kind.py", monkeypatch)
    widgets.register("short")(_definition("mine.kind"))
    widgets.register("wrapped", _definition("mine.kind"))(7)
    widgets.register("mine.other")(Path())
    widgets.register("kept")(Path())
    forget_modules()
    assert (widgets.names(), widgets.get("mine.other")) == (["kept", "short", "wrapped"], Path())
    for name in ("mine.kind", "mine.other"):
        monkeypatch.delitem(sys.modules, name)
    forget_modules()
    assert (widgets.names(), widgets.loaded("mine.other")) == (["kept"], None)


def test_definitions_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two types of one name are two; each is forgotten with its module, and a second run may define it again."""
    engines: TypeRegistry[str] = TypeRegistry("command")
    one, other = _definition("mine.kind"), _definition("mine.other")
    for name in ("mine.kind", "mine.other"):
        _imported(name, f"{name}.py", monkeypatch)
    engines.register(one)("one")
    engines.register(other)("other")
    assert (engines.get(one), engines.get(other), engines.names()) == ("one", "other", ["Kind"])
    with pytest.raises(ValueError, match="command 'Kind' is defined twice"):
        engines.register(one)("a second")
    monkeypatch.delitem(sys.modules, "mine.kind")
    forget_modules()
    assert engines.get(other) == "other"
    with pytest.raises(UnknownName, match="unknown command 'Kind'"):
        engines.get(one)


def test_modules_that_ranks_share(widgets: Registry[str], tmp_path: Path) -> None:
    """Those with definitions, those that a registry has imported, with what they import, and the packages of all."""
    for name in ("shop/helper.py", "tools/__init__.py", "tools/saw.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    uses = f"import shop.helper, tools.saw\n{WIDGET}WIDGETS.register('shop.own')('one')\n"
    (tmp_path / "shop/own.py").write_text(uses)
    importlib.import_module("tools")
    assert not is_definer("tools")
    widgets.get("shop.own")
    importlib.import_module("shop.later")
    names = ("shop", "shop.own", "shop.helper", "tools", "tools.saw", "shop.later")
    assert [name for name in names if not is_definer(name)] == ["shop.later"]
    del sys.modules["shop.own"]
    forget_modules()
    assert (is_definer("shop.own"), is_definer("shop.helper")) == (False, True)


@pytest.mark.parametrize(
    "registry",
    [BENCHES, CHIPS, COLLECTIVES, LAUNCHERS, LINK_KINDS, MEMORY_KINDS, PARTS, TABLES, TOPOLOGIES],
    ids=lambda each: each._what,
)
def test_a_built_in_registry_names_what_its_modules_define(registry: Registry[Any]) -> None:
    """A definition that it does not name would not be found."""
    modules = registry._modules
    for name in registry.names():
        registry.get(name)
    defined = {name: entry.module for name, entry in registry._entries.items() if entry.owner in {*modules.values()}}
    assert defined == modules
