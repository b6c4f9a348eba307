"""Registries: dotted names are modules on the import path, and what is said of those that are not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sipsim.registry import Registry, UnknownName, forget_modules

WIDGET = "from built_in import WIDGETS\n"


@pytest.fixture
def widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[str]]:
    """A registry over a package of one definition, ``plain``, and user's modules in ``shop``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "built_in/__init__.py": "from sipsim.registry import Registry\nWIDGETS = Registry('widget', 'built_in')\n",
        "built_in/plain.py": f"{WIDGET}WIDGETS.register('plain')('a plain one')\n",
        "shop/__init__.py": "",
        "shop/own.py": f"{WIDGET}WIDGETS.register('shop.own')('one of the shop')\n",
        "shop/other.py": f"{WIDGET}WIDGETS.register('shop.another')('under another name')\n",
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
        if name.partition(".")[0] in ("built_in", "shop"):
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


def test_only_a_users_module_may_run_twice(widgets: Registry[str]) -> None:
    """Each rank of one process may have a copy of a user's module; a name of the package is one definition."""
    assert widgets.get("shop.own") == "one of the shop"
    widgets.register("shop.own")("of the next rank")
    assert widgets.get("shop.own") == "of the next rank"
    widgets.names()
    with pytest.raises(ValueError, match="widget 'plain' is defined twice"):
        widgets.register("plain")("a second")
