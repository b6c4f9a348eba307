"""The rules of the source tree, read from the sources: docstrings, pins, sleeps, clocks, chance, names, references.

Every rule is a function from the root of the tree to the violations in it. What else is wrong in a file, ruff, mypy and
import-linter say. ``tests/mutants.toml`` has a violation of each.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

LAYERS = ("launcher", "sipsim", "broker")
OTHER_FOLDERS = ("ahbm_sim", "configs", "docs", "scripts", "tests")

SLEEPS = {"time.sleep", "asyncio.sleep"}
# Saving and restoring a user's generator (getstate, setstate) draws nothing from it.
WALL_CLOCKS = re.compile(
    r"time\.(time|time_ns|localtime|gmtime|ctime|asctime|strftime)|datetime\.(datetime|date)\.(now|utcnow|today)"
    r"|uuid\.uuid[14]|os\.urandom|random\.(?!(Random|getstate|setstate)$)\w+"
    r"|numpy\.random\.(?!(default_rng|Generator|PCG64|SeedSequence|RandomState|get_state|set_state)$)\w+"
)
JUMPING_CLOCKS = re.compile(
    r"time\.(time|time_ns|localtime|gmtime|CLOCK_REALTIME)|datetime\.(datetime|date)\.(now|utcnow|today)"
)
SEEDED = {"random.Random"} | {
    f"numpy.random.{name}" for name in ("default_rng", "PCG64", "RandomState", "SeedSequence")
}
"""Generators that take a seed; without an argument they are seeded by the machine."""
HOST_CLOCKS = re.compile(r"time\.(perf_counter|monotonic|process_time|thread_time)(_ns)?")
# sockets: deadlines of answers. inject: slowing a process down. packet_log: when to write.
MAY_READ_HOST_CLOCK = re.compile(
    r"(.*/)?(process|client|sip_node|sockets|inject|faults|packet_log)\.py"
    r"|sipsim/records/report\.py|broker/mail/.*|sipsim/(node|chips/ahbm/host|chips/api)/.*|launcher/.*"
)
ITEM = r"[DFIT]\d+(?:\.\d+)?"
ITEMS = rf"{ITEM}(?:(?:,? |,? and | or | to ){ITEM})*"
RECORD = re.compile(rf"(?:({ITEMS}) of )?\bADR[- ]?(\d+)(?: \(?({ITEMS}))?\b")
"""A reference to a decision record: its items, before or after its number. Lines are joined before."""
HAS_ITEM = re.compile(rf"^(?:#+ |\* \*\*)({ITEM})\b", re.MULTILINE)

Rule = Callable[[Path], list[str]]


# --- reading --------------------------------------------------------------------------------------------------


def sources(root: Path, *folders: str) -> Iterator[tuple[str, ast.Module, str]]:
    """Each Python file below ``folders``: its path from ``root``, its tree and its text."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(root).as_posix(), ast.parse(text, str(path)), text


def names_used(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Each name or attribute of an imported thing, with its full dotted name."""
    full: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                full[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full.update((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in full:
                yield node, f"{full[first]}.{rest}" if rest else full[first]


# --- the rules ------------------------------------------------------------------------------------------------


def public_things_have_docstrings(root: Path) -> list[str]:
    """Every module, and every class and function at its top whose name has no leading underscore."""
    found = []
    for where, tree, _ in sources(root, *LAYERS):
        if not ast.get_docstring(tree):
            found.append(f"{where} has no docstring")
        for node in ast.iter_child_nodes(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if not node.name.startswith("_") and not ast.get_docstring(node):
                found.append(f"{where}:{node.lineno} {node.name} has no docstring")
    return found


NO_NOUN_FIRST = re.compile(r"(Of|That|Those|By|What|Who|Which|Where|Not|As|The same)\b")
PRIVATE_WORDS = re.compile(r"\b(told|tells?|heeds?|muster\w*)\b", re.IGNORECASE)


def sentences_have_a_noun_and_the_fields_words(root: Path) -> list[str]:
    """Docstrings of product code say first what a thing is; no text of it has a word that the field does not use."""
    found = []
    for where, tree, _ in sources(root, *LAYERS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = NO_NOUN_FIRST.match(ast.get_docstring(node) or "")
                if first:
                    name = getattr(node, "name", "the module")
                    found.append(f"{where}: the docstring of {name} begins with {first[0]}")
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = sorted({word.lower() for word in PRIVATE_WORDS.findall(node.value)})
                found += [f"{where}:{node.lineno} has the word {word!r}" for word in words]
    return found


def version_is_the_same(root: Path) -> list[str]:
    """``sipsim.VERSION`` is the version in pyproject.toml."""
    wanted = _project(root)["version"]
    values = [
        ast.literal_eval(node.value)
        for node in ast.parse((root / "sipsim/__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERSION"
    ]
    return [] if values == [wanted] else [f"sipsim.VERSION is {values}, pyproject.toml has {wanted}"]


def pins_match_the_project(root: Path) -> list[str]:
    """constraints-oldest.txt holds the lower bounds, constraints.txt one plain pin for each requirement."""
    project, pins = _project(root), _pins(root, "constraints.txt")
    bounds = {_key(line.replace(">=", "==")) for line in project["dependencies"]}
    differ = bounds ^ set(_pins(root, "constraints-oldest.txt"))
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    wanted += _pyproject(root)["build-system"]["requires"]
    lacks = {_key(line).split(">=")[0] for line in wanted} - {pin.split("==")[0] for pin in pins}
    return [
        *(f"constraints-oldest.txt: {pin} is only there or only in pyproject.toml" for pin in sorted(differ)),
        *(f"constraints.txt: {pin!r} is no plain pin" for pin in pins if not re.fullmatch(r"[\w-]+==[\w.]+", pin)),
        *(f"constraints.txt lacks {name}" for name in sorted(lacks)),
    ]


def _pyproject(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def _project(root: Path) -> dict:
    return _pyproject(root)["project"]


def _key(requirement: str) -> str:
    name, *rest = re.split(r"([=<>~!])", requirement.replace(" ", ""), maxsplit=1)
    return re.sub(r"[-_.]+", "-", name).lower() + "".join(rest)


def _pins(root: Path, name: str) -> list[str]:
    lines = (line.strip() for line in (root / name).read_text(encoding="utf-8").splitlines())
    return [_key(line) for line in lines if line and not line.startswith("#")]


def no_test_sleeps(root: Path) -> list[str]:
    """No test waits for time to pass."""
    return [
        f"{where}:{node.lineno} uses {name}"
        for where, tree, _ in sources(root, "tests")
        for node, name in names_used(tree)
        if name in SLEEPS
    ]


def nothing_depends_on_clock_or_chance(root: Path) -> list[str]:
    """sipsim and broker use no wall time and no unseeded generator; a host's clock only where they wait."""
    found = []
    for where, tree, _ in sources(root, "sipsim", "broker"):
        bare = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.args}
        for node, name in names_used(tree):
            if (
                WALL_CLOCKS.fullmatch(name)
                or (name in SEEDED and id(node) in bare)
                or (HOST_CLOCKS.fullmatch(name) and not MAY_READ_HOST_CLOCK.fullmatch(where))
            ):
                found.append(f"{where}:{node.lineno} uses {name}")
        found += [f"{where}:{line} uses hash()" for line in _hash_calls(tree)]
    return found


