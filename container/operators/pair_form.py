"""PairForm: rows of two fields, one of which is their key, wait as the other field alone.

Owner: the task thread; a snapshot thread reads what it has kept. A row that waits is an object of its own: collections
walk it, and no cache has it when it leaves. Its other field often is an object that is there anyhow. So operators that
keep rows by key take the row apart, and make an equal one when it leaves. Must not know how rows are kept.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from yarrow.common.composite_types import TupleTypeInfo
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.inlining.formulas import NotInlined
from yarrow.container.codegen.inlining.functions import inlined
from yarrow.container.operators.rows_by_key import RowOrder, key_list, rows_in_order
from yarrow.container.state.pacing import Pacing
from yarrow.runtime.data.serializers.nested import FieldColumn, TupleColumns
from yarrow.runtime.snapshot.key_columns import Numbers

#: Declared types of keys that a snapshot writes alike as Python objects and as numbers.
_KEY_TYPES: Final = (Types.LONG(), Types.INT(), Types.STRING())


class WholeRow:
    """A row that waits as it is, since it is no pair with its key."""

    __slots__ = ("row",)

    def __init__(self, row: Any) -> None:
        self.row = row


class PairForm:
    """The form in which the rows of one input wait."""

    def __init__(self, key_at: int) -> None:
        """`key_at`: the field that is the key, 0 or 1."""
        self._key_at = key_at
        self._has_whole = False

    def whole(self, row: Any) -> WholeRow:
        """The kept form of a row that is no pair with its key."""
        # Before the row is kept: whoever finds it has to look for whole ones.
        self._has_whole = True
        return WholeRow(row)

    def kept(self, key: Any, row: Any) -> Any:
        """The kept form of a row; `key` is its canonical key."""
        if row.__class__ is tuple and len(row) == 2:
            field = row[self._key_at]
            if (field.__class__ is int or field.__class__ is str) and field == key:
                return row[1 - self._key_at]
        return self.whole(row)

    def in_order(
        self, keys: Numbers | list[Any], kept: Sequence[Any], order: RowOrder, pacing: Pacing
    ) -> FieldColumn:
        """The rows of kept forms in an order (intp, shape (rows,)): dtype object, or as the columns of both fields.

        `keys`: the canonical keys; int64, shape (rows,), if all are ints of 64 bits. Snapshot thread.
        """
        if self._has_whole:
            return rows_in_order(self.rows(key_list(keys), kept), order, pacing)
        of_keys = keys[order] if isinstance(keys, np.ndarray) else rows_in_order(keys, order, pacing)
        others = rows_in_order(kept, order, pacing)
        return TupleColumns(of_keys, others) if self._key_at == 0 else TupleColumns(others, of_keys)

    def rows(self, keys: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """The rows of kept forms, with the canonical keys of these."""
        pairs = zip(keys, kept, strict=True) if self._key_at == 0 else zip(kept, keys, strict=True)
        rows: list[Any] = list(pairs)
        if self._has_whole:
            for at, each in enumerate(kept):
                if each.__class__ is WholeRow:
                    rows[at] = each.row
        return rows

    def generate_kept(self, code: CodeWriter, canonical: str, row: str, *, with_other_key: bool) -> str:
        """Generates code for the kept form of a row with a canonical key; returns its variable.

        A row is a pair with its key only if it has that object. Then the row that is made of both equals it in all.
        `with_other_key`: the row may be made of a key that is only equal. Equal ints and texts do not differ.
        """
        field, kept, whole = code.fresh("field"), code.fresh("kept"), code.bind("whole", self.whole)
        fields = (field, kept) if self._key_at == 0 else (kept, field)
        is_other = f"{field} is not {canonical}"
        if with_other_key:
            is_other += f" or not ({canonical}.__class__ is int or {canonical}.__class__ is str)"
        with code.block("try:"):
            # To take two fields apart costs less than to ask how many there are.
            code.line(f"{', '.join(fields)} = {row} if {row}.__class__ is tuple else ()")
            with code.block(f"if {is_other}:"):
                code.line(f"{kept} = {whole}({row})")
        with code.block("except ValueError:"):
            code.line(f"{kept} = {whole}({row})")
        return kept

    def generate_row(self, code: CodeWriter, key: str, kept: str) -> None:
        """Generates code that replaces a kept form in a variable by its row, whose canonical key is `key`."""
        pair = f"({key}, {kept})" if self._key_at == 0 else f"({kept}, {key})"
        whole = code.bind_as("WholeRow", WholeRow)
        code.line(f"{kept} = {pair} if {kept}.__class__ is not {whole} else {kept}.row")


def waiting_in_order(
    form: PairForm | None, keys: Numbers | list[Any], kept: Sequence[Any], order: RowOrder, pacing: Pacing
) -> FieldColumn:
    """As PairForm.in_order, also of rows that wait as they are. keys: int64, order: intp, shape (rows,) both."""
    return rows_in_order(kept, order, pacing) if form is None else form.in_order(keys, kept, order, pacing)


def pair_form(row_type: TypeInformation | None, selector: Callable[[Any], Any]) -> PairForm | None:
    """The form of rows of a declared type whose keys a selector gives; None = such rows wait as they are."""
    if type(row_type) is not TupleTypeInfo or len(types := row_type.get_field_types()) != 2:
        return None
    field = _field_read(selector)
    return PairForm(field) if field in (0, 1) and types[field] in _KEY_TYPES else None


def _field_read(selector: Callable[[Any], Any]) -> Any:
    """The field that is all that a selector reads; None = it does something else, or nobody knows."""
    if isinstance(selector, itemgetter):
        # Most programs have no such function.
        from yarrow.container.codegen.failed_lines import fields_of

        fields = fields_of(selector)
        return fields[0] if len(fields) == 1 else None
    try:
        formula = inlined(selector, 1).formula
    except NotInlined:
        return None
    result = formula.result
    if formula.assignments or not isinstance(result, ast.Subscript):
        return None
    place = result.slice
    is_parameter = isinstance(result.value, ast.Name) and result.value.id == formula.parameters[-1]
    return place.value if is_parameter and isinstance(place, ast.Constant) else None
