"""The declared types of single values: basic values, SQL times, and values that are pickled.

Immutable values, usable from any thread. Tags are part of the stored form of a type: they are added, never renamed.
The types that hold other types stand in `collection_types` and `composite_types`.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from yarrow.common.time import Instant
from yarrow.common.type_information import TypeInformation, TypeSpec, add_single

_EPOCH_DATE = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def _bits(count: int) -> tuple[int, int]:
    return -(1 << (count - 1)), (1 << (count - 1)) - 1


#: tag -> (name as Flink prints it, Python class)
BASIC_TYPES: dict[str, tuple[str, type]] = {
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

#: The tags of the element types of primitive arrays.
PRIMITIVES = frozenset({"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"})


class _TaggedTypeInfo(TypeInformation):
    """A type that its tag alone tells from the others, of values that never change."""

    __slots__ = ()

    @property
    def tag(self) -> str:
        """The name of the method of `Types` that makes this type."""
        tag: str = self._identity[0]
        return tag

    @property
    def is_immutable(self) -> bool:
        return True

    def to_spec(self) -> TypeSpec:
        return self.tag


class BasicTypeInfo(_TaggedTypeInfo):
    """A single value: string, boolean, number, character or Instant."""

    __slots__ = ()

    def __init__(self, tag: str) -> None:
        if tag not in BASIC_TYPES:
            raise ValueError(f"{tag!r} is not a basic type; there are {', '.join(BASIC_TYPES)}")
        object.__setattr__(self, "_identity", (tag,))

    @staticmethod
    def of(tag: str) -> BasicTypeInfo:
        """Return the type of this tag, of the class that the tag has. Raises ValueError for an unknown one."""
        return InstantTypeInfo() if tag == "INSTANT" else BasicTypeInfo(tag)

    @property
    def value_range(self) -> tuple[int, int] | None:
        """The smallest and largest integer of a fixed-width integer type, else None."""
        return _RANGES.get(self.tag)

    @property
    def python_type(self) -> type:
        return BASIC_TYPES[self.tag][1]

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

    def __repr__(self) -> str:
        return BASIC_TYPES[self.tag][0]


class InstantTypeInfo(BasicTypeInfo):
    """A point in time in UTC. (Values are Instants in every form; PyFlink's are microseconds inside.)"""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("INSTANT")


#: tag -> Python class
SQL_TIMES: dict[str, type] = {"SQL_DATE": date, "SQL_TIME": time, "SQL_TIMESTAMP": datetime}


class SqlTimeTypeInfo(_TaggedTypeInfo):
    """A date, a time of day or a date with time, all without a zone.

    Internal forms: days since 1970-01-01, microseconds since midnight, microseconds since 1970-01-01T00:00.
    """

    __slots__ = ()

    def __init__(self, tag: str) -> None:
        if tag not in SQL_TIMES:
            raise ValueError(f"{tag!r} is not an SQL time type; there are {', '.join(SQL_TIMES)}")
        object.__setattr__(self, "_identity", (tag,))

    @staticmethod
    def of(tag: str) -> SqlTimeTypeInfo:
        """Return the type of this tag, of the class that the tag has. Raises ValueError for an unknown one."""
        made = {"SQL_DATE": DateTypeInfo, "SQL_TIME": TimeTypeInfo, "SQL_TIMESTAMP": TimestampTypeInfo}.get(
            tag
        )
        return SqlTimeTypeInfo(tag) if made is None else made()

    @staticmethod
    def DATE() -> DateTypeInfo:
        """Return the type of `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """Return the type of `datetime.time` without a zone."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """Return the type of `datetime.datetime` without a zone."""
        return TimestampTypeInfo()

    @property
    def python_type(self) -> type:
        return SQL_TIMES[self.tag]

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

    def __repr__(self) -> str:
        return {"SQL_DATE": "Date", "SQL_TIME": "Time", "SQL_TIMESTAMP": "Timestamp"}[self.tag]


class DateTypeInfo(SqlTimeTypeInfo):
    """A date."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_DATE")


class TimeTypeInfo(SqlTimeTypeInfo):
    """A time of day without a zone."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIME")


class TimestampTypeInfo(SqlTimeTypeInfo):
    """A date with time, without a zone."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIMESTAMP")


class LocalTimeTypeInfo:
    """Makes the types of Java's local dates and times, which in Python are those of `SqlTimeTypeInfo`."""

    @staticmethod
    def LOCAL_DATE() -> DateTypeInfo:
        """Return the type of `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def LOCAL_TIME() -> TimeTypeInfo:
        """Return the type of `datetime.time` without a zone."""
        return TimeTypeInfo()

    @staticmethod
    def LOCAL_DATE_TIME() -> TimestampTypeInfo:
        """Return the type of `datetime.datetime` without a zone."""
        return TimestampTypeInfo()


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


for _single in (*map(BasicTypeInfo.of, BASIC_TYPES), *map(SqlTimeTypeInfo.of, SQL_TIMES)):
    add_single(_single.tag, _single)
add_single("PICKLED_BYTE_ARRAY", PickledBytesTypeInfo())
