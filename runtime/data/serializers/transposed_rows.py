"""Pickled rows of one plain class, transposed: the class and its attribute names once, then a column an attribute.

Pickle alone writes and reads a reference to the class, a state dict and its keys for every row, which costs more than
the values. Rows that are not all of one plain class with the same attributes, or that hold rows, are not transposed.
A row that is twice in a batch arrives as two equal rows; all else that rows share, they share when they arrive.
Owner: the calling thread; the tables of classes seen only grow by whole entries. No constructor of a row is called.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.plain_classes import (
    compile_lines,
    is_pickled_by_attributes,
    shape_of,
    store_lines,
)

#: The first byte; a pickle begins with another.
TRANSPOSED: Final = b"\x01"
#: Fewer rows are pickled as they are.
_LEAST_ROWS: Final = 8
_MAX_CLASSES: Final = 4096
_new = object.__new__

Columns = Sequence[Sequence[Any]]
Builder = Callable[[Columns], list[Any]]

#: Whether rows of an exact class may be transposed.
_transposable: Final[dict[type, bool]] = {}
_builders: Final[dict[tuple[type, tuple[str, ...]], Builder]] = {}


class _HoldsRowError(Exception):
    """A value inside a row is a row, perhaps of the same batch: only one pickle of all keeps identities."""


class _ColumnPickler(pickle.Pickler):
    """Refuses values of the class of the rows; pickle asks about none of the built-in types."""

    def __init__(self, out: io.BytesIO, row_class: type) -> None:
        super().__init__(out, 5)
        self._row_class = row_class

    def reducer_override(self, value: Any) -> Any:
        if type(value) is self._row_class:
            raise _HoldsRowError
        return NotImplemented


def dump_transposed(rows: list[Any]) -> bytes | None:
    """The encoding of rows, or None where they have to be pickled as they are."""
    if len(rows) < _LEAST_ROWS:
        return None
    cls = type(rows[0])
    if not _is_transposable(cls) or [*map(type, rows)].count(cls) != len(rows):
        return None
    attributes = [row.__dict__ for row in rows]
    names = [*attributes[0]]
    if not names or [*map(list, attributes)].count(names) != len(rows):
        return None
    if not all(type(name) is str for name in names):
        return None
    columns = [*zip(*[fields.values() for fields in attributes], strict=True)]
    out = io.BytesIO()
    out.write(TRANSPOSED)
    try:
        _ColumnPickler(out, cls).dump((cls, names, columns))
    except _HoldsRowError:
        _transposable[cls] = False  # so will the next ones
        return None
    except Exception:  # whatever a value raises: the plain pickle raises it again, and finds the row
        return None
    return out.getvalue()


def _is_transposable(cls: type) -> bool:
    known = _transposable.get(cls)
    if known is None:
        if (
            len(_transposable) >= _MAX_CLASSES
        ):  # a program that makes classes for ever must not fill the memory
            _transposable.clear()
        known = _transposable[cls] = is_pickled_by_attributes(cls)
    return known and cls not in copyreg.dispatch_table


def load_transposed(data: bytes | bytearray | memoryview) -> list[Any]:
    """The rows of an encoding of `dump_transposed`. Raises RowFormatError and what pickle.loads raises."""
    cls, names, columns = pickle.loads(memoryview(data)[len(TRANSPOSED) :])
    if len(names) != len(columns) or len({len(column) for column in columns}) != 1:
        raise RowFormatError("the transposed rows have columns of different lengths: truncated or damaged")
    return builder_of(cls, names)(columns)


def builder_of(cls: type, names: list[str]) -> Builder:
    """Makes rows of a plain class from a column an attribute, which all lie in their __dict__."""
    key = (cls, tuple(names))
    builder = _builders.get(key)
    if builder is None:
        if len(_builders) >= _MAX_CLASSES:
            _builders.clear()
        builder = _builders[key] = _compiled_builder(cls, names)
    return builder


def _compiled_builder(cls: type, names: list[str]) -> Builder:
    shape = shape_of(cls, names)
    if shape is None:

        def build_rows(columns: Columns) -> list[Any]:
            rows: list[Any] = []
            for values in zip(*columns, strict=True):
                made: Any = _new(cls)
                made.__dict__.update(zip(names, values, strict=True))
                rows.append(made)
            return rows

        return build_rows
    fields = [f"f{i}" for i in range(len(names))]
    lines = [
        "rows = []",
        "append = rows.append",
        f"for {''.join(f'{field}, ' for field in fields)}in zip(*columns):",
        "    made = new(cls)",
        *[f"    {line}" for line in store_lines(shape, "made", fields)],
        "    append(made)",
        "return rows",
    ]
    return compile_lines("build_rows(columns)", lines, cls, {"cls": cls, "new": _new})
