"""Types of columns in SQL's terms as the declared types of values, as Arrow columns, and the digits of decimals.

Owner: the calling thread; no state. Whether a column may hold None (`not_null`) is not enforced by formats, nor is the
length of a text or the precision of a time. The digits of a decimal are.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.arrow_types import arrow_type
from yarrow.table.types import (
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
    IntType,
    LocalZonedTimestampType,
    MapType,
    MapViewType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

#: The columnar type of BIG_DEC, which has no number of digits of its own.
ANY_DECIMAL = pa.decimal128(38, 18)

_SINGLE_VALUES: dict[type[DataType], Callable[[], TypeInformation]] = {
    BigIntType: Types.LONG,
    BooleanType: Types.BOOLEAN,
    CharType: Types.STRING,
    DateType: Types.SQL_DATE,
    DecimalType: Types.BIG_DEC,
    DoubleType: Types.DOUBLE,
    FloatType: Types.FLOAT,
    IntType: Types.INT,
    LocalZonedTimestampType: Types.INSTANT,
    SmallIntType: Types.SHORT,
    TimeType: Types.SQL_TIME,
    TimestampType: Types.SQL_TIMESTAMP,
    TinyIntType: Types.BYTE,
    VarCharType: Types.STRING,
}


def type_information(data_type: DataType) -> TypeInformation:
    """Return the declared type of the values of a column.

    Raises InvalidProgramError for a type that no record can have.
    """
    made = _SINGLE_VALUES.get(type(data_type))
    if made is not None:
        return made()
    if isinstance(data_type, BinaryType | VarBinaryType):
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if isinstance(data_type, RowType):
        return Types.ROW_NAMED(
            data_type.field_names(), [type_information(field) for field in data_type.field_types()]
        )
    if isinstance(data_type, ArrayType):
        return Types.LIST(type_information(data_type.element_type))
    if isinstance(data_type, MapType) and not isinstance(data_type, MapViewType):
        return Types.MAP(type_information(data_type.key_type), type_information(data_type.value_type))
    raise InvalidProgramError(
        f"the type {data_type} has no values in records; declare STRING, BOOLEAN, a number, BYTES, DATE, TIME,"
        " TIMESTAMP, or ARRAY, MAP and ROW of these"
    )


def arrow_data_type(data_type: DataType, path: str) -> pa.DataType:
    """The type of an Arrow column, with the digits of its decimals; `path` names it in errors.

    Raises NoArrowTypeError, and what `type_information` raises.
    """
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, RowType):
        return pa.struct(
            [pa.field(f.name, arrow_data_type(f.data_type, f"{path}.{f.name}")) for f in data_type.fields]
        )
    if isinstance(data_type, ArrayType):
        return pa.list_(arrow_data_type(data_type.element_type, f"{path}.element"))
    if isinstance(data_type, MapType):
        key = arrow_data_type(data_type.key_type, f"{path}.key")
        return pa.map_(key, arrow_data_type(data_type.value_type, f"{path}.value"))
    declared = type_information(data_type)
    return pa.binary() if declared.python_type is bytes else arrow_type(declared, path, {})


def decimal_fitter(data_type: DecimalType) -> Callable[[Decimal], Decimal]:
    """Return a function that gives a decimal the scale of its type, rounding half up as Flink does.

    It raises ValueError for a number with more digits than the type has.
    """
    context = Context(prec=data_type.precision, rounding=ROUND_HALF_UP)
    unit = Decimal(1).scaleb(-data_type.scale)

    def fit(number: Decimal) -> Decimal:
        try:
            return number.quantize(unit, context=context)
        except InvalidOperation:
            raise ValueError(f"{data_type} is expected") from None

    return fit
