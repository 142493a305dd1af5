"""Freezing: generates code that fixes a value when it is emitted: immutable values pass, others are copied once.

Owner: the task thread while it compiles a chain, then the code. If the declared type proves immutability, or
object reuse is on, no code is written.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.ownership import COUNTS_REFERENCES, learn_only_atoms, only_atoms_of
from yarrow.runtime.data.immutability import ATOMIC_TYPES, freeze_or_copy, whole_copier_of

#: Lengths of tuples with unrolled tests of elements; other tuples are tested in a loop.
_UNROLLED: Final = (2, 3)
_LONGEST: Final = max(_UNROLLED)
#: References to an object while two variables of generated code hold it, and a call that counts them.
_SOLE_REFERENCES: Final = 3


def needs_fixing(declared: TypeInformation | None, object_reuse: bool) -> bool:
    """Whether a value of that type could change after it was emitted."""
    return not object_reuse and (declared is None or not declared.is_immutable)


class TupleForm:
    """The form of the tuples at one place of the code; a guess that only shortens the test."""

    _MOST_CHANGES: Final = 4
    #: The length is unknown; 0 stands for any.
    _UNKNOWN: Final = -1

    def __init__(self) -> None:
        #: Length, then the types of immutable elements; read once a call of the generated function.
        self.expected: tuple[Any, ...] = (self._UNKNOWN, *[None] * _LONGEST)
        self._changes = 0

    def fix(self, value: tuple[Any, ...]) -> Any:
        """Fixes a tuple of an unexpected form, and expects this form for the next ones, a few times."""
        if len(value) != self.expected[0] != 0:
            self._changes += 1
            settled = len(value) in _UNROLLED and self._changes <= self._MOST_CHANGES
            # A type that never matches: the element is then looked up among all immutable types.
            kinds = [type(item) if type(item) in ATOMIC_TYPES else type(None) for item in value[:_LONGEST]]
            self.expected = (
                len(value) if settled else 0,
                *kinds,
                *[None] * (_LONGEST - len(kinds)),
            )
        return freeze_or_copy(value)


def generate_fixed(
    code: CodeWriter,
    value: str,
    declared: TypeInformation | None,
    object_reuse: bool,
    *,
    gives_away: bool = False,
) -> str:
    """Generates a variable with the fixed form of `value`; the check of atoms and tuples of atoms is inlined.

    `gives_away` says that no user function gets the variable `value` afterwards. Then an object that only this
    variable holds is not copied if it consists of atoms.
    """
    if not needs_fixing(declared, object_reuse):
        return value
    atoms = code.bind_as("ATOMS", ATOMIC_TYPES)
    freeze = code.bind_as("freeze", freeze_or_copy)
    whole = code.bind_as("whole_copier_of", whole_copier_of)
    fixed, kind = code.fresh("f"), code.fresh("c")
    code.line(f"{fixed} = {value}")
    with code.block(f"if type({value}) is tuple:"):
        _generate_fixed_tuple(code, fixed, atoms, freeze)
    changes = f"({kind} := type({value})) not in {atoms}"
    if gives_away and COUNTS_REFERENCES and value.isidentifier():
        # `value`, the variable with the fixed form and the argument of the count are three references.
        count = code.bind_as("refcount", sys.getrefcount)
        known = code.bind_as("only_atoms_of", only_atoms_of)
        learn = code.bind_as("learn_only_atoms", learn_only_atoms)
        changes += (
            f" and ({count}({value}) != {_SOLE_REFERENCES} or not ({known}({kind}) or {learn})({value}))"
        )
    with code.block(f"elif {changes}:"):
        code.line(f"{fixed} = ({whole}({kind}) or {freeze})({value})")
    return fixed


def _generate_fixed_tuple(code: CodeWriter, fixed: str, atoms: str, freeze: str) -> None:
    form = TupleForm()
    fix = code.bind("fix", form.fix)
    kinds = [code.fresh("t") for _ in range(_LONGEST)]
    length = code.fresh("n")
    code.at_start(f"{length}, {', '.join(kinds)} = {code.bind('form', form)}.expected")
    items = [code.fresh("e") for _ in range(_LONGEST)]
    for position, count in enumerate(_UNROLLED):
        with code.block(f"{'elif' if position else 'if'} {length} == {count}:"):
            with code.block("try:"):
                code.line(f"{', '.join(items[:count])} = {fixed}")
            with code.block("except ValueError:"):
                code.line(f"{fixed} = {fix}({fixed})")
            tests = [
                f"type({item}) is not {kind} and type({item}) not in {atoms}"
                for item, kind in zip(items[:count], kinds[:count], strict=True)
            ]
            with code.block("else:"), code.block(f"if {' or '.join(tests)}:"):
                code.line(f"{fixed} = {freeze}({fixed})")
    with code.block(f"elif {length}:"):
        code.line(f"{fixed} = {fix}({fixed})")
    with (
        code.block("else:"),
        code.block(f"for {items[0]} in {fixed}:"),
        code.block(f"if type({items[0]}) not in {atoms}:"),
    ):
        code.line(f"{fixed} = {freeze}({fixed})")
        code.line("break")
