"""The types of columns: what each is called, which parameters it has, and when two are equal.

Immutable in spirit: made by `DataTypes`, never changed. Values only, usable from any thread; how a format reads and
writes a type is the format's business. Names and limits are those of Flink's Table API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

#: The length of texts and bytes that have no limit of their own.
LONGEST = (1 << 31) - 1
_MOST_DIGITS = 38


class DataType:
    """The type of a column: a kind, its parameters, and whether None is among its values."""

    #: SQL's name of the kind.
    NAME = ""

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable

    def not_null(self) -> Self:
        """Return this type without None."""
        return self._with_nullable(False)

    def nullable(self) -> Self:
        """Return this type with None."""
        return self._with_nullable(True)

    @property
    def is_nullable(self) -> bool:
        """Whether None is among the values."""
        return self._nullable

    @classmethod
    def type_name(cls) -> str:
        """Return SQL's name of the kind, without parameters."""
        return cls.NAME

    def need_conversion(self) -> bool:
        """Whether `to_sql_type` changes a value; only types of users do."""
        return False

    def to_sql_type(self, obj: Any) -> Any:
        """Return the value as a column holds it."""
        return obj

    def from_sql_type(self, obj: Any) -> Any:
        """Return the value that a column's value stands for."""
        return obj

    def _parameters(self) -> tuple[Any, ...]:
        """Everything two types of one class may differ in, but for None."""
        return ()

    def _with_nullable(self, nullable: bool) -> Self:
        other = copy(self)
        other._nullable = nullable
        return other

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, DataType)
            and (self._nullable, self._parameters()) == (other._nullable, other._parameters())
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._nullable, self._parameters()))

    def __str__(self) -> str:
        """Return the type as SQL writes it: `DECIMAL(10, 2) NOT NULL`."""
        parameters = ", ".join(map(str, self._parameters()))
        return f"{self.NAME}{f'({parameters})' if parameters else ''}{'' if self._nullable else ' NOT NULL'}"

    def __repr__(self) -> str:
        parts = [*map(repr, self._parameters()), str(self._nullable).lower()]
        return f"{type(self).__name__}({', '.join(parts)})"


class NullType(DataType):
    """The type of None alone."""

    NAME = "NULL"

    def __init__(self) -> None:
        super().__init__(True)


class BooleanType(DataType):
    """True and False."""

    NAME = "BOOLEAN"


class NumericType(DataType):
    """A number."""


class TinyIntType(NumericType):
    """An integer of 8 bits."""

    NAME = "TINYINT"


class SmallIntType(NumericType):
    """An integer of 16 bits."""

    NAME = "SMALLINT"


class IntType(NumericType):
    """An integer of 32 bits."""

    NAME = "INT"


class BigIntType(NumericType):
    """An integer of 64 bits."""

    NAME = "BIGINT"


class FloatType(NumericType):
    """A floating-point number of 32 bits."""

    NAME = "FLOAT"


class DoubleType(NumericType):
    """A floating-point number of 64 bits."""

    NAME = "DOUBLE"


