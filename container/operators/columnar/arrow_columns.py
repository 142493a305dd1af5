"""Builds Arrow arrays of Python values strictly.

Values that Arrow would round, cut or reinterpret in silence are refused.

Owner: the task thread; no state. Only None becomes null. Errors name the row. They arise from 1.5 in an
integer column, an aware datetime in a naive one, a too fine time, or an unknown field. Must not know
operators.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.common.time import Instant
from yarrow.common.types import Row, own_names

_ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Check = Callable[[Any], bool]


class MisfitError(Exception):
    """A value does not fit; the caller adds names. `index` counts rows, `path` leads into nested values."""

    def __init__(self, index: int, path: str, expected: str, got: object) -> None:
        super().__init__(index, path, expected, got)
        self.index = index
        self.path = path
        self.expected = expected
        self.got = got


def build_columns(rows: Sequence[Any], fields: Sequence[pa.Field], path: str = "") -> list[pa.Array]:
    """One array for each field of rows, none of which is None. Raises MisfitError."""
    names = [field.name for field in fields]
    kinds = set(map(type, rows))
    columns = _columns_of_kind(kinds.pop(), rows, names) if len(kinds) == 1 else None
    if columns is None:
        values = [_values_of(row, names, index, path) for index, row in enumerate(rows)]
        columns = list(zip(*values, strict=True)) if values else [()] * len(names)
    return [
        build_field(column, field, f"{path}.{field.name}" if path else field.name)
        for column, field in zip(columns, fields, strict=True)
    ]


def build_field(values: Sequence[Any], field: pa.Field, path: str) -> pa.Array:
    """The array of a column; a None needs a nullable field. Raises MisfitError."""
    if not field.nullable and None in values:
        index = next(i for i, value in enumerate(values) if value is None)
        raise MisfitError(index, path, f"{field.type}, never null", None)
    return build_array(values, field.type, path)


def build_array(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    """The array of these values. Raises MisfitError."""
    types = pa.types
    if types.is_dictionary(kind):
        return build_array(values, kind.value_type, path).dictionary_encode().cast(kind)
    if types.is_struct(kind):
        return _build_structs(values, kind, path)
    if types.is_list(kind) or types.is_large_list(kind):
        return _build_lists(values, kind, path)
    if types.is_map(kind):
        return _build_maps(values, kind, path)
    exact, check, expected = _allowed(kind)
    if not (set(map(type, values)) <= exact):
        for index, value in enumerate(values):
            if value is not None and not check(value):
                raise MisfitError(index, path, expected, value)
    try:
        return _leaf(values, kind)
    except _ARROW_ERRORS:
        for index, value in enumerate(values):
            try:
                _leaf([value], kind)
            except _ARROW_ERRORS:
                raise MisfitError(index, path, expected, value) from None
        raise


def _leaf(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_timestamp(kind):
        if kind.tz is not None and Instant in set(map(type, values)):
            return _instants(values, kind)
        # Arrow would truncate a finer time; a cast refuses it.
        return pa.array(values, pa.timestamp("us", kind.tz)).cast(kind)
    if types.is_time(kind):
        return pa.array(values, pa.time64("us")).cast(kind)
    if types.is_duration(kind):
        return pa.array(values, pa.duration("us")).cast(kind)
    if isinstance(kind, pa.UuidType):
        raw = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
        return pa.ExtensionArray.from_storage(kind, raw)
    return pa.array(values, kind, from_pandas=False)


def _instants(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    nanos = [None if value is None else _nanos(value) for value in values]
    return pa.array(nanos, pa.int64()).view(pa.timestamp("ns", kind.tz)).cast(kind)


def _nanos(value: Any) -> int:
    if isinstance(value, Instant):
        return value.seconds * 1_000_000_000 + value.nanos
    micros: int = (value - _EPOCH) // dt.timedelta(microseconds=1)
    return micros * 1000


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | np.floating) or _is_integer(value)


def _is_naive(value: Any) -> bool:
    return isinstance(value, dt.datetime) and value.tzinfo is None


def _is_aware(value: Any) -> bool:
    return isinstance(value, Instant) or (isinstance(value, dt.datetime) and value.tzinfo is not None)


def _is_time(value: Any) -> bool:
    return isinstance(value, dt.time) and value.tzinfo is None


def _is_date(value: Any) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _is_decimal(value: Any) -> bool:
    return isinstance(value, Decimal) or _is_integer(value)


def _of_type(*classes: type) -> Check:
    return lambda value: isinstance(value, classes)


#: (test of the Arrow type, Python types that need no further look, check of any other value, words)
_LEAVES: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], Check, str], ...]] = (
    (pa.types.is_integer, (int,), _is_integer, "an int"),
    (pa.types.is_floating, (float, int), _is_number, "a float"),
    (pa.types.is_boolean, (bool,), _of_type(bool, np.bool_), "a bool"),
    (lambda kind: "string" in str(kind), (str,), _of_type(str), "a str"),
    (lambda kind: "binary" in str(kind), (bytes,), _of_type(bytes, bytearray, memoryview), "bytes"),
    (pa.types.is_decimal, (Decimal,), _is_decimal, "a Decimal"),
    (pa.types.is_date, (dt.date,), _is_date, "a date"),
    (pa.types.is_time, (), _is_time, "a time without a zone"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None, (), _is_naive, "a naive datetime"),
    (pa.types.is_timestamp, (), _is_aware, "an aware datetime"),
    (pa.types.is_duration, (dt.timedelta,), _of_type(dt.timedelta), "a timedelta"),
    (lambda kind: isinstance(kind, pa.UuidType), (uuid.UUID,), _of_type(uuid.UUID), "a UUID"),
    (pa.types.is_null, (), lambda value: False, "None"),
)


def _allowed(kind: pa.DataType) -> tuple[frozenset[type], Check, str]:
    for is_kind, exact, check, words in _LEAVES:
        if is_kind(kind):
            return frozenset((*exact, type(None))), check, f"{words} for a column of {kind}"
    return frozenset(), lambda value: True, f"a value for a column of {kind}"


# Nested values


def _build_structs(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    present = [index for index, value in enumerate(values) if value is not None]
    try:
        columns = build_columns([values[index] for index in present], fields, path)
    except MisfitError as error:
        raise MisfitError(present[error.index], error.path, error.expected, error.got) from None
    if len(present) == len(values):
        return pa.StructArray.from_arrays(columns, fields=fields) if fields else pa.array(values, kind)
    if not present:
        return pa.nulls(len(values), kind)
    places = np.full(len(values), -1, np.int64)
    places[present] = np.arange(len(present))
    absent = places < 0
    # A null struct has null fields, or any value if the field is never null.
    with_nulls, filled = pa.array(places, mask=absent), pa.array(np.maximum(places, 0))
    spread = [
        column.take(with_nulls if field.nullable else filled)
        for column, field in zip(columns, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(spread, fields=fields, mask=pa.array(absent))


def _build_lists(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    lists = _sized(values, (list, tuple, np.ndarray), f"a list for a column of {kind}", path)
    offsets = list(accumulate(map(len, lists), initial=0))
    flat = [item for part in lists for item in part]
    with _Parents(offsets):
        items = build_field(flat, kind.value_field, f"{path}.element")
    large = pa.types.is_large_list(kind)
    make = pa.LargeListArray if large else pa.ListArray
    return make.from_arrays(_null_offsets(values, offsets, pa.int64() if large else pa.int32()), items).cast(
        kind
    )


def _build_maps(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    maps = _sized(values, (dict,), f"a dict for a column of {kind}", path)
    offsets = list(accumulate(map(len, maps), initial=0))
    with _Parents(offsets):
        keys = build_field([k for part in maps for k in part], kind.key_field, f"{path}.key")
        items = build_field([v for part in maps for v in part.values()], kind.item_field, f"{path}.value")
    return pa.MapArray.from_arrays(_null_offsets(values, offsets, pa.int32()), keys, items).cast(kind)


def _sized(values: Sequence[Any], classes: tuple[type, ...], expected: str, path: str) -> list[Any]:
    sized = []
    for index, value in enumerate(values):
        if value is not None and not isinstance(value, classes):
            raise MisfitError(index, path, expected, value)
        sized.append(() if value is None and dict not in classes else {} if value is None else value)
    return sized


def _null_offsets(values: Sequence[Any], offsets: Sequence[int], kind: pa.DataType) -> pa.Array:
    absent = np.fromiter((value is None for value in values), np.bool_, len(values))
    return pa.array(np.array(offsets), kind, mask=np.append(absent, False))


class _Parents:
    """Converts the index of a misfit among all elements into that of its row."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = offsets

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MisfitError):
            error.index = bisect.bisect_right(self._offsets, error.index) - 1


