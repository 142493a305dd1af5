"""CollectionSource: the elements of a Python collection, in order; what `from_collection` reads from.

Owner: the client makes it, the task's thread reads it. Elements are sent as one protocol-5 pickle made on the
client, with user classes by reference. An element that cannot be pickled is refused before a job exists.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yarrow.common.typeinfo import (
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.common.types import Row, own_names, positional_row
from yarrow.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator, unassigned_or
from yarrow.runtime.common.errors import InvalidProgramError


@dataclass(frozen=True, slots=True)
class CollectionSplit(SourceSplit):
    """The whole collection from position `next` on."""

    next: int = 0

    @property
    def split_id(self) -> str:
        return "collection"


class CollectionSource(Source[Any, CollectionSplit]):
    """A source of the given elements, in order, through one reader: give the operator parallelism 1.

    With a declared type each element must belong to it; tuples, lists, dicts and objects become the Rows or tuples
    it declares. Raises InvalidProgramError naming the position of an element that does not, or that cannot be
    pickled.
    """

    def __init__(self, collection: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        if not isinstance(collection, Iterable):
            raise TypeError(f"from_collection takes the elements, such as a list, not {collection!r}")
        elements = list(collection)
        if type_info is not None:
            elements = [_typed(element, type_info, index) for index, element in enumerate(elements)]
        self._type_info = type_info
        self._count = len(elements)
        self._pickled = _pickled(elements)

    def __len__(self) -> int:
        return self._count

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[CollectionSplit], checkpoint: Any = None
    ) -> OnRequestEnumerator[CollectionSplit]:
        """Return an enumerator of one split, for the first reader that asks."""
        return OnRequestEnumerator(context, unassigned_or(checkpoint, [CollectionSplit()]))

    def create_reader(self, context: SourceReaderContext) -> CollectionReader:
        """A reader that unpickles when it gets the split."""
        return CollectionReader(context, self._pickled)

    def estimated_bytes(self) -> int | None:
        """Bytes of the pickled elements."""
        return len(self._pickled)

    def produced_type(self) -> TypeInformation | None:
        """The type declared."""
        return self._type_info


class CollectionReader(OneByOneReader[Any, CollectionSplit]):
    """Hands out slices of the elements."""

    _split: CollectionSplit
    _elements: list[Any]

    def __init__(self, context: SourceReaderContext, pickled: bytes) -> None:
        super().__init__(context)
        self._pickled = pickled

    def open_split(self, split: CollectionSplit) -> None:
        self._split = split
        self._elements = pickle.loads(self._pickled)

    def read_split(self, max_rows: int) -> SourceRecords | None:
        start = self._split.next
        rows = self._elements[start : start + max_rows]
        if not rows:
            return None
        self._split = replace(self._split, next=start + len(rows))
        return SourceRecords(rows, split_id=self._split.split_id)

    def current_split(self) -> CollectionSplit:
        return self._split

    def pending_records(self) -> int | None:
        if self._has_open_split:
            return max(0, len(self._elements) - self._split.next)
        # How many there are is known once they are unpickled.
        return None if self._waiting else 0

    def close_split(self) -> None:
        self._elements = []


def _pickled(elements: list[Any]) -> bytes:
    try:
        return pickle.dumps(elements, protocol=5)
    except Exception as error:
        index, reason = _first_unpicklable(elements) or (None, error)
        where = "the collection" if index is None else f"element {index} ({_short(elements[index])})"
        raise InvalidProgramError(
            f"from_collection: {where} cannot be pickled: {reason}; elements travel to another process, "
            "so give plain data, or classes defined at the top level of a module"
        ) from None


def _first_unpicklable(elements: Sequence[Any]) -> tuple[int, Exception] | None:
    for index, element in enumerate(elements):
        try:
            pickle.dumps(element, protocol=5)
        except Exception as error:
            return index, error
    return None


def _typed(element: Any, type_info: TypeInformation, index: int) -> Any:
    value = conform(element, type_info)
    if not type_info.accepts(value):
        raise InvalidProgramError(
            f"from_collection: element {index} ({_short(element)}) does not belong to the declared type "
            f"{type_info}: {_mismatch(value, type_info)}"
        )
    return value


def conform(value: Any, type_info: TypeInformation) -> Any:
    """`value` with tuples, lists, dicts and objects turned into the Rows and tuples that the type declares.

    A Row, dict or object with the declared names gives its values by name, whatever their order. Integers become
    floats where the type declares floats. Other values are returned unchanged, whether they belong to the type or not.
    """
    if isinstance(type_info, RowTypeInfo):
        return _row(value, type_info)
    if isinstance(type_info, TupleTypeInfo):
        types = type_info.get_field_types()
        if isinstance(value, tuple | list | Row) and len(value) == len(types):
            return tuple(conform(item, field) for item, field in zip(value, types, strict=True))
    elif isinstance(type_info, ListTypeInfo) and isinstance(value, tuple | list):
        return [conform(item, type_info.element_type) for item in value]
    elif isinstance(type_info, MapTypeInfo) and isinstance(value, dict):
        value_type = type_info.value_type_info
        return {key: conform(item, value_type) for key, item in value.items()}
    elif isinstance(type_info, BasicTypeInfo) and type_info.python_type is float and type(value) is int:
        return float(value)
    return value


def _row(value: Any, type_info: RowTypeInfo) -> Any:
    types = type_info.get_field_types()
    fields = _by_name(value, type_info) if type_info.is_named or isinstance(value, dict) else value
    if not isinstance(fields, tuple | list | Row) or len(fields) != len(types):
        return value
    row = positional_row([conform(item, field) for item, field in zip(fields, types, strict=True)])
    if type_info.is_named:
        row.set_field_names(type_info.get_field_names())
    if isinstance(value, Row):
        row.set_row_kind(value.get_row_kind())
    return row


def _by_name(value: Any, type_info: RowTypeInfo) -> Any:
    """The values of a Row, dict or object in the order of the declared names.

    Any other value is returned as it is, and so is one whose names are not those of the type.
    """
    names = type_info.get_field_names()
    if isinstance(value, dict):
        return [value.get(name) for name in names] if value.keys() <= set(names) else value
    if isinstance(value, Row):
        own = own_names(value)
        if own is None:
            return value
        return [value[name] for name in names] if set(own) == set(names) else None
    if isinstance(value, tuple | list) or not hasattr(value, "__dict__"):
        return value
    attributes = vars(value)
    return [attributes[name] for name in names] if attributes.keys() >= set(names) else value


def _mismatch(value: Any, type_info: TypeInformation) -> str:
    """The reason why a value, as `conform` gives it, does not belong to a type: the innermost value that differs."""
    if not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return f"{_short(value)} ({type(value).__name__}) is no value of {type_info}"
    types = type_info.get_field_types()
    names = [*map(str, range(len(types)))]
    if isinstance(type_info, RowTypeInfo):
        names = type_info.get_field_names()
        own = [*value] if isinstance(value, dict) else own_names(value) if isinstance(value, Row) else None
        if own is not None and set(own) != set(names):
            return f"its fields are {', '.join(map(str, own))}, and the type has {', '.join(names)}"
    if isinstance(value, tuple | list | Row) and len(value) != len(types):
        return f"it has {len(value)} values, and the type has {len(types)} fields"
    if not isinstance(value, Row if isinstance(type_info, RowTypeInfo) else tuple):
        return f"{_short(value)} ({type(value).__name__}) has no values for these fields"
    for name, item, field in zip(names, value, types, strict=True):
        if item is not None and not field.accepts(item):
            return f"field {name}: {_mismatch(item, field)}"
    return f"{_short(value)} is no value of {type_info}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
