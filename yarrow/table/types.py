"""DataTypes: makes the types of columns in SQL's terms, for the schemas of formats.

The module users import, with the classes of the types. Values only, usable from any thread. Names and parameters are
those of Flink's Table API.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.common.types import Row, RowKind
from yarrow.table.logical_types import (
    LONGEST,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntervalType,
    IntType,
    ListViewType,
    LocalZonedTimestampType,
    MapType,
    MapViewType,
    MultisetType,
    NullType,
    NumericType,
    Resolution,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    UserDefinedType,
    VarBinaryType,
    VarCharType,
    within,
)

__all__ = [
    "ArrayType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DataType",
    "DataTypes",
    "DateType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "IntType",
    "IntervalType",
    "ListViewType",
    "LocalZonedTimestampType",
    "MapType",
    "MapViewType",
    "MultisetType",
    "NullType",
    "NumericType",
    "Resolution",
    "Row",
    "RowField",
    "RowKind",
    "RowType",
    "SmallIntType",
    "TimeType",
    "TimestampType",
    "TinyIntType",
    "UserDefinedType",
    "VarBinaryType",
    "VarCharType",
]


class DataTypes:
    """Makes the types of columns."""

    @staticmethod
    def NULL() -> NullType:
        """Return the type of None alone."""
        return NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> CharType:
        """Return the type of texts of `length` characters."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Return the type of texts of up to `length` characters."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Return the type of texts of any length."""
        return VarCharType(LONGEST, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """Return the type of True and False."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Return the type of `length` bytes."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """Return the type of up to `length` bytes."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Return the type of bytes of any length."""
        return VarBinaryType(LONGEST, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """Return the type of decimals of up to `precision` digits (1 to 38), `scale` of them behind the point."""
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """Return the type of integers of 8 bits."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """Return the type of integers of 16 bits."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """Return the type of integers of 32 bits."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """Return the type of integers of 64 bits."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """Return the type of floating-point numbers of 32 bits."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """Return the type of floating-point numbers of 64 bits."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """Return the type of dates."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """Return the type of times of day with so many digits of a fraction (0 to 9)."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """Return the type of dates with time, without a zone, with so many digits of a fraction (0 to 9)."""
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Return the type of points in time with so many digits of a fraction (0 to 9)."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Return the type of points in time; the short name of TIMESTAMP_WITH_LOCAL_TIME_ZONE."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Return the type of lists."""
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """Return the type of a list that an aggregate function keeps in state."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Return the type of dicts."""
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """Return the type of a dict that an aggregate function keeps in state."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Return the type of values with the number of their copies."""
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: Sequence[RowField] = [], nullable: bool = True) -> RowType:
        """Return the type of Rows with these fields, made by FIELD."""
        return RowType(row_fields, nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """Return a field for ROW."""
        return RowField(name, data_type, description)

    @staticmethod
    def SECOND(precision: int = 6) -> Resolution:
        """Return the unit of seconds, with so many digits of a fraction (0 to 9), for INTERVAL."""
        return Resolution("SECOND", within("precision of SECOND", precision, 0, 9))

    @staticmethod
    def MINUTE() -> Resolution:
        """Return the unit of minutes, for INTERVAL."""
        return Resolution("MINUTE")

    @staticmethod
    def HOUR() -> Resolution:
        """Return the unit of hours, for INTERVAL."""
        return Resolution("HOUR")

    @staticmethod
    def DAY(precision: int = 2) -> Resolution:
        """Return the unit of days, with so many digits (1 to 6), for INTERVAL."""
        return Resolution("DAY", within("precision of DAY", precision, 1, 6))

    @staticmethod
    def MONTH() -> Resolution:
        """Return the unit of months, for INTERVAL."""
        return Resolution("MONTH")

    @staticmethod
    def YEAR(precision: int = 2) -> Resolution:
        """Return the unit of years, with so many digits (1 to 4), for INTERVAL."""
        return Resolution("YEAR", within("precision of YEAR", precision, 1, 4))

    @staticmethod
    def INTERVAL(upper_resolution: Resolution, lower_resolution: Resolution | None = None) -> IntervalType:
        """Return the type of lengths of time in a unit, or from a unit down to a smaller one."""
        return IntervalType(upper_resolution, lower_resolution)
