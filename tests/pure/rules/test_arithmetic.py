"""``sipsim.core.arithmetic`` calls no function of NumPy whose last bits depend on the processor."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "sipsim/core/arithmetic"
EXACT = {
    *("ndarray", "float32", "float64", "int32", "int64", "uint32", "inf", "nan", "iinfo", "errstate"),
    *("asarray", "ascontiguousarray", "concatenate", "empty_like", "full_like", "moveaxis", "where", "zeros"),
    *(
        "absolute",
        "add",
        "subtract",
        "multiply",
        "divide",
        "negative",
        "sqrt",
        "rint",
        "trunc",
        "ldexp",
        "frexp",
        "nextafter",
    ),
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "array_equal", "isnan", "isfinite"),
    *("clip", "nan_to_num", "signbit", "any"),
}
"""IEEE 754 says what each gives, but for a NaN's sign and payload, and it adds up nothing. ``sqrt`` is rounded
correctly on every machine; ``ldexp`` and ``frexp`` only move a number's exponent."""
CLAMPS = {"elementary.py": {"maximum", "minimum"}}
"""Of +0 and -0 they give either, by processor; there, they clamp to numbers that are not 0."""
PROVEN = {"matmul.py": {"matmul_widened", "_integers"}}
"""Where a product of BLAS, or of integers that wrap, stands behind a bound."""


NEVER = {"sum", "mean", "dot", "prod", "cumsum", "reduce", "accumulate", "std", "var", "einsum"}
"""Methods that add up in an order of their own."""


def unsafe(module: ast.Module, allowed: set[str]) -> list[str]:
    """What a module does that is not known to be safe."""
    return [
        ast.unparse(node)
        for node in ast.walk(module)
        if (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np" and node.attr not in allowed)
        or (isinstance(node, ast.Attribute) and node.attr in NEVER)
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.MatMult) and not _is_number(node))
    ]


def _is_number(node: ast.BinOp) -> bool:
    return isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)


def without(module: ast.Module, functions: set[str]) -> ast.Module:
    """The module without some of its functions."""
    module.body = [each for each in module.body if not isinstance(each, ast.FunctionDef) or each.name not in functions]
    return module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_what_every_machine_rounds_alike(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    allowed = EXACT | CLAMPS.get(path.name, set())
    assert unsafe(without(module, PROVEN.get(path.name, set())), allowed) == []


@pytest.mark.parametrize(
    "text",
    ["np.exp(x)", "np.sum(x)", "x.sum()", "a @ b", "x**0.5", "np.add.reduce(x)", "np.dot(a, b)", "np.maximum(a, b)"],
)
def test_what_is_not_safe_is_found(text: str) -> None:
    assert unsafe(ast.parse(f"def f(a, b, x):\n    return {text}"), EXACT) != []
