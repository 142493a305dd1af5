"""Typed errors of the data plane: keys, key groups, serializers, copies.

Owner: none (raised on the thread of the task, of the client that builds a graph, or of the reader of a
savepoint). Each message names the type or the row, says what was expected and what to do. No error here is
retried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

from yarrow.runtime.common.errors import YarrowError


class DataError(YarrowError):
    """Base of the errors of keys, rows and batches."""


class UnsupportedKeyError(DataError):
    """A value cannot be a key; `key_type` is its type and `remedy` the type to return instead.

    The caller, who knows it, adds the operator's name with `for_operator`.
    """

    def __init__(self, key_type: type, reason: str, remedy: str, operator: str | None = None) -> None:
        where = f"Operator '{operator}': " if operator is not None else ""
        super().__init__(
            f"{where}a value of type {key_type.__module__}.{key_type.__qualname__} cannot be a key: "
            f"{reason}. {remedy}."
        )
        self.key_type = key_type
        self.reason = reason
        self.remedy = remedy

    def for_operator(self, operator: str) -> UnsupportedKeyError:
        """The same error naming the operator whose key selector returned the value."""
        return UnsupportedKeyError(self.key_type, self.reason, self.remedy, operator)


class KeyDecodeError(DataError):
    """Bytes are no key encoding of this version, or a key class is gone or has changed."""


class InvalidParallelismError(DataError):
    """A parallelism, maximum parallelism or index outside its range."""


class ColumnKeyError(DataError):
    """An Arrow column, or one row of it, has no equivalent among row keys."""


class SerializationError(DataError):
    """A row does not fit its declared type.

    Names the row, the field, the expected and the found value.
    """

    def __init__(self, row: int, field: str, expected: str, got: object) -> None:
        shown = _shortened(got)
        at = f"field {field} of row {row}" if field else f"row {row}"
        super().__init__(
            f"{at}: expected {expected}, got {type(got).__qualname__} {shown}. "
            "Return a value of the declared type, or declare the type that is returned."
        )
        self.row = row
        self.field = field
        self.expected = expected
        self.got = got

    def for_operator(self, operator: str) -> SerializationError:
        """The same error naming the operator that emitted the row."""
        self.args = (f"operator '{operator}': {self}",)
        return self


class MissingFieldError(DataError):
    """A record lacks a field that the program reads."""

    def __init__(self, field: object, record: object) -> None:
        kind = type(record).__qualname__
        if (
            isinstance(field, int)
            and isinstance(record, Sized)
            and not isinstance(record, Mapping | str | bytes)
        ):
            has = f"it has {len(record)} fields, and positions count from 0"
        else:
            has = f"it is of type {kind}"
        super().__init__(
            f"the record {_shortened(record)} has no field {field!r}: {has}. "
            "Name a field that each record has, or give a function that reads it."
        )

    @classmethod
    def first_missing(cls, record: Any, fields: Iterable[Any]) -> MissingFieldError | None:
        """The error of the first of these fields that the record lacks; None = it has all."""
        for field in fields:
            try:
                record[field]
            except Exception:
                return cls(field, record)
        return None


class MismatchedFieldError(DataError):
    """A value of a field, None = of the record itself, cannot be aggregated with those of other records."""

    def __init__(self, field: int | str | None, record: object, reason: str) -> None:
        what = "" if field is None else f"field {field!r} of "
        super().__init__(
            f"{what}the record {_shortened(record)} does not fit those of the records before it: {reason}. "
            "Give all records a value of one type there, which can be added or compared."
        )


class NoResultsError(DataError):
    """A function gave a value that is no iterable of results."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"the function gave {_shortened(given)} of type {type(given).__qualname__}, where an iterable of results "
            "was expected. Return a list, yield each result, or return None for no result."
        )


class UnorderedRowsError(DataError):
    """Rows cannot be sorted: values of a field have no order among each other."""

    def __init__(self, pair: Sequence[object], reason: str) -> None:
        which = f"the rows {' and '.join(map(_shortened, pair))}" if pair else "some of the rows"
        super().__init__(
            f"{which} cannot be sorted: {reason}. Sort by fields whose values are of one type, or by a function "
            "that gives such values."
        )


class UnpicklableRowError(SerializationError):
    """A row of no declared type that cannot be pickled; names the record and the member to blame."""

    def __init__(self, row: int, record: object, place: str, member: object, error: BaseException) -> None:
        super().__init__(row, place, "a value that pickles", record)
        kind = f"{type(member).__module__}.{type(member).__qualname__}"
        because = f" because of its member {place}, {_shortened(member)} of type {kind}" if place else ""
        self.args = (
            f"row {row}, {_shortened(record)}, cannot be pickled{because}: {type(error).__name__}: {error}."
            " Rows of no declared type travel between workers as pickles. Emit plain data, or objects of"
            " classes and functions at the top level of a module. Create what cannot travel in open() of the"
            " function that uses it.",
        )


def _shortened(value: object) -> str:
    try:
        shown = repr(value)
    except Exception as error:  # a user's __repr__
        shown = f"<{type(value).__qualname__} whose repr raised {type(error).__name__}>"
    return shown if len(shown) <= 120 else shown[:117] + "..."


class RowFormatError(DataError):
    """Bytes were not written by the serializer of this declared type.

    They are truncated, too long or of another type.
    """


class UnsupportedTypeInfoError(DataError):
    """A declared type for which no row serializer exists."""


class UncopyableValueError(DataError):
    """A mutable value that can be neither shared nor copied: a lock, a generator, an open file.

    `place` says which member of the record it is, as Python writes it behind the record; empty = the record itself.
    """

    def __init__(self, value_type: type, cause: str, place: str = "", record: object = None) -> None:
        kind = f"{value_type.__module__}.{value_type.__qualname__}"
        member = f"the member {place} of {_shortened(record)}, " if place else ""
        super().__init__(
            f"{member}a value of type {kind}{',' if place else ''} cannot be copied ({cause}), and what a function"
            " emits must not change later. Emit plain data, give the class a __deepcopy__ method, or set"
            " pipeline.object-reuse: true and never change a value after it was emitted."
        )
        self.value_type = value_type
        self.cause = cause
        self.place = place
