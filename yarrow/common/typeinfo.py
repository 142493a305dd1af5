"""Type information: the declared types of streams, keys and state, as immutable values.

`Types` makes them. A type says which Python values it takes, whether these can change after they were handed
over, and has a plain form (`to_spec`) made of strings and lists, so that it travels in a graph without
pickle. The spec and its tags are a stored format: tags are added, never renamed. Values only, usable from any
thread; the coders that encode values of a type belong to the runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from yarrow.common.time import Instant
from yarrow.common.types import Row, RowKind

__all__ = [
    "BasicArrayTypeInfo",
    "BasicTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "TypeSpec",
    "Types",
]

#: The plain form of a type: a tag, or a list of a tag and its arguments. Everything msgpack and JSON can
#: carry.
TypeSpec: TypeAlias = str | list[Any]

_EPOCH_DATE = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class TypeInformation(ABC):
    """A declared type.

    Equal types have equal specs and equal hashes; a type never changes after it was made.
    """

    __slots__ = ("_identity",)

    #: Everything two types of one class may differ in; set once by the constructor.
    _identity: tuple[Any, ...]

    def __init__(self) -> None:
        object.__setattr__(self, "_identity", ())

    @property
    @abstractmethod
    def python_type(self) -> type:
        """The class of the Python values of this type."""

    @property
    @abstractmethod
    def is_immutable(self) -> bool:
        """Whether no value of this type can be changed in place, so that it may be shared without a copy."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether `value` belongs to this type: class, range of integers and all nested values.

        None belongs only inside rows, tuples, lists, object arrays and map values, and to pickled values.
        """

    @abstractmethod
    def to_spec(self) -> TypeSpec:
        """Return the plain form: strings, lists and None only."""

    @staticmethod
    def from_spec(spec: TypeSpec) -> TypeInformation:
        """Return the type that `to_spec` described.

        Raises ValueError for a spec that no type of this version has.
        """
        return _from_spec(spec)

    def need_conversion(self) -> bool:
        """Whether the internal form of a value differs from the value, as it does for dates and rows."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Return the internal form of a value: plain integers, tuples, lists and dicts. None stays None."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value of an internal form; the inverse of `to_internal_type`."""
        return obj

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._identity))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: make another one with Types")

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_spec, (self.to_spec(),)


def _bits(count: int) -> tuple[int, int]:
    return -(1 << (count - 1)), (1 << (count - 1)) - 1


#: tag -> (name as Flink prints it, Python class)
_BASIC: dict[str, tuple[str, type]] = {
    "STRING": ("String", str),
    "BYTE": ("Byte", int),
    "BOOLEAN": ("Boolean", bool),
    "SHORT": ("Short", int),
    "INT": ("Integer", int),
    "LONG": ("Long", int),
    "FLOAT": ("Float", float),
    "DOUBLE": ("Double", float),
    "CHAR": ("Character", str),
    "BIG_INT": ("BigInteger", int),
    "BIG_DEC": ("BigDecimal", Decimal),
    "INSTANT": ("Instant", Instant),
}

#: Inclusive limits of the fixed-width integers.
_RANGES: dict[str, tuple[int, int]] = {
    "BYTE": _bits(8),
    "SHORT": _bits(16),
    "INT": _bits(32),
    "LONG": _bits(64),
}

_PRIMITIVES = frozenset({"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"})


class BasicTypeInfo(TypeInformation):
    """A single value: string, boolean, number, character or Instant."""

    __slots__ = ()

    def __init__(self, tag: str) -> None:
        if tag not in _BASIC:
            raise ValueError(f"{tag!r} is not a basic type; there are {', '.join(_BASIC)}")
        object.__setattr__(self, "_identity", (tag,))

    @property
    def tag(self) -> str:
        """The name of the method of `Types` that makes this type."""
        tag: str = self._identity[0]
        return tag

    @property
    def value_range(self) -> tuple[int, int] | None:
        """The smallest and largest integer of a fixed-width integer type, else None."""
        return _RANGES.get(self.tag)

    @property
    def python_type(self) -> type:
        return _BASIC[self.tag][1]

    @property
    def is_immutable(self) -> bool:
        return True

    def accepts(self, value: object) -> bool:
        if self.python_type is int or self.python_type is float:
            # An integer in a floating-point column is a number without a fraction; a bool is not a number
            # here.
            if isinstance(value, bool):
                return False
            limits = _RANGES.get(self.tag)
            if limits is not None:
                return isinstance(value, int) and limits[0] <= value <= limits[1]
            return isinstance(value, int | self.python_type)
        if self.tag == "CHAR":
            return isinstance(value, str) and len(value) == 1
        return isinstance(value, self.python_type)

    def to_spec(self) -> TypeSpec:
        return self.tag

    def __repr__(self) -> str:
        return _BASIC[self.tag][0]


#: tag -> Python class
_SQL_TIMES: dict[str, type] = {"SQL_DATE": date, "SQL_TIME": time, "SQL_TIMESTAMP": datetime}


class SqlTimeTypeInfo(TypeInformation):
    """A date, a time of day or a date with time, all without a zone.

    Internal forms: days since 1970-01-01, microseconds since midnight, microseconds since 1970-01-01T00:00.
    """

    __slots__ = ()

    def __init__(self, tag: str) -> None:
        if tag not in _SQL_TIMES:
            raise ValueError(f"{tag!r} is not an SQL time type; there are {', '.join(_SQL_TIMES)}")
        object.__setattr__(self, "_identity", (tag,))

    @property
    def tag(self) -> str:
        """The name of the method of `Types` that makes this type."""
        tag: str = self._identity[0]
        return tag

    @property
    def python_type(self) -> type:
        return _SQL_TIMES[self.tag]

    @property
    def is_immutable(self) -> bool:
        return True

    def accepts(self, value: object) -> bool:
        if isinstance(value, datetime):
            return self.tag == "SQL_TIMESTAMP" and value.tzinfo is None
        if isinstance(value, time):
            return self.tag == "SQL_TIME" and value.tzinfo is None
        return self.tag == "SQL_DATE" and isinstance(value, date)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        if not self.accepts(obj):
            raise TypeError(
                f"{self.tag} takes a {self.python_type.__name__} without time zone, not {obj!r}; "
                "convert it, or declare Types.INSTANT() for points in time"
            )
        if self.tag == "SQL_DATE":
            return (obj - _EPOCH_DATE).days
        if self.tag == "SQL_TIME":
            return ((obj.hour * 60 + obj.minute) * 60 + obj.second) * 1_000_000 + obj.microsecond
        return (obj - _EPOCH) // _MICROSECOND

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        if self.tag == "SQL_DATE":
            return _EPOCH_DATE + timedelta(days=obj)
        moment = _EPOCH + timedelta(microseconds=obj)
        return moment.time() if self.tag == "SQL_TIME" else moment

    def to_spec(self) -> TypeSpec:
        return self.tag

    def __repr__(self) -> str:
        return {"SQL_DATE": "Date", "SQL_TIME": "Time", "SQL_TIMESTAMP": "Timestamp"}[self.tag]


class PickledBytesTypeInfo(TypeInformation):
    """Any Python value that pickles; the type of values that nothing was declared about."""

    __slots__ = ()

    @property
    def python_type(self) -> type:
        return object

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        return True

    def to_spec(self) -> TypeSpec:
        return "PICKLED_BYTE_ARRAY"

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class _ElementTypeInfo(TypeInformation):
    """A homogeneous list of values of one declared type."""

    __slots__ = ()

    _TAG = ""
    #: Whether None may stand for an element.
    _NULLABLE_ELEMENTS = True

    def __init__(self, element_type: TypeInformation) -> None:
        _require_type(f"element type of {self._TAG}", element_type)
        object.__setattr__(self, "_identity", (element_type,))

    @property
    def element_type(self) -> TypeInformation:
        """The type of the elements."""
        element_type: TypeInformation = self._identity[0]
        return element_type

    @property
    def python_type(self) -> type:
        return list

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        return isinstance(value, list) and all(
            self._NULLABLE_ELEMENTS if item is None else self.element_type.accepts(item) for item in value
        )

    def need_conversion(self) -> bool:
        return self.element_type.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return (
            obj
            if obj is None or not self.need_conversion()
            else [self.element_type.to_internal_type(i) for i in obj]
        )

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return [self.element_type.from_internal_type(item) for item in obj]

    def to_spec(self) -> TypeSpec:
        return [self._TAG, self.element_type.to_spec()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.element_type}>"


class PrimitiveArrayTypeInfo(_ElementTypeInfo):
    """An array of numbers, booleans or characters, none of them None; `bytes` for elements of type BYTE."""

    __slots__ = ()
    _TAG = "PRIMITIVE_ARRAY"
    _NULLABLE_ELEMENTS = False

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _require_basic(self._TAG, element_type, _PRIMITIVES)

    @property
    def _is_bytes(self) -> bool:
        return self.element_type.to_spec() == "BYTE"

    @property
    def python_type(self) -> type:
        return bytes if self._is_bytes else list

    @property
    def is_immutable(self) -> bool:
        return self._is_bytes

    def accepts(self, value: object) -> bool:
        return isinstance(value, bytes) if self._is_bytes else super().accepts(value)


class BasicArrayTypeInfo(_ElementTypeInfo):
    """An array of basic values, any of which may be None."""

    __slots__ = ()
    _TAG = "BASIC_ARRAY"

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(element_type)
        _require_basic(self._TAG, element_type, frozenset(_BASIC))


class ObjectArrayTypeInfo(_ElementTypeInfo):
    """An array of values of any declared type, any of which may be None."""

    __slots__ = ()
    _TAG = "OBJECT_ARRAY"


class ListTypeInfo(_ElementTypeInfo):
    """A list of values of any declared type, any of which may be None."""

    __slots__ = ()
    _TAG = "LIST"


class MapTypeInfo(TypeInformation):
    """A dict from keys of one declared type to values of another; values may be None, keys may not."""

    __slots__ = ()

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        _require_type("key type of MAP", key_type_info)
        _require_type("value type of MAP", value_type_info)
        object.__setattr__(self, "_identity", (key_type_info, value_type_info))

    @property
    def key_type_info(self) -> TypeInformation:
        """The type of the keys."""
        key_type_info: TypeInformation = self._identity[0]
        return key_type_info

    @property
    def value_type_info(self) -> TypeInformation:
        """The type of the values."""
        value_type_info: TypeInformation = self._identity[1]
        return value_type_info

    @property
    def python_type(self) -> type:
        return dict

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        return isinstance(value, dict) and all(
            self.key_type_info.accepts(key) and (item is None or self.value_type_info.accepts(item))
            for key, item in value.items()
        )

    def need_conversion(self) -> bool:
        return self.key_type_info.need_conversion() or self.value_type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type_info.to_internal_type, self.value_type_info.to_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type_info.from_internal_type, self.value_type_info.from_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def to_spec(self) -> TypeSpec:
        return ["MAP", self.key_type_info.to_spec(), self.value_type_info.to_spec()]

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type_info}, {self.value_type_info}>"


class TupleTypeInfo(TypeInformation):
    """A Python tuple with a declared type for each position; any position may hold None."""

    __slots__ = ()

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        for index, field_type in enumerate(field_types):
            _require_type(f"type of field {index} of TUPLE", field_type)
        object.__setattr__(self, "_identity", (tuple(field_types),))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the positions, in order."""
        return list(self._identity[0])

    @property
    def python_type(self) -> type:
        return tuple

    @property
    def is_immutable(self) -> bool:
        return all(field_type.is_immutable for field_type in self._identity[0])

    def accepts(self, value: object) -> bool:
        return isinstance(value, tuple) and _all_accepted(self._identity[0], value)

    def need_conversion(self) -> bool:
        return any(field_type.need_conversion() for field_type in self._identity[0])

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return tuple(t.to_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return tuple(t.from_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))

    def to_spec(self) -> TypeSpec:
        return ["TUPLE", [field_type.to_spec() for field_type in self._identity[0]]]

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._identity[0]))})"


