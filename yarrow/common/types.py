"""Row and RowKind: the structured value of the DataStream and Table APIs.

A Row is a mutable sequence of values with optional field names and a kind that says whether it inserts,
updates or deletes. Owner: whichever thread runs the user function that made the row; a Row is not shared
between threads. It holds values alone: declared types live in `typeinfo`, encoding in the serializers of the
runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import repeat, starmap
from typing import Any, cast

__all__ = [
    "PositionalNames",
    "Row",
    "RowKind",
    "bear_names",
    "own_names",
    "positional_names",
    "positional_row",
]


class RowKind(Enum):
    """The change that a row makes to a result: insertion, old or new value of an update, deletion."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def short_string(self) -> str:
        """Return the two characters that change logs print: +I, -U, +U or -D."""
        return _SHORT_STRINGS[self.value]

    def __str__(self) -> str:
        return self.short_string()


_SHORT_STRINGS = ("+I", "-U", "+U", "-D")


class PositionalNames(tuple[str, ...]):
    """The names f0, f1, ... that a Row bears where its declared type gives its fields none.

    Fields are read and written by them, and texts and dicts show them. They are no part of the Row's identity: it
    equals, and as a key is, the Row of the same values without names.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is PositionalNames and len(self) == len(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@lru_cache(1024)
def positional_names(count: int) -> PositionalNames:
    """The names of so many fields, f0 and so on."""
    return PositionalNames(f"f{position}" for position in range(count))


def own_names(row: Row) -> tuple[str, ...] | None:
    """The names that are part of a Row's identity; None for a Row without names and for positional ones."""
    fields = row._fields
    return fields if type(fields) is tuple else None


