"""Naming: generates code that gives the Rows of an emitted value the names of the declared type.

Owner: the task thread while it compiles a chain, then the code. For a type without Rows no code is written.
For a plain Row type the test is inlined, because nearly all rows already have their names.
"""

from __future__ import annotations

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.types import Row, bear_names
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.runtime.data.row_names import borne_names, named_row, namer_for


def generate_named(
    code: CodeWriter, value: str, declared: TypeInformation | None, *, has_names: bool = False
) -> str:
    """Generates a variable with the value and named Rows; returns `value` itself if the type has no Rows.

    `has_names`: the value is a Row with names of its own, so that only Rows inside it may lack names.
    """
    name = namer_for(declared)
    if name is None:
        return value
    named = code.fresh("w")
    if not isinstance(declared, RowTypeInfo) or any(map(namer_for, declared.get_field_types())):
        code.line(f"{named} = {code.bind('name', name)}({value})")
        return named
    if has_names:
        return value
    names = borne_names(declared)
    row, expected = code.bind_as("Row", Row), code.bind("names", names)
    code.line(f"{named} = {value}")
    nameless = f"{value}._fields is None"
    if declared.is_named:
        nameless = f"type({value}._fields) is not tuple"
    with code.block(f"if type({value}) is {row} and {nameless} and len({value}._values) == {len(names)}:"):
        if declared.is_named:
            code.line(f"{named} = {code.bind_as('named_row', named_row)}({value}, {expected})")
        else:
            code.line(f"{code.bind_as('bear_names', bear_names)}({value}, {expected})")
    return named
