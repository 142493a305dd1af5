"""Runs of similar rows as columns: tuples, Rows, dicts and instances of user classes, a run of values a field.

Common parts of a run (a class, names) are written once. Fields are runs of plain values, most of which
MessagePack writes in one call. Owner: the calling thread; no state but the tables of one writer. It must not
write pickles, nor run user code when it reads.
"""

from __future__ import annotations

import datetime as dt
import types
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from yarrow.common.typeinfo import Types
from yarrow.common.types import Row, RowKind, rows_of
from yarrow.runtime.data.plain_classes import fields_of_plain_class
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.data.serializers.transposed_rows import Builder, builder_of
from yarrow.runtime.snapshot.plain_trees import UnwritableValueError
from yarrow.runtime.snapshot.plain_values import dump_plain, load_plain
from yarrow.runtime.snapshot.record_classes import (
    NAMED_TUPLE,
    OBJECT,
    StoredClass,
    UnwritableClassError,
    WritableClass,
    class_now,
    refuse_special_names,
    restorer_of,
    special_name,
    writable_class,
)

_TUPLES: Final = 0
_DICTS: Final = 1
_ROWS: Final = 2
_INSTANCES: Final = 3

# First bytes of columns that are no run of plain values, whose own begin with others.
_LOCAL: Final = b"\x01"
_UTC: Final = b"\x02"
_TIMES: Final = serializer_for(Types.SQL_TIMESTAMP())

Resolve = Callable[[str], type]
_set = object.__setattr__
_new: Any = object.__new__


class _Columns(NamedTuple):
    """The written form of columns."""

    kind: int
    #: Names of fields; None where they have none.
    names: list[str] | None
    stored: StoredClass | None
    #: Each a run of plain values.
    columns: list[bytes]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Columns)


class ColumnsWriter:
    """Writes runs of rows; remembers which classes can be written."""

    def __init__(self) -> None:
        self._writable: dict[type, WritableClass | None] = {}

    def dump(self, rows: list[Any]) -> bytes | None:
        """The rows as columns; None if they are not alike. Raises UnwritableValueError."""
        kind = type(rows[0])
        if [*map(type, rows)].count(kind) != len(rows):
            return None
        if kind is tuple:
            found = _of_tuples(rows)
        elif kind is dict:
            found = _of_dicts(rows)
        elif kind is Row:
            found = _of_rows(rows)
        else:
            found = self._of_instances(rows, kind)
        if found is None:
            return None
        form, names, stored, columns = found
        return _ENCODER.encode(_Columns(form, names, stored, [_dump_column(column) for column in columns]))

    def _of_instances(self, rows: list[Any], kind: type) -> _Found | None:
        if kind not in self._writable:
            try:
                self._writable[kind] = writable_class(kind)
            except UnwritableClassError as error:
                raise UnwritableValueError(kind, str(error)) from error
        writable = self._writable[kind]
        if writable is None:
            return None
        names: Sequence[str] = writable.slots
        columns: Sequence[Sequence[Any]]
        if writable.form == NAMED_TUPLE:
            columns = [*zip(*rows, strict=True)]
        elif writable.form != OBJECT or (writable.slots and writable.has_dict):
            return None
        elif writable.has_dict:
            fields = [row.__dict__ for row in rows]
            names = [*fields[0]]
            if [*map(list, fields)].count(names) != len(rows):
                return None
            columns = [*zip(*[each.values() for each in fields], strict=True)]
        else:
            try:
                columns = [[*map(attrgetter(name), rows)] for name in names]
            except AttributeError:  # a slot that is not set
                return None
        if not names or not all(type(name) is str for name in names) or special_name(names):
            return None
        annotations = [writable.annotations.get(name) for name in names]
        stored = StoredClass(writable.form, writable.name, list(names), annotations)
        return _INSTANCES, None, stored, columns


_Found = tuple[int, list[str] | None, StoredClass | None, Sequence[Sequence[Any]]]


def _of_tuples(rows: list[tuple[Any, ...]]) -> _Found | None:
    count = len(rows[0])
    if not count or [*map(len, rows)].count(count) != len(rows):
        return None
    return _TUPLES, None, None, [*zip(*rows, strict=True)]


def _of_dicts(rows: list[dict[Any, Any]]) -> _Found | None:
    names = [*rows[0]]
    if not names or not all(type(name) is str for name in names):
        return None
    if [*map(list, rows)].count(names) != len(rows):
        return None
    return _DICTS, names, None, [*zip(*[row.values() for row in rows], strict=True)]


