"""Column coders of composite types: tuples, Rows, lists and maps are taken apart into columns of their parts.

Owner: the calling thread; coders have no state. They must not know batches, frames or channels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from yarrow.common.types import Row, RowKind, own_names, positional_names, row_of, rows_of
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.columns import (
    NO_NULLS,
    Buffer,
    ColumnCoder,
    Misfit,
    check_value,
    cut,
    pack_counts,
    pack_lengths,
    read_column,
    take,
    unpack_counts,
    unpack_lengths,
    write_column,
    write_column_runs,
)
from yarrow.runtime.data.serializers.texts import TextCoder

Names = tuple[str, ...] | None

_ROW_KINDS: Final = tuple(RowKind)
_TEXT: Final = TextCoder()


class TupleColumns:
    """A list of tuples, none of them None, as one column for each field."""

    __slots__ = ("columns",)

    def __init__(self, *columns: FieldColumn) -> None:
        """`columns`: int64, bool or dtype object, shape (tuples,) each; or the columns of a field that is a tuple."""
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, run: slice) -> TupleColumns:
        return TupleColumns(*(column[run] for column in self.columns))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.tolist())

    def tolist(self) -> list[tuple[Any, ...]]:
        """The list."""
        return list(zip(*(column.tolist() for column in self.columns), strict=True))


#: The values of a field.
FieldColumn = npt.NDArray[Any] | TupleColumns


def _joined_lists(lists: Iterable[TupleColumns]) -> TupleColumns:
    """Lists one behind the other."""
    return TupleColumns(*map(_joined_columns, zip(*(each.columns for each in lists), strict=True)))


def _joined_columns(parts: Sequence[FieldColumn]) -> FieldColumn:
    """Columns of one field, one behind the other; dtype object if only some of them are the columns of tuples."""
    nested = [part for part in parts if isinstance(part, TupleColumns)]
    if len(nested) == len(parts):
        return _joined_lists(nested)
    if not nested:
        arrays: Any = parts
        return np.concatenate(arrays)
    values = chain.from_iterable(part.tolist() for part in parts)
    return np.fromiter(values, dtype=object, count=sum(map(len, parts)))


class TupleCoder(ColumnCoder):
    """Tuples as a column a field; a NamedTuple is written as the tuple it equals."""

    def __init__(self, fields: Sequence[ColumnCoder]) -> None:
        self._fields = tuple(fields)
        self.pickles = any(field.pickles for field in fields)
        self.expected = f"a tuple of {len(self._fields)} fields"

    def pack(self, values: Sequence[Any] | TupleColumns, out: list[bytes]) -> None:
        if isinstance(values, TupleColumns):
            self._pack_fields_of(values, out)
            return
        if set(map(type, values)) != {tuple}:
            for cls in set(map(type, values)):
                if not issubclass(cls, tuple):
                    raise TypeError("not a tuple")
        pack_fields(self._fields, values, out)

    def pack_runs(self, values: Sequence[Any], runs: Sequence[slice], outs: Sequence[list[bytes]]) -> None:
        if not self._fields or set(map(type, values)) != {tuple}:
            super().pack_runs(values, runs, outs)
            return
        for coder, column in zip(self._fields, zip(*values, strict=True), strict=True):
            write_column_runs(coder, column, runs, outs)

    def pack_columns(self, lists: Sequence[TupleColumns], out: list[bytes]) -> None:
        """Appends what `pack` does of all tuples of the lists. Raises one of MISFITS."""
        self._pack_fields_of(_joined_lists(lists), out)

    def _pack_fields_of(self, columns: TupleColumns, out: list[bytes]) -> None:
        for coder, column in zip(self._fields, columns.columns, strict=True):
            # Coders of numbers take their array, and those of tuples take TupleColumns.
            is_list = isinstance(column, np.ndarray) and column.dtype == np.object_
            values: Any = column.tolist() if is_list else column
            write_column(coder, values, out)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        return unpack_fields(self._fields, data, at, count)

    def check(self, value: Any, path: str) -> Misfit | None:
        if not isinstance(value, tuple) or len(value) != len(self._fields):
            return Misfit(path, self.expected, value)
        return check_fields(self._fields, value, [str(i) for i in range(len(self._fields))], path)


def pack_fields(fields: Sequence[ColumnCoder], rows: Sequence[Sequence[Any]], out: list[bytes]) -> None:
    """Appends equally long sequences, transposed. Raises one of MISFITS."""
    if not fields:
        if any(rows):
            raise ValueError("fields without a declared type")
        return
    for coder, column in zip(fields, zip(*rows, strict=True), strict=True):
        write_column(coder, column, out)


def unpack_fields(
    fields: Sequence[ColumnCoder], data: Buffer, at: int, count: int
) -> tuple[list[tuple[Any, ...]], int]:
    """The tuples that pack_fields took apart."""
    if not fields:
        return [()] * count, at
    columns = []
    for coder in fields:
        column, at = read_column(coder, data, at, count)
        columns.append(column)
    return list(zip(*columns, strict=True)), at


def check_fields(
    fields: Sequence[ColumnCoder], values: Sequence[Any], names: Sequence[str], path: str
) -> Misfit | None:
    """The first field that does not fit."""
    for coder, value, name in zip(fields, values, names, strict=True):
        misfit = check_value(coder, value, f"{path}.{name}" if path else name)
        if misfit is not None:
            return misfit
    return None


class RowCoder(ColumnCoder):
    """A coder of Rows as one column for each field, with kinds and names if they differ from the usual.

    Usual are INSERT and the declared names. Rows of a type without names are read with those of their
    positions.
    """

    def __init__(self, names: Sequence[str], named: bool, fields: Sequence[ColumnCoder]) -> None:
        self._fields = tuple(fields)
        self.pickles = any(field.pickles for field in fields)
        self._names = tuple(names)
        #: The names of the Rows that are read, and the names in their identity.
        self._borne = self._names if named else positional_names(len(self._names))
        self._declared: Names = self._names if named else None
        self.expected = f"a Row of {len(self._fields)} fields"
        if named:
            self.expected += f" ({', '.join(names)}) in this order"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        rows: Sequence[Row] = values
        kinds = [row._row_kind for row in rows]
        if kinds.count(RowKind.INSERT) == len(kinds):
            out.append(b"\x00")
        else:
            out.append(b"\x01" + bytes([kind.value for kind in kinds]))
        names = [row._fields for row in rows]
        if names.count(self._borne) == len(names):
            out.append(b"\x00")
        else:
            self._pack_names([each if type(each) is tuple else None for each in names], out)
        pack_fields(self._fields, [row._values for row in rows], out)

    def _pack_names(self, names: list[Names], out: list[bytes]) -> None:
        if self._declared is not None and not set(names) <= {None, self._declared}:
            raise ValueError("other names than the declared ones")
        if names.count(self._declared) == len(names):
            out.append(b"\x00")
            return
        table = list(dict.fromkeys(names))
        index = {entry: i for i, entry in enumerate(table)}
        out.append(b"\x01" + pack_lengths([len(table)]))
        out.append(pack_lengths([index[entry] for entry in names]))
        for entry in table:
            out.append(b"\x00" if entry is None else b"\x01")
            if entry:
                _TEXT.pack(entry, out)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        kinds: Sequence[int] | None = None
        if data[at]:
            kinds = take(data, at + 1, count)
            at += count
        at += 1
        names: list[Names] | None = None
        if data[at]:
            names, at = self._unpack_names(data, at + 1, count)
        else:
            at += 1
        values, at = unpack_fields(self._fields, data, at, count)
        return self._rows(values, kinds, names), at

    def _unpack_names(self, data: Buffer, at: int, count: int) -> tuple[list[Names], int]:
        (size,), at = unpack_lengths(data, at, 1)
        if size > count:
            raise RowFormatError(f"{size} lists of names were announced for {count} Rows")
        indexes = struct.unpack_from(f"<{count}I", data, at)
        at += 4 * count
        # Where names are declared, a Row without names differs from a Row with them, as a key of a map.
        unnamed = self._borne if self._declared is None else None
        table: list[Names] = []
        for _ in range(size):
            present = data[at]
            at += 1
            entry: Sequence[str] = ()
            if present and self._fields:
                entry, at = _TEXT.unpack(data, at, len(self._fields))
            table.append(tuple(entry) if present else unnamed)
        return [table[index] for index in indexes], at

    def _rows(
        self, values: list[tuple[Any, ...]], kinds: Sequence[int] | None, names: list[Names] | None
    ) -> list[Row]:
        if kinds is None and names is None:
            return rows_of(self._borne, map(list, values), len(values))
        borne = repeat(self._borne) if names is None else names
        row_kinds = repeat(RowKind.INSERT) if kinds is None else map(_ROW_KINDS.__getitem__, kinds)
        return list(map(row_of, borne, map(list, values), row_kinds))

    def check(self, value: Any, path: str) -> Misfit | None:
        if not isinstance(value, Row) or len(value) != len(self._fields):
            return Misfit(path, self.expected, value)
        if self._declared is not None and own_names(value) not in (None, self._declared):
            return Misfit(path, self.expected, value)
        return check_fields(self._fields, value._values, self._names, path)


class ListCoder(ColumnCoder):
    """Lists as their lengths and one column of all elements."""

    def __init__(self, element: ColumnCoder, nullable: bool) -> None:
        self._element = element
        self.pickles = element.pickles
        self._nullable = nullable
        self.expected = "a list"

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        kinds = set(map(type, values))
        if kinds == {TupleColumns} and isinstance(self._element, TupleCoder):
            out.append(pack_counts(list(map(len, values))))
            out.extend([NO_NULLS] * self._nullable)
            self._element.pack_columns(values, out)
            return
        if kinds != {list}:
            raise TypeError("not a list")
        out.append(pack_counts(list(map(len, values))))
        pack_elements(self._element, list(chain.from_iterable(values)), out, self._nullable)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        lengths, at = unpack_counts(data, at, count)
        elements, at = unpack_elements(self._element, data, at, sum(lengths), self._nullable)
        return cut(list(elements), lengths), at

    def check(self, value: Any, path: str) -> Misfit | None:
        if type(value) is TupleColumns:
            value = value.tolist()
        if type(value) is not list:
            return Misfit(path, self.expected, value)
        for i, item in enumerate(value):
            misfit = check_value(self._element, item, f"{path}[{i}]", self._nullable)
            if misfit is not None:
                return misfit
        return None


def pack_elements(coder: ColumnCoder, elements: list[Any], out: list[bytes], nullable: bool) -> None:
    """Appends a column of elements; nothing when there is none. Raises one of MISFITS."""
    if not elements:
        return
    if nullable:
        write_column(coder, elements, out)
    else:
        coder.pack(elements, out)


def unpack_elements(
    coder: ColumnCoder, data: Buffer, at: int, count: int, nullable: bool
) -> tuple[Sequence[Any], int]:
    """The inverse of pack_elements."""
    if not count:
        return [], at
    return read_column(coder, data, at, count) if nullable else coder.unpack(data, at, count)


class MapCoder(ColumnCoder):
    """dicts as their lengths, one column of all keys and one of all values; the order of entries is kept."""

    expected = "a dict"

    def __init__(self, key: ColumnCoder, value: ColumnCoder) -> None:
        self._key = key
        self._value = value
        self.pickles = key.pickles or value.pickles

    def pack(self, values: Sequence[Any], out: list[bytes]) -> None:
        if set(map(type, values)) != {dict}:
            raise TypeError("not a dict")
        out.append(pack_counts(list(map(len, values))))
        pack_elements(self._key, list(chain.from_iterable(values)), out, nullable=False)
        pack_elements(self._value, list(chain.from_iterable(map(dict.values, values))), out, nullable=True)

    def unpack(self, data: Buffer, at: int, count: int) -> tuple[Sequence[Any], int]:
        lengths, at = unpack_counts(data, at, count)
        total = sum(lengths)
        keys, at = unpack_elements(self._key, data, at, total, nullable=False)
        items, at = unpack_elements(self._value, data, at, total, nullable=True)
        entries = zip(keys, items, strict=True)
        return [dict(islice(entries, length)) for length in lengths], at

    def check(self, value: Any, path: str) -> Misfit | None:
        if type(value) is not dict:
            return Misfit(path, self.expected, value)
        for key, item in value.items():
            misfit = check_value(self._key, key, f"{path} key", nullable=False) or check_value(
                self._value, item, f"{path}[{key!r}]"
            )
            if misfit is not None:
                return misfit
        return None
