"""Arithmetic for a planner that must not guess: numbers, + - * / // % **, brackets, a few
functions.

This file owns the little language; what is not in it is refused without being evaluated.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs, "max": max, "min": min, "round": round, "sqrt": math.sqrt, "sum": lambda *a: sum(a),
}  # fmt: skip
_LONGEST = 500
_LARGEST = 1e100


def calculate(expression: str) -> str:
    """The value as text. Raises ValueError for whatever is no arithmetic."""
    if len(expression) > _LONGEST:
        raise ValueError("too long")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _value(tree.body)
    except (SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError("not arithmetic") from error
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise ValueError("too large")
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _bounded(float(left) ** float(right))
        if type(node.op) in _BINARY:
            return _bounded(_BINARY[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function:
            arguments = [_value(argument) for argument in node.args]
            try:
                return _bounded(function(*arguments))
            except ValueError as error:  # a root of what has none
                raise ValueError("not arithmetic") from error
    raise ValueError("not arithmetic")


def _bounded(value: float) -> float:
    # A power may be complex, which compares with nothing: TypeError, which is "not arithmetic".
    if not abs(value) <= _LARGEST or isinstance(value, complex):
        raise ValueError("too large")
    return value