class Row:
    """An ordered group of values with optional field names.

    `Row(1, "a")` has positions only; `Row(id=1, name="a")` has names too. A Row of positions that are all
    strings serves as a template: `Person = Row("id", "name"); Person(1, "a")` gives a named Row.

    Fields are read and written by position (`row[0]`), by name (`row["id"]`) and, unless the name is that of
    a method, as an attribute (`row.id`). A Row of positions bears the names f0, f1, ... in a stream of
    `Types.ROW`, and the declared ones in a stream of `Types.ROW_NAMED`. Rows are equal when kind, names and
    values are, where f0, f1, ... of `Types.ROW` count as no names. A Row hashes when all its values do, and
    must not change while it is in a set or a dict.

    Raises ValueError when positional and named values are mixed, IndexError, KeyError or AttributeError for a
    field that does not exist.
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: tuple[str, ...] | None
    _row_kind: RowKind
    _values: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Row takes either positional or named values, not both: name every value or none of them"
            )
        put = object.__setattr__
        put(self, "_fields", tuple(kwargs) if kwargs else None)
        put(self, "_values", list(kwargs.values()) if kwargs else list(args))
        put(self, "_row_kind", RowKind.INSERT)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Return a Row of these values with the given kind."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """Return the kind; RowKind.INSERT unless another was set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind."""
        if not isinstance(row_kind, RowKind):
            raise TypeError(f"row kind must be a RowKind, not {type(row_kind).__name__}")
        object.__setattr__(self, "_row_kind", row_kind)

    def set_field_names(self, field_names: Iterable[str]) -> None:
        """Name the fields, in order.

        Raises ValueError when there is not exactly one distinct name for each value.
        """
        names = tuple(field_names)
        if len(names) != len(self._values):
            raise ValueError(
                f"{len(names)} field names {list(names)} given for a Row of {len(self._values)} values"
            )
        if len(set(names)) != len(names):
            raise ValueError(f"field names of a Row must differ from each other: {list(names)}")
        object.__setattr__(self, "_fields", names)

    def get_field_names(self) -> list[str] | None:
        """Return the field names, or None for a Row of positions only."""
        return None if self._fields is None else list(self._fields)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of these fields, in the order asked for."""
        return [self._values[self._position(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields as a dict; with `recursive` also the Rows inside lists, tuples and dicts.

        Raises TypeError when the Row has no field names.
        """
        if self._fields is None:
            raise TypeError("a Row without field names cannot become a dict: give names with set_field_names")
        values = [_plain(value) for value in self._values] if recursive else self._values
        return dict(zip(self._fields, values, strict=True))

    def _position(self, name: str) -> int:
        if self._fields is None:
            raise KeyError(f"{name!r}: this Row has no field names; use a position or set_field_names")
        try:
            return self._fields.index(name)
        except ValueError:
            raise KeyError(f"{name!r}: this Row has the fields {list(self._fields)}") from None

    def __getitem__(self, item: int | slice | str) -> Any:
        return self._values[self._position(item) if isinstance(item, str) else item]

    def __setitem__(self, item: int | str, value: Any) -> None:
        self._values[self._position(item) if isinstance(item, str) else item] = value

    def __getattr__(self, name: str) -> Any:
        # Reached only when there is no method or slot of this name. Names with a leading underscore are
        # looked up by copy and pickle on half-made rows, so they must fail before `_fields` is read.
        if not name.startswith("__"):
            fields = cast("tuple[str, ...] | None", object.__getattribute__(self, "_fields"))
            if fields is not None and name in fields:
                return self._values[fields.index(name)]
        raise AttributeError(f"Row has no field {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._fields is None or name not in self._fields:
            raise AttributeError(f"Row has no field {name!r}; its fields are {self.get_field_names()}")
        self._values[self._fields.index(name)] = value

    def __contains__(self, item: object) -> bool:
        return item in self._values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __call__(self, *args: Any) -> Row:
        """Make a named Row from this one taken as the list of field names."""
        names = self._values
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"only a Row of field names can make Rows; this one is {self!r}")
        if len(args) != len(names):
            raise TypeError(f"{len(args)} values given for the {len(names)} fields {names}")
        row = Row(*args)
        row.set_field_names(names)
        return row

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (
            self._row_kind is other._row_kind
            and (self._fields is other._fields or own_names(self) == own_names(other))
            and self._values == other._values
        )

    def __hash__(self) -> int:
        # The kind is left out: equal rows still hash alike, and enum hashes differ between processes.
        return hash((own_names(self), tuple(self._values)))

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self._fields) is PositionalNames:
            return _restore_positional_row, (tuple(self._values), self._row_kind.value)
        return _restore_row, (self._fields, tuple(self._values), self._row_kind.value)

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __str__(self) -> str:
        return f"{self._row_kind}{self._values!r}" if self._row_kind is not RowKind.INSERT else repr(self)


#: Puts names on a Row as they are, unchecked, at the cost of one call in C.
bear_names: Callable[[Row, tuple[str, ...]], None] = Row.__dict__["_fields"].__set__


class _BlankRow(Row):
    """A Row under construction.

    The interpreter writes its slots without a call, since assignment to attributes is the usual one. The finished
    object then becomes a Row, which has the same slots.
    """

    __slots__ = ()

    __init__ = object.__init__
    __setattr__ = object.__setattr__  # type: ignore[assignment]


def row_of(names: tuple[str, ...] | None, values: list[Any], kind: RowKind = RowKind.INSERT) -> Row:
    """A Row of these names with this very list of values, unchecked: for decoders and copies, once a record."""
    row: Row = _BlankRow()
    row._values = values
    row._fields = names
    row._row_kind = kind
    row.__class__ = Row
    return row


def rows_of(names: tuple[str, ...] | None, values: Iterable[list[Any]], number: int) -> list[Row]:
    """The Rows that `row_of` makes of each of so many lists, without a call of Python for each.

    Raises ValueError if there are more or fewer lists.
    """
    rows: list[Row] = list(starmap(_BlankRow, repeat((), number)))
    kind = RowKind.INSERT
    for row, own in zip(rows, values, strict=True):
        row._values = own
        row._fields = names
        row._row_kind = kind
        row.__class__ = Row
    return rows


def positional_row(values: Sequence[Any]) -> Row:
    """A Row of these values as a stream of `Types.ROW` gives it: it bears the names f0, f1, ..."""
    row = Row(*values)
    bear_names(row, positional_names(len(values)))
    return row


def _restore_row(fields: tuple[str, ...] | None, values: tuple[Any, ...], row_kind: int) -> Row:
    row = Row(*values)
    if fields is not None:
        row.set_field_names(fields)
    if row_kind:
        row.set_row_kind(RowKind(row_kind))
    return row


def _restore_positional_row(values: tuple[Any, ...], row_kind: int) -> Row:
    row = _restore_row(None, values, row_kind)
    bear_names(row, positional_names(len(values)))
    return row


def _plain(value: Any) -> Any:
    """Return `value` with the named Rows in it turned into dicts."""
    if isinstance(value, Row):
        return (
            value.as_dict(recursive=True)
            if value.get_field_names() is not None
            else [_plain(v) for v in value]
        )
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    return value
