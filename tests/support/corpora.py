"""Planners' answers that were written down, each with the verdict that it must get."""

import ast
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).parents[1] / "corpora"
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}


def cases(name: str) -> list[dict[str, Any]]:
    """All cases of a corpus."""
    return [json.loads(line) for line in (CORPORA / name).read_text().splitlines()]


def built(node: ast.expr) -> Any:
    """The text that a case's expression builds: literals, + * %, and the methods join and replace."""
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](built(node.left), built(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        assert node.func.id == "chr"
        return chr(built(node.args[0]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        assert node.func.attr in {"join", "replace"}
        return getattr(built(node.func.value), node.func.attr)(*(built(argument) for argument in node.args))
    if isinstance(node, ast.List | ast.Tuple):
        items = [built(item) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items
    return ast.literal_eval(node)


def raw_of(case: dict[str, Any]) -> str:
    """The answer that a case is about."""
    if "raw" in case:
        return str(case["raw"])
    return str(built(ast.parse(case["raw_expr"], mode="eval").body))