def _of_rows(rows: list[Row]) -> _Found | None:
    first = rows[0]
    names, count = first._fields, len(first._values)
    alike = all(
        row._fields == names and row._row_kind is RowKind.INSERT and len(row._values) == count for row in rows
    )
    if not count or not alike:
        return None
    columns = [*zip(*[row._values for row in rows], strict=True)]
    return _ROWS, None if names is None else list(names), None, columns


def _dump_column(values: Sequence[Any]) -> bytes:
    """Encodes plain values, or times of one time zone by their serializer, which is much faster."""
    if type(values[0]) is dt.datetime and {*map(type, values)} == {dt.datetime}:
        zones, folds = {value.tzinfo for value in values}, {value.fold for value in values}
        if folds == {0} and zones == {None}:
            return _LOCAL + _TIMES.dump_rows(list(values))
        if folds == {0} and zones == {dt.UTC}:
            return _UTC + _TIMES.dump_rows([value.replace(tzinfo=None) for value in values])
    return dump_plain(values)


def _load_column(data: bytes, resolve: Resolve) -> list[Any]:
    if data[:1] == _LOCAL:
        return _TIMES.load_rows(memoryview(data)[1:])
    if data[:1] == _UTC:
        return [value.replace(tzinfo=dt.UTC) for value in _TIMES.load_rows(memoryview(data)[1:])]
    return load_plain(data, resolve=resolve)


def load_columns(data: bytes | memoryview, resolve: Resolve) -> list[Any]:
    """Decodes the rows of `ColumnsWriter.dump`; `resolve` finds classes by their names.

    Raises ValueError for other bytes, and ChangedFieldError for a changed class.
    """
    try:
        found = _DECODER.decode(data)
        columns = [_load_column(column, resolve) for column in found.columns]
        return _builder(found, resolve)(columns)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"columns of rows cannot be read: {error}") from error


def _builder(found: _Columns, resolve: Resolve) -> Builder:
    names = found.names
    if found.kind == _TUPLES:
        return lambda columns: [*zip(*columns, strict=True)]
    if found.kind == _DICTS and names is not None:
        keys = names
        return lambda columns: [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
    if found.kind == _ROWS:
        return lambda columns: _rows_of(None if names is None else tuple(names), columns)
    if found.kind == _INSTANCES and found.stored is not None:
        return _instances_of(found.stored, resolve)
    raise ValueError("columns of rows of an unknown kind: written by a later version, or damaged")


def _rows_of(names: tuple[str, ...] | None, columns: Sequence[Sequence[Any]]) -> list[Any]:
    if names is not None and len(names) != len(columns):
        raise ValueError(f"{len(columns)} columns for {len(names)} names")
    values = [*map(list, zip(*columns, strict=True))]
    return rows_of(names, values, len(values))


def _instances_of(stored: StoredClass, resolve: Resolve) -> Builder:
    refuse_special_names(stored)
    cls = class_now(stored, resolve)
    build = None if cls is None else _unchanged_builder(cls, stored)
    if build is not None:
        built = build
        return lambda columns: built(_checked(stored, columns))
    restore = restorer_of(stored, resolve)
    return lambda columns: [restore(values) for values in zip(*_checked(stored, columns), strict=True)]


def _unchanged_builder(cls: Any, stored: StoredClass) -> Builder | None:
    """Makes instances of an unchanged class, without a step for each field; None if the class prevents that."""
    if stored.form == NAMED_TUPLE and tuple(stored.fields) == cls._fields:
        make = partial(tuple.__new__, cls)
        return lambda columns: [*map(make, zip(*columns, strict=True))]
    if stored.form != OBJECT:
        return None
    slots, has_dict = fields_of_plain_class(cls) or ([], False)
    if has_dict:
        return None if slots else builder_of(cls, stored.fields)
    members = [_slot(cls, name) for name in stored.fields]
    if None in members:
        return None

    def build(columns: Sequence[Sequence[Any]]) -> list[Any]:
        made = [_new(cls) for _ in columns[0]]
        for member, column in zip(members, columns, strict=True):
            deque(map(member.__set__, made, column), maxlen=0)
        return made

    return build


def _slot(cls: type, name: str) -> Any:
    """A function that stores a slot and nothing else; None = there is no such slot."""
    found = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    return found if type(found) is types.MemberDescriptorType else None


def _checked(stored: StoredClass, columns: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    if not len(stored.fields) == len(stored.annotations) == len(columns):
        raise ValueError(f"{len(columns)} columns for the fields of {stored.name}")
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of different lengths for {stored.name}")
    return columns