def no_deadline_is_of_wall_time(root: Path) -> list[str]:
    """The launcher's deadlines use a monotonic clock, so that a jump of the wall clock ends no run."""
    return [
        f"{where}:{node.lineno} uses {name}"
        for where, tree, _ in sources(root, *LAYERS)
        for node, name in names_used(tree)
        if JUMPING_CLOCKS.fullmatch(name)
    ]


def _hash_calls(tree: ast.AST) -> Iterator[int]:
    """Calls of the built-in, whose value for text differs between runs; ``__hash__`` may use it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__":
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
            yield node.lineno
        yield from _hash_calls(node)


def architecture_names_what_exists(root: Path) -> list[str]:
    """Each path of a package file that ARCHITECTURE.md names exists."""
    page = root / "ARCHITECTURE.md"
    if not page.is_file():
        return ["ARCHITECTURE.md is missing"]
    named = set(re.findall(rf"(?<![\w/.])(?:{'|'.join(LAYERS)})/[\w/]+\.py\b", page.read_text(encoding="utf-8")))
    there = {where for where, _, _ in sources(root, *LAYERS)}
    return [f"ARCHITECTURE.md names {path}, which does not exist" for path in sorted(named - there)]


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    """Each file of the tree, with its lines joined by a space, without their indentation and their comment sign."""
    paths = [path for folder in (*LAYERS, *OTHER_FOLDERS) for path in (root / folder).rglob("*")]
    for path in sorted([*paths, *root.glob("*.*")]):
        if path.is_file() and path.suffix != ".pyc":
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            yield path.relative_to(root).as_posix(), " ".join(line.strip(" #") for line in lines)


def references_lead_to_a_page(root: Path) -> list[str]:
    """Each decision record that is named has a page in docs/decisions, with a heading or a bold item for each item."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs/decisions").glob("adr-*.md")}
    items = {name: set(HAS_ITEM.findall(text)) for name, text in pages.items()}
    found = set()
    for where, text in _texts(root):
        for before, number, after in RECORD.findall(text):
            page = f"adr-{number}"
            if page not in pages:
                found.add(f"{where} names ADR-{number}, and docs/decisions/{page}.md does not exist")
                continue
            missing = set(re.findall(ITEM, f"{before} {after}")) - items[page]
            found |= {f"{where} names {item} of ADR-{number}, which {page}.md does not have" for item in missing}
    return sorted(found)


def no_document_is_named_that_is_not_here(root: Path) -> list[str]:
    """No file refers to the design document, which is no part of the repository."""
    return [f"{where} names DESIG{'N'}" for where, text in _texts(root) if re.search(r"\bDESIG[N]\b", text)]


def named(rule: object) -> str:
    return getattr(rule, "__name__", "")


RULES = (
    public_things_have_docstrings,
    sentences_have_a_noun_and_the_fields_words,
    version_is_the_same,
    pins_match_the_project,
    no_test_sleeps,
    nothing_depends_on_clock_or_chance,
    no_deadline_is_of_wall_time,
    architecture_names_what_exists,
    references_lead_to_a_page,
    no_document_is_named_that_is_not_here,
)


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_this_checkout_keeps(rule: Rule):
    if found := rule(ROOT):
        pytest.fail("\n".join(found), pytrace=False)