# Rows of every shape


def _columns_of_kind(kind: type, rows: Sequence[Any], names: Sequence[str]) -> Sequence[Sequence[Any]] | None:
    """The columns of rows with one class and a fitting shape, the fast way; None = look at each row."""
    count = len(names)
    if kind is tuple or kind is list:
        return list(zip(*rows, strict=True)) if set(map(len, rows)) == {count} else None
    if kind is dict:
        if all(len(row) == count for row in rows):
            try:
                return [[row[name] for row in rows] for name in names]
            except KeyError:
                return None
        return None
    if kind is Row:
        return _columns_of_rows(rows, names)
    if dataclasses.is_dataclass(kind) and {field.name for field in dataclasses.fields(kind)} == set(names):
        return [[getattr(row, name) for row in rows] for name in names]
    return None


def _columns_of_rows(rows: Sequence[Any], names: Sequence[str]) -> Sequence[Sequence[Any]] | None:
    """The columns of Rows that all have the same fields, or no names and as many values as columns."""
    borne = set(map(attrgetter("_fields"), rows))
    fields = {each if type(each) is tuple else None for each in borne}
    own = fields.pop()
    if fields or (own is not None and set(own) != set(names)):
        return None
    values = list(map(attrgetter("_values"), rows))
    if set(map(len, values)) != {len(names)}:
        return None
    columns = list(zip(*values, strict=True))
    return columns if own is None else [columns[own.index(name)] for name in names]


