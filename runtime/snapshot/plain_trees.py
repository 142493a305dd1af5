"""The general form of undeclared values: trees of tagged arrays, which MessagePack carries.

None, bool, 64-bit integers, floats, text and bytes stand for themselves. Everything else is an array whose
first item is a tag of this module. Tags are a stored format: added, never renumbered. Owner: the calling
thread. Reading must not run code that a file names, unless its reader declared the file's pickles trusted. An
object that is referenced twice is written twice; a value that contains itself is refused.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from yarrow.common.types import PositionalNames, Row, RowKind, positional_row
from yarrow.runtime.data.key_classes import resolve_class
from yarrow.runtime.snapshot.record_classes import (
    ENUM,
    NAMED_TUPLE,
    ChangedFieldError,
    StoredClass,
    UnwritableClassError,
    WritableClass,
    refuse_special_names,
    restorer_of,
    special_name,
    writable_class,
)

# Tags.
LIST: Final = 0
TUPLE: Final = 1
DICT: Final = 2
SET: Final = 3
FROZENSET: Final = 4
BIG_INT: Final = 5
SURROGATES: Final = 6
DECIMAL: Final = 7
DATE: Final = 8
TIME: Final = 9
DATETIME: Final = 10
TIMEDELTA: Final = 11
ZONE: Final = 12
UUID: Final = 13
RANGE: Final = 14
COMPLEX: Final = 15
FRACTION: Final = 16
BYTEARRAY: Final = 17
DEQUE: Final = 18
ORDERED_DICT: Final = 19
COUNTER: Final = 20
DEFAULT_DICT: Final = 21
ROW: Final = 22
INSTANCE: Final = 23
NUMPY_SCALAR: Final = 24
NUMPY_ARRAY: Final = 25
NUMPY_OBJECTS: Final = 26
ARROW_BATCH: Final = 27
ARROW_TABLE: Final = 28
PICKLE: Final = 29

#: Replaces the number of a class whose instances have names that are no fields.
_SPECIAL: Final = -1
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICRO: Final = dt.timedelta(microseconds=1)
_FACTORIES: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool)
}


class UnwritableValueError(Exception):
    """A value has no safe form; `value_type` is its type."""

    def __init__(self, value_type: type, reason: str) -> None:
        super().__init__(f"a value of type {value_type.__module__}.{value_type.__qualname__}: {reason}")
        self.value_type = value_type
        self.reason = reason


class UntrustedValueError(Exception):
    """A value is pickled, and pickles must not be read."""


class TreeWriter:
    """Makes trees of one run of values, which share a table of classes."""

    def __init__(self, allow_pickle: bool, check_text: bool) -> None:
        self._allow_pickle = allow_pickle
        #: True if text must be checked for lone surrogates.
        self._check_text = check_text
        self._writable: dict[type, WritableClass | None] = {}
        self._numbers: dict[tuple[type, tuple[str, ...]], int] = {}
        self.classes: list[StoredClass] = []
        #: Names of the pickled types.
        self.pickled: set[str] = set()

    def tree(self, value: Any) -> Any:
        """The tree of a value. Raises UnwritableValueError."""
        kind = type(value)
        if kind is str:
            return value if not self._check_text else _text(value)
        if kind is int:
            return value if _MIN_INT <= value <= _MAX_INT else _big_int(value)
        if kind is float or kind is bool or value is None or kind is bytes:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value)
        return self._other(value, kind)

    def _other(self, value: Any, kind: type) -> Any:
        if isinstance(value, np.generic):
            return _numpy_scalar(self, value)
        if kind.__module__.partition(".")[0] == "pyarrow":
            return _arrow(self, value)
        if isinstance(value, dt.tzinfo):
            return self._pickle(value, "its time zone is of a class of its own")
        if kind not in self._writable:
            try:
                self._writable[kind] = writable_class(kind)
            except UnwritableClassError as error:
                raise UnwritableValueError(kind, str(error)) from error
        writable = self._writable[kind]
        if writable is None:
            return self._pickle(value, "its class is not made of plain fields")
        return self._instance(value, writable)

    def _instance(self, value: Any, writable: WritableClass) -> list[Any]:
        if writable.form == ENUM:
            known = value.name in writable.cls.__members__  # type: ignore[attr-defined]
            number = self._number(writable, ())
            return [INSTANCE, number, *([value.name, None] if known else [None, self.tree(value.value)])]
        if writable.form == NAMED_TUPLE:
            return [INSTANCE, self._number(writable, writable.slots), *map(self.tree, value)]
        fields: dict[str, Any] = {}
        for name in writable.slots:
            if hasattr(value, name):
                fields[name] = getattr(value, name)
        if writable.has_dict:
            fields.update(value.__dict__)
        number = self._number(writable, tuple(fields))
        if number == _SPECIAL:
            return self._pickle(value, f"its attribute {special_name(fields)} is none of a plain field's")
        return [INSTANCE, number, *map(self.tree, fields.values())]

    def _number(self, writable: WritableClass, fields: tuple[str, ...]) -> int:
        number = self._numbers.get((writable.cls, fields))
        if number is None and special_name(fields):
            number = self._numbers[writable.cls, fields] = _SPECIAL
        elif number is None:
            number = self._numbers[writable.cls, fields] = len(self.classes)
            annotations = [writable.annotations.get(name) for name in fields]
            self.classes.append(StoredClass(writable.form, writable.name, list(fields), annotations))
        return number

    def _pickle(self, value: Any, reason: str) -> list[Any]:
        kind = type(value)
        if not self._allow_pickle:
            raise UnwritableValueError(kind, reason)
        try:
            data = pickle.dumps(value, 5)
        except Exception as error:
            raise UnwritableValueError(kind, f"it does not pickle either ({error})") from error
        self.pickled.add(f"{kind.__module__}.{kind.__qualname__}")
        return [PICKLE, data]


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return [SURROGATES, value.encode("utf-8", "surrogatepass")]
    return value


def _big_int(value: int) -> list[Any]:
    return [BIG_INT, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)]


def _items(tag: int) -> Callable[[TreeWriter, Iterable[Any]], list[Any]]:
    return lambda w, value: [tag, *map(w.tree, value)]


def _pairs(w: TreeWriter, value: dict[Any, Any]) -> list[Any]:
    tree = w.tree
    return [tree(part) for item in value.items() for part in item]


def _default_dict(w: TreeWriter, value: defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        return w._pickle(value, "its default_factory is no built-in type")
    return [DEFAULT_DICT, name, *_pairs(w, value)]


def _zone(w: TreeWriter, zone: dt.tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        # A name is kept only if one was given.
        name = zone.tzname(None)
        return [ZONE, offset // _MICRO, None if name == dt.timezone(offset).tzname(None) else name]
    if isinstance(zone, zoneinfo.ZoneInfo) and zone.key:
        return [ZONE, zone.key]
    return w.tree(zone)


def _datetime(w: TreeWriter, value: dt.datetime) -> list[Any]:
    micros = (value.replace(tzinfo=None, fold=0) - _EPOCH) // _MICRO
    return [DATETIME, micros, value.fold, _zone(w, value.tzinfo)]


def _time(w: TreeWriter, value: dt.time) -> list[Any]:
    plain = dt.datetime.combine(_EPOCH, value.replace(tzinfo=None, fold=0))
    return [TIME, (plain - _EPOCH) // _MICRO, value.fold, _zone(w, value.tzinfo)]


def _row(w: TreeWriter, value: Row) -> list[Any]:
    fields = value._fields
    names = True if type(fields) is PositionalNames else None if fields is None else list(fields)
    return [ROW, value.get_row_kind().value, names, *map(w.tree, value)]


def _numpy_scalar(w: TreeWriter, value: np.generic) -> list[Any]:
    return [NUMPY_SCALAR, _numpy_bytes(np.asarray(value), type(value))]


def _numpy_array(w: TreeWriter, value: np.ndarray[Any, Any]) -> list[Any]:
    if value.dtype.kind == "O":
        return [NUMPY_OBJECTS, list(value.shape), *map(w.tree, value.ravel().tolist())]
    return [NUMPY_ARRAY, _numpy_bytes(value, type(value))]


def _numpy_bytes(value: np.ndarray[Any, Any], kind: type) -> bytes:
    out = io.BytesIO()
    try:
        np.lib.format.write_array(out, value, allow_pickle=False)
    except ValueError as error:
        raise UnwritableValueError(kind, f"its dtype {value.dtype} holds Python objects") from error
    return out.getvalue()


def _arrow(w: TreeWriter, value: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(value, pa.RecordBatch | pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write(value)
        return [
            ARROW_BATCH if isinstance(value, pa.RecordBatch) else ARROW_TABLE,
            sink.getvalue().to_pybytes(),
        ]
    return w._pickle(value, "of Arrow's types only RecordBatch and Table are written")


_WRITERS: Final[dict[type, Callable[[TreeWriter, Any], list[Any]]]] = {
    list: _items(LIST),
    tuple: _items(TUPLE),
    dict: lambda w, value: [DICT, *_pairs(w, value)],
    set: _items(SET),
    frozenset: _items(FROZENSET),
    Decimal: lambda w, value: [DECIMAL, str(value)],
    dt.date: lambda w, value: [DATE, value.toordinal()],
    dt.time: _time,
    dt.datetime: _datetime,
    dt.timedelta: lambda w, value: [TIMEDELTA, value.days, value.seconds, value.microseconds],
    dt.timezone: _zone,
    zoneinfo.ZoneInfo: lambda w, value: (
        [ZONE, value.key] if value.key else w._pickle(value, "its time zone has no key")
    ),
    uuid.UUID: lambda w, value: [UUID, value.bytes],
    range: lambda w, value: [RANGE, *map(w.tree, (value.start, value.stop, value.step))],
    complex: lambda w, value: [COMPLEX, value.real, value.imag],
    Fraction: lambda w, value: [FRACTION, w.tree(value.numerator), w.tree(value.denominator)],
    bytearray: lambda w, value: [BYTEARRAY, bytes(value)],
    deque: lambda w, value: [DEQUE, value.maxlen, *map(w.tree, value)],
    OrderedDict: lambda w, value: [ORDERED_DICT, *_pairs(w, value)],
    Counter: lambda w, value: [COUNTER, *_pairs(w, value)],
    defaultdict: _default_dict,
    Row: _row,
    np.ndarray: _numpy_array,
}


class TreeReader:
    """Makes values of the trees of one run."""

    def __init__(
        self, classes: list[StoredClass], trusted: bool, resolve: Callable[[str], type] = resolve_class
    ) -> None:
        """`resolve` returns the class of a declared name, or raises KeyDecodeError."""
        self._trusted = trusted
        self._resolve = resolve
        self._classes = classes
        #: Made when an instance needs one: a class without instances may be gone.
        self._restorers: dict[int, Callable[[list[Any]], Any]] = {}

    def value(self, tree: Any) -> Any:
        """The value. Raises ValueError for an invalid tree, ChangedFieldError, UntrustedValueError."""
        if type(tree) is not list:
            return tree
        reader = _READERS.get(tree[0]) if tree else None
        if reader is None:
            raise ValueError(f"unknown tag {tree[:1]}: written by a later version, or damaged")
        return reader(self, tree)

    def rest(self, tree: list[Any], start: int = 1) -> list[Any]:
        """The values of the items from `start` on."""
        value = self.value
        return [item if type(item) is not list else value(item) for item in tree[start:]]

    def pairs(self, tree: list[Any], start: int = 1) -> Iterable[tuple[Any, Any]]:
        """Keys with values."""
        items = self.rest(tree, start)
        return zip(items[::2], items[1::2], strict=True)

    def instance(self, tree: list[Any]) -> Any:
        """An instance of a user class."""
        number = tree[1]
        restorer = self._restorers.get(number)
        if restorer is None:
            stored = self._classes[number]
            if not self._trusted:
                refuse_special_names(stored)
            restorer = self._restorers[number] = restorer_of(stored, self._resolve)
        return restorer(self.rest(tree, 2))

    def unpickled(self, tree: list[Any]) -> Any:
        """A pickled value, if its file is trusted."""
        if not self._trusted:
            raise UntrustedValueError
        try:
            return pickle.loads(tree[1])
        except Exception as error:  # code of the value's class runs
            raise ChangedFieldError(
                "",
                "a pickled value",
                f"nothing that reads it ({type(error).__name__}: {error})",
                "Ship the module that defines the class of the value, and keep the name and the attributes of"
                " the class.",
            ) from error


def _read_zone(r: TreeReader, tree: list[Any]) -> dt.tzinfo:
    if isinstance(tree[1], str):
        return zoneinfo.ZoneInfo(tree[1])
    offset = dt.timedelta(microseconds=tree[1])
    if tree[2] is not None:
        return dt.timezone(offset, tree[2])
    return dt.UTC if not offset else dt.timezone(offset)


def _read_datetime(r: TreeReader, tree: list[Any]) -> dt.datetime:
    found: dt.datetime = _EPOCH + tree[1] * _MICRO
    return found.replace(fold=tree[2], tzinfo=r.value(tree[3]))


def _read_time(r: TreeReader, tree: list[Any]) -> dt.time:
    found: dt.datetime = _EPOCH + tree[1] * _MICRO
    return found.time().replace(fold=tree[2], tzinfo=r.value(tree[3]))


def _read_default_dict(r: TreeReader, tree: list[Any]) -> defaultdict[Any, Any]:
    return defaultdict(None if tree[1] is None else _FACTORIES[tree[1]], r.pairs(tree, 2))


def _read_row(r: TreeReader, tree: list[Any]) -> Row:
    values = r.rest(tree, 3)
    row = positional_row(values) if tree[2] is True else Row(*values)
    if type(tree[2]) is list:
        row.set_field_names(tree[2])
    row.set_row_kind(RowKind(tree[1]))
    return row


def _read_numpy(r: TreeReader, tree: list[Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(tree[1]), allow_pickle=False)
    return found


def _read_objects(r: TreeReader, tree: list[Any]) -> np.ndarray[Any, Any]:
    items = r.rest(tree, 2)
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made.reshape(tree[1])


def _read_arrow(r: TreeReader, tree: list[Any]) -> Any:
    import pyarrow as pa

    stream = pa.ipc.open_stream(tree[1])
    found = stream.read_next_batch() if tree[0] == ARROW_BATCH else stream.read_all()
    if not r._trusted:
        # Arrow itself believes offsets and lengths: false ones lead past the end of the message, into other
        # memory.
        found.validate(full=True)
    return found


_READERS: Final[dict[int, Callable[[TreeReader, list[Any]], Any]]] = {
    LIST: TreeReader.rest,
    TUPLE: lambda r, tree: tuple(r.rest(tree)),
    DICT: lambda r, tree: dict(r.pairs(tree)),
    SET: lambda r, tree: set(r.rest(tree)),
    FROZENSET: lambda r, tree: frozenset(r.rest(tree)),
    BIG_INT: lambda r, tree: int.from_bytes(tree[1], "big", signed=True),
    SURROGATES: lambda r, tree: tree[1].decode("utf-8", "surrogatepass"),
    DECIMAL: lambda r, tree: Decimal(tree[1]),
    DATE: lambda r, tree: dt.date.fromordinal(tree[1]),
    TIME: _read_time,
    DATETIME: _read_datetime,
    TIMEDELTA: lambda r, tree: dt.timedelta(tree[1], tree[2], tree[3]),
    ZONE: _read_zone,
    UUID: lambda r, tree: uuid.UUID(bytes=tree[1]),
    RANGE: lambda r, tree: range(*r.rest(tree)),
    COMPLEX: lambda r, tree: complex(tree[1], tree[2]),
    FRACTION: lambda r, tree: Fraction(*r.rest(tree)),
    BYTEARRAY: lambda r, tree: bytearray(tree[1]),
    DEQUE: lambda r, tree: deque(r.rest(tree, 2), tree[1]),
    ORDERED_DICT: lambda r, tree: OrderedDict(r.pairs(tree)),
    COUNTER: lambda r, tree: Counter(dict(r.pairs(tree))),
    DEFAULT_DICT: _read_default_dict,
    ROW: _read_row,
    INSTANCE: TreeReader.instance,
    NUMPY_SCALAR: lambda r, tree: _read_numpy(r, tree)[()],
    NUMPY_ARRAY: _read_numpy,
    NUMPY_OBJECTS: _read_objects,
    ARROW_BATCH: _read_arrow,
    ARROW_TABLE: _read_arrow,
    PICKLE: TreeReader.unpickled,
}
