"""Formula: what a small function computes, as a syntax tree: assignments to local variables, then one result.

Owner: none (values). A formula names parameters, local variables, globals and closure variables as its function does.
"""

from __future__ import annotations

import ast
import keyword
from typing import Final, NamedTuple

#: The builtins that an inlined function may use. Each looks at its arguments only, and none looks at its caller.
PURE_BUILTINS: Final = frozenset(
    {
        *("abs", "all", "any", "bool", "bytes", "chr", "dict", "divmod", "enumerate", "float", "frozenset"),
        *("int", "isinstance", "len", "list", "max", "min", "ord", "pow", "range", "repr", "reversed"),
        *("round", "set", "sorted", "str", "sum", "tuple", "zip"),
    }
)
#: The methods that an inlined function may call, whatever has them. They are methods of texts that only read.
PURE_METHODS: Final = frozenset(
    {
        *("capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "isalnum"),
        *("isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric"),
        *("isprintable", "isspace", "istitle", "isupper", "ljust", "lower", "lstrip", "partition"),
        *("removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit"),
        *("rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill"),
    }
)
#: The methods that it may call on a text of its own. Other objects have methods of these names that wait or change.
PURE_METHODS_OF_LITERALS: Final = frozenset({"format", "index", "join"})
#: The only values of constants; the value of a code object is code, which no formula has.
_CONSTANTS: Final = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))


class NotInlined(Exception):
    """The function is called: its text says why."""


class LocalAssignment(NamedTuple):
    """Local variables get a value: one variable, or several that get the elements of the value."""

    targets: tuple[str, ...]
    unpacks: bool
    value: ast.expr


class Formula(NamedTuple):
    """The computation of a small function: its assignments in order, then its result."""

    parameters: tuple[str, ...]
    assignments: tuple[LocalAssignment, ...]
    result: ast.expr
    #: The function is a generator, which yields the result and nothing else.
    is_yielded: bool = False

    @property
    def trees(self) -> list[ast.expr]:
        """All expressions, in the order in which they are computed."""
        return [*(each.value for each in self.assignments), self.result]

    @property
    def names_read(self) -> list[str]:
        """The name of each read, also of parameters and local variables."""
        return [node.id for tree in self.trees for node in ast.walk(tree) if isinstance(node, ast.Name)]

    @property
    def local_names(self) -> frozenset[str]:
        """Parameters and local variables."""
        assigned = (name for each in self.assignments for name in each.targets)
        return frozenset((*self.parameters, *assigned))


def checked_name(name: object) -> str:
    """The name, which may become source. Raises NotInlined if the compiler would not read it as that name."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise NotInlined(f"{name!r} is no name")
    return name


def checked_constant(value: object) -> ast.Constant:
    """A constant in a formula. Raises NotInlined for code and values of unknown types."""
    parts = value if isinstance(value, tuple | frozenset) else (value,)
    for part in parts:
        if isinstance(part, tuple | frozenset):
            checked_constant(part)
        elif type(part) not in _CONSTANTS:
            raise NotInlined(f"it makes a {type(part).__name__}")
    return ast.Constant(value=value)  # type: ignore[arg-type]
