"""Sources: writes the expressions of a formula as source text in which only names of the writer's own stand.

Owner: none (functions without state). Identifiers and small numbers become text, other constants are bound objects. The
text is read again and compared, so it means what the formula means.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from yarrow.container.codegen.inlining.formulas import NotInlined

#: Binds a constant; gives the name of its variable.
Bind = Callable[[Any], str]


def source_of(expression: ast.expr, names: Mapping[str, ast.expr], bind: Bind) -> str:
    """The text of an expression whose names stand for other expressions.

    Raises NotInlined if Python writes it as something else.
    """
    try:
        tree = ast.fix_missing_locations(_Renaming(names, bind).visit(expression))
        text = ast.unparse(tree)
        # An f-string in an f-string may need quotes that old versions of Python do not have.
        again = ast.parse(text, mode="eval").body
    except (ValueError, SyntaxError, RecursionError) as error:
        raise NotInlined("it has no source of one line") from error
    if "\n" in text or ast.dump(again) != ast.dump(tree):
        raise NotInlined("its source would be another one")
    return text


class _Renaming(ast.NodeTransformer):
    """Copies a tree: names become what they stand for, and constants literals or bound objects."""

    def __init__(self, names: Mapping[str, ast.expr], bind: Bind) -> None:
        self._names = names
        self._bind = bind

    def generic_visit(self, node: ast.AST) -> ast.AST:
        fields: dict[str, Any] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                fields[name] = self.visit(value)
            elif isinstance(value, list):
                fields[name] = [self.visit(item) if isinstance(item, ast.AST) else item for item in value]
            else:
                fields[name] = value
        return type(node)(**fields)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._names.get(node.id, node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        if value is None or type(value) is bool:
            return ast.Constant(value=value)
        if type(value) is int and abs(value) < 1 << 63:
            number = ast.Constant(value=abs(value))
            return number if value >= 0 else ast.UnaryOp(op=ast.USub(), operand=number)
        return ast.Name(id=self._bind(value), ctx=ast.Load())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts = [
            self.visit(part)
            if isinstance(part, ast.FormattedValue)
            # A text formats as itself, and the loop then holds no text of the user's.
            else ast.FormattedValue(value=self.visit(part), conversion=-1)
            for part in node.values
        ]
        return ast.JoinedStr(values=parts)
