"""Code that fixes a value at the moment it is emitted: immutable values pass, others are copied once.

Owner: the task thread while it compiles a chain. Where the declared type proves immutability, or object reuse is on, no
code is written at all.
"""

from __future__ import annotations

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.task.code_writer import CodeWriter
from yarrow.runtime.data.immutability import ATOMIC_TYPES, freeze_or_copy, whole_copier_of


def needs_fixing(declared: TypeInformation | None, object_reuse: bool) -> bool:
    """Whether a value of that type could change after it was emitted."""
    return not object_reuse and (declared is None or not declared.is_immutable)


def generate_fixed(code: CodeWriter, value: str, declared: TypeInformation | None, object_reuse: bool) -> str:
    """A variable with the fixed form of `value`; the check of atoms and tuples of atoms is inlined."""
    if not needs_fixing(declared, object_reuse):
        return value
    atoms = code.bind_as("ATOMS", ATOMIC_TYPES)
    freeze = code.bind_as("freeze", freeze_or_copy)
    whole = code.bind_as("whole_copier_of", whole_copier_of)
    fixed, item, kind = code.fresh("f"), code.fresh("e"), code.fresh("c")
    code.line(f"{fixed} = {value}")
    code.line(f"{kind} = type({value})")
    with (
        code.block(f"if {kind} is tuple:"),
        code.block(f"for {item} in {fixed}:"),
        code.block(f"if {item}.__class__ not in {atoms}:"),
    ):
        code.line(f"{fixed} = {freeze}({value})")
        code.line("break")
    with code.block(f"elif {kind} not in {atoms}:"):
        code.line(f"{fixed} = ({whole}({kind}) or {freeze})({value})")
    return fixed