class RowTypeInfo(TypeInformation):
    """A Row with a declared type, and if given a name, for each field; any field may hold None.

    Raises ValueError when names and types differ in number or a name comes twice.
    """

    __slots__ = ()

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        for index, field_type in enumerate(field_types):
            _require_type(f"type of field {index} of ROW", field_type)
        if field_names is not None:
            if len(field_names) != len(field_types):
                raise ValueError(f"{len(field_names)} names given for the {len(field_types)} fields of a ROW")
            if len(set(field_names)) != len(field_names):
                raise ValueError(f"field names of a ROW must differ from each other: {list(field_names)}")
        names = None if field_names is None else tuple(field_names)
        object.__setattr__(self, "_identity", (tuple(field_types), names))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields, in order."""
        return list(self._identity[0])

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, in order: f0, f1, ... when none were declared."""
        names = self._identity[1]
        return list(names) if names is not None else [f"f{index}" for index in range(len(self._identity[0]))]

    @property
    def is_named(self) -> bool:
        """Whether names were declared, so that values carry them."""
        return self._identity[1] is not None

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, or -1 when there is none of that name."""
        names = self.get_field_names()
        return names.index(field_name) if field_name in names else -1

    @property
    def python_type(self) -> type:
        return Row

    @property
    def is_immutable(self) -> bool:
        return False

    def accepts(self, value: object) -> bool:
        if not isinstance(value, Row):
            return False
        names = value.get_field_names()
        if self.is_named and names is not None and names != self.get_field_names():
            return False
        return _all_accepted(self._identity[0], value)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        if not isinstance(obj, Row):
            raise TypeError(f"{self} takes a Row, not {type(obj).__name__}")
        values = tuple(t.to_internal_type(v) for t, v in zip(self._identity[0], obj, strict=True))
        return (obj.get_row_kind().value, values)

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        row_kind, values = obj
        row = Row(*(t.from_internal_type(v) for t, v in zip(self._identity[0], values, strict=True)))
        if self.is_named:
            row.set_field_names(self._identity[1])
        row.set_row_kind(RowKind(row_kind))
        return row

    def to_spec(self) -> TypeSpec:
        names = self._identity[1]
        return ["ROW", [t.to_spec() for t in self._identity[0]], None if names is None else list(names)]

    def __repr__(self) -> str:
        if not self.is_named:
            return f"RowTypeInfo({', '.join(map(str, self._identity[0]))})"
        pairs = zip(self.get_field_names(), self._identity[0], strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field_type}' for name, field_type in pairs)})"


class Types:
    """Makes declared types."""

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`."""
        return BasicTypeInfo("STRING")

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of `int` of 8 bits, signed."""
        return BasicTypeInfo("BYTE")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return BasicTypeInfo("BOOLEAN")

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of `int` of 16 bits, signed."""
        return BasicTypeInfo("SHORT")

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of `int` of 32 bits, signed."""
        return BasicTypeInfo("INT")

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of `int` of 64 bits, signed."""
        return BasicTypeInfo("LONG")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of `float` kept in 32 bits: values lose precision when they are encoded."""
        return BasicTypeInfo("FLOAT")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of `float`."""
        return BasicTypeInfo("DOUBLE")

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of `str` of one character."""
        return BasicTypeInfo("CHAR")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of `int` of any size."""
        return BasicTypeInfo("BIG_INT")

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`."""
        return BasicTypeInfo("BIG_DEC")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of `yarrow.common.Instant`."""
        return BasicTypeInfo("INSTANT")

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`."""
        return SqlTimeTypeInfo("SQL_DATE")

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time` without a zone."""
        return SqlTimeTypeInfo("SQL_TIME")

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime` without a zone."""
        return SqlTimeTypeInfo("SQL_TIMESTAMP")

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any value that pickles."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of Rows without field names."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of Rows with these field names."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Return the type of Python tuples."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """Return the type of arrays without None; of `bytes` when the elements are BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """Return the type of arrays of basic values or None."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """Return the type of arrays of any declared type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """Return the type of dicts."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """Return the type of lists."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def TYPED_DICT(typed_dict: type, defaults: Mapping[str, Any] | None = None) -> TypeInformation:
        """Return the type of the dicts of a TypedDict class, for states.

        `defaults` are the values of fields that values written by an older program do not have. (Not in PyFlink.)
        """
        from yarrow.common.typed_dict import TypedDictTypeInfo

        return TypedDictTypeInfo.of(typed_dict, defaults)


def _require_type(what: str, value: object) -> None:
    if not isinstance(value, TypeInformation):
        raise TypeError(f"{what} must be a TypeInformation such as Types.STRING(), not {value!r}")


def _require_basic(what: str, element_type: TypeInformation, allowed: frozenset[str]) -> None:
    if not isinstance(element_type, BasicTypeInfo) or element_type.tag not in allowed:
        raise TypeError(
            f"{what} takes one of {', '.join(sorted(allowed))}, not {element_type}; use OBJECT_ARRAY"
        )


def _all_accepted(field_types: tuple[TypeInformation, ...], values: Sequence[object] | Row) -> bool:
    return len(values) == len(field_types) and all(
        value is None or field_type.accepts(value)
        for field_type, value in zip(field_types, values, strict=True)
    )


def _typed_dict(*arguments: Any) -> TypeInformation:
    from yarrow.common.typed_dict import TypedDictTypeInfo

    return TypedDictTypeInfo.from_arguments(*arguments)


_COMPOSITES: dict[str, Callable[..., TypeInformation]] = {
    "PRIMITIVE_ARRAY": lambda element: PrimitiveArrayTypeInfo(_from_spec(element)),
    "BASIC_ARRAY": lambda element: BasicArrayTypeInfo(_from_spec(element)),
    "OBJECT_ARRAY": lambda element: ObjectArrayTypeInfo(_from_spec(element)),
    "LIST": lambda element: ListTypeInfo(_from_spec(element)),
    "MAP": lambda key, value: MapTypeInfo(_from_spec(key), _from_spec(value)),
    "TUPLE": lambda fields: TupleTypeInfo([_from_spec(field) for field in fields]),
    "ROW": lambda fields, names: RowTypeInfo([_from_spec(field) for field in fields], names),
    "TYPED_DICT": _typed_dict,
}


def _from_spec(spec: TypeSpec) -> TypeInformation:
    if isinstance(spec, str):
        if spec in _BASIC:
            return BasicTypeInfo(spec)
        if spec in _SQL_TIMES:
            return SqlTimeTypeInfo(spec)
        if spec == "PICKLED_BYTE_ARRAY":
            return PickledBytesTypeInfo()
    elif isinstance(spec, list | tuple) and spec and isinstance(spec[0], str) and spec[0] in _COMPOSITES:
        try:
            return _COMPOSITES[spec[0]](*spec[1:])
        except TypeError as error:
            raise ValueError(f"malformed type spec {spec!r}: {error}") from error
    raise ValueError(f"unknown type spec {spec!r}: it was written by a newer version or is damaged")