def _values_of(row: Any, names: Sequence[str], index: int, path: str) -> Sequence[Any]:
    """The values of one row in the order of `names`."""
    if isinstance(row, Row):
        own = own_names(row)
        return (
            _positional(row, names, index, path)
            if own is None
            else _by_name(row, own, row, names, index, path)
        )
    if isinstance(row, dict):
        unknown = [name for name in row if name not in names]
        if unknown:
            raise _unknown(unknown, names, row, index, path)
        return [row.get(name) for name in names]
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        fields = [field.name for field in dataclasses.fields(row)]
        return _by_name({name: getattr(row, name) for name in fields}, fields, row, names, index, path)
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        fields = list(row._fields)
        if set(fields) != set(names) and list(names) == [f"f{i}" for i in range(len(fields))]:
            return row
        return _by_name(dict(zip(fields, row, strict=True)), fields, row, names, index, path)
    if isinstance(row, tuple | list):
        return _positional(row, names, index, path)
    raise MisfitError(index, path, f"a row with the columns {list(names)}", row)


def _positional(row: Iterable[Any], names: Sequence[str], index: int, path: str) -> Sequence[Any]:
    values = list(row)
    if len(values) != len(names):
        raise MisfitError(index, path, f"{len(names)} values, for the columns {list(names)}", row)
    return values


def _by_name(
    values: Any, fields: Sequence[str], row: Any, names: Sequence[str], index: int, path: str
) -> Sequence[Any]:
    unknown = [name for name in fields if name not in names]
    if unknown:
        raise _unknown(unknown, names, row, index, path)
    missing = [name for name in names if name not in fields]
    if missing:
        raise MisfitError(index, path, f"a row with all columns {list(names)}; it lacks {missing}", row)
    return [values[name] for name in names]


def _unknown(unknown: Sequence[str], names: Sequence[str], row: Any, index: int, path: str) -> MisfitError:
    return MisfitError(index, path, f"only the columns {list(names)}; {list(unknown)} is unknown", row)