class DecimalType(NumericType):
    """A decimal.Decimal of up to `precision` digits, `scale` of them behind the point."""

    NAME = "DECIMAL"

    def __init__(self, precision: int = 10, scale: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.precision = within("precision of DECIMAL", precision, 1, _MOST_DIGITS)
        self.scale = within("scale of DECIMAL", scale, 0, precision)

    def _parameters(self) -> tuple[Any, ...]:
        return self.precision, self.scale


class _SizedType(DataType):
    """A text or bytes with a number of characters or bytes."""

    def __init__(self, length: int = 1, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.length = within(f"length of {self.NAME}", length, 1, LONGEST)

    def _parameters(self) -> tuple[Any, ...]:
        return (self.length,)


class CharType(_SizedType):
    """A text of `length` characters."""

    NAME = "CHAR"


class VarCharType(_SizedType):
    """A text of up to `length` characters."""

    NAME = "VARCHAR"


class BinaryType(_SizedType):
    """`length` bytes."""

    NAME = "BINARY"


class VarBinaryType(_SizedType):
    """Up to `length` bytes."""

    NAME = "VARBINARY"


class DateType(DataType):
    """A datetime.date."""

    NAME = "DATE"


class _FractionalSecondsType(DataType):
    """A time with `precision` digits of fractions of a second."""

    DEFAULT_PRECISION = 6

    def __init__(self, precision: int | None = None, nullable: bool = True) -> None:
        super().__init__(nullable)
        given = self.DEFAULT_PRECISION if precision is None else precision
        self.precision = within(f"precision of {self.NAME}", given, 0, 9)

    def _parameters(self) -> tuple[Any, ...]:
        return (self.precision,)


class TimeType(_FractionalSecondsType):
    """A datetime.time without a zone."""

    NAME = "TIME"
    DEFAULT_PRECISION = 0


class TimestampType(_FractionalSecondsType):
    """A datetime.datetime without a zone."""

    NAME = "TIMESTAMP"


class LocalZonedTimestampType(_FractionalSecondsType):
    """A point in time."""

    NAME = "TIMESTAMP_LTZ"


class Resolution:
    """A unit of an interval, with the digits of the number before it or of its fraction; None: not for this unit."""

    def __init__(self, unit: str, precision: int | None = None) -> None:
        self.unit = unit
        self.precision = precision

    def __str__(self) -> str:
        return self.unit if self.precision is None else f"{self.unit}({self.precision})"


class IntervalType(DataType):
    """A length of time, from an upper unit down to a lower one."""

    NAME = "INTERVAL"
    #: The units that may stand together, from large to small.
    FAMILIES = (("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND"))

    def __init__(self, upper: Resolution, lower: Resolution | None = None, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.upper = upper
        self.lower = lower
        if lower is None:
            return
        for family in self.FAMILIES:
            if upper.unit in family and lower.unit in family[family.index(upper.unit) + 1 :]:
                return
        raise ValueError(
            f"INTERVAL {upper} TO {lower} is none: the second unit must be a smaller one of YEAR and MONTH, or of"
            " DAY, HOUR, MINUTE and SECOND"
        )

    def _parameters(self) -> tuple[Any, ...]:
        return (str(self.upper) if self.lower is None else f"{self.upper} TO {self.lower}",)


class _ElementType(DataType):
    """Many values of one type."""

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.element_type = _data_type(f"element type of {self.NAME}", element_type)

    def _parameters(self) -> tuple[Any, ...]:
        return (self.element_type,)


class ArrayType(_ElementType):
    """A list."""

    NAME = "ARRAY"


class MultisetType(_ElementType):
    """Values, each with the number of its copies."""

    NAME = "MULTISET"


class ListViewType(_ElementType):
    """A list that an aggregate function keeps in state."""

    NAME = "LISTVIEW"


class MapType(DataType):
    """A dict from keys of one type to values of another."""

    NAME = "MAP"

    def __init__(self, key_type: DataType, value_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.key_type = _data_type(f"key type of {self.NAME}", key_type)
        self.value_type = _data_type(f"value type of {self.NAME}", value_type)

    def _parameters(self) -> tuple[Any, ...]:
        return self.key_type, self.value_type


class MapViewType(MapType):
    """A dict that an aggregate function keeps in state."""

    NAME = "MAPVIEW"


class RowField:
    """A field of a RowType: name, type and what is said of it."""

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a field must be a non-empty str, not {name!r}")
        self.name = name
        self.data_type = _data_type(f"type of field {name!r}", data_type)
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.name, self.data_type, self.description))

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type!r})"

    def __str__(self) -> str:
        return f"{self.name} {self.data_type}"


class RowType(DataType):
    """Rows with named fields. Raises ValueError where two fields have one name."""

    NAME = "ROW"

    def __init__(self, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        super().__init__(nullable)
        for field in fields:
            if not isinstance(field, RowField):
                raise TypeError(f"ROW takes DataTypes.FIELD(name, type), not {field!r}")
        self.fields = list(fields)
        self.names = [field.name for field in self.fields]
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"field names of a ROW must differ from each other: {self.names}")

    def field_names(self) -> list[str]:
        """Return the names of the fields, in order."""
        return list(self.names)

    def field_types(self) -> list[DataType]:
        """Return the types of the fields, in order."""
        return [field.data_type for field in self.fields]

    def _parameters(self) -> tuple[Any, ...]:
        return tuple(self.fields)


class UserDefinedType(DataType, ABC):
    """A class of users as a column of another type. Subclasses say which, and how values are turned."""

    @classmethod
    def type_name(cls) -> str:
        """Return the name of the class, without `UDT` or `Type` at its end."""
        return cls.__name__.removesuffix("UDT").removesuffix("Type").lower()

    @classmethod
    @abstractmethod
    def sql_type(cls) -> DataType:
        """Return the type of the column."""

    @classmethod
    def module(cls) -> str:
        """Return the name of the module that the class is imported from."""
        return cls.__module__

    @abstractmethod
    def serialize(self, obj: Any) -> Any:
        """Return the column's value for an object."""

    @abstractmethod
    def deserialize(self, datum: Any) -> Any:
        """Return the object for a column's value."""

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        return None if obj is None else self.sql_type().to_sql_type(self.serialize(obj))

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else self.deserialize(self.sql_type().from_sql_type(obj))


def within(what: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _data_type(what: str, value: object) -> DataType:
    if not isinstance(value, DataType):
        raise TypeError(f"{what} must be one of DataTypes, such as DataTypes.STRING(), not {value!r}")
    return value
