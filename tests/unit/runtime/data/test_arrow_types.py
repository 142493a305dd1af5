"""The one table from declared types to Arrow types, as conversions and formats use it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.datastream.formats.columns import arrow_schema
from yarrow.datastream.program.arrow_schemas import schema_of_type
from yarrow.runtime.common.errors import InvalidProgramError

COLUMNS = {
    Types.STRING(): pa.string(),
    Types.CHAR(): pa.string(),
    Types.BOOLEAN(): pa.bool_(),
    Types.BYTE(): pa.int8(),
    Types.SHORT(): pa.int16(),
    Types.INT(): pa.int32(),
    Types.LONG(): pa.int64(),
    Types.FLOAT(): pa.float32(),
    Types.DOUBLE(): pa.float64(),
    Types.SQL_DATE(): pa.date32(),
    Types.SQL_TIME(): pa.time64("us"),
    Types.SQL_TIMESTAMP(): pa.timestamp("us"),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): pa.binary(),
    Types.BASIC_ARRAY(Types.LONG()): pa.list_(pa.int64()),
    Types.MAP(Types.STRING(), Types.INT()): pa.map_(pa.string(), pa.int32()),
    Types.ROW_NAMED(["a"], [Types.LIST(Types.STRING())]): pa.struct([("a", pa.list_(pa.string()))]),
}


def row_of(declared: TypeInformation) -> RowTypeInfo:
    return Types.ROW_NAMED(["x"], [declared])


@pytest.mark.parametrize("declared", COLUMNS)
def test_files_and_conversions_have_the_same_columns(declared: TypeInformation) -> None:
    expected = pa.schema([("x", COLUMNS[declared])])
    assert schema_of_type(row_of(declared), "Map") == expected
    assert arrow_schema(row_of(declared)) == expected


def test_what_only_one_of_them_can_read_only_that_one_takes() -> None:
    assert schema_of_type(Types.INSTANT(), "Map").types == [pa.timestamp("ns", "UTC")]
    assert arrow_schema(row_of(Types.BIG_DEC())).types == [pa.decimal128(38, 18)]
    with pytest.raises(InvalidProgramError, match=r"'Map'.*'x\.value' has the type BigDecimal"):
        schema_of_type(row_of(Types.MAP(Types.STRING(), Types.BIG_DEC())), "Map")
    with pytest.raises(InvalidProgramError, match=r"'x\.a': the type Instant"):
        arrow_schema(row_of(Types.ROW_NAMED(["a"], [Types.INSTANT()])))


@pytest.mark.parametrize(
    "declared", [Types.PICKLED_BYTE_ARRAY(), Types.BIG_INT(), Types.TUPLE([Types.INT()])]
)
def test_what_has_no_arrow_type_is_refused_naming_the_field(declared: TypeInformation) -> None:
    with pytest.raises(InvalidProgramError, match=r"'x\.element'"):
        schema_of_type(row_of(Types.LIST(declared)), "Map")
    with pytest.raises(InvalidProgramError, match=r"'x\.element'"):
        arrow_schema(row_of(Types.LIST(declared)))
