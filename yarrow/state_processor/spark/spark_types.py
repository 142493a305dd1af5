"""Types of columns between Arrow and Spark: which Arrow types Spark's own columns have, and what it has none for.

Owner: the calling thread; pure. It must not start Spark.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

_types = pa.types
_MOST_DIGITS: Final = 38


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of Spark's columns; instants are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns of Spark for Arrow columns. Values of types that Spark lacks become texts."""
    return StructType([StructField(field.name, from_arrow_type(_for_spark(field.type))) for field in schema])


def _for_spark(kind: pa.DataType) -> pa.DataType:
    """The type itself, or one that Spark has: no columns without a type, and no more than 38 digits."""
    if _types.is_null(kind) or (_types.is_decimal(kind) and kind.precision > _MOST_DIGITS):
        return pa.string()
    if _types.is_time(kind):
        return pa.string()
    if _types.is_list(kind):
        return pa.list_(_for_spark(kind.value_type))
    if _types.is_map(kind):
        return pa.map_(_for_spark(kind.key_type), _for_spark(kind.item_type))
    if _types.is_struct(kind):
        return pa.struct([pa.field(field.name, _for_spark(field.type)) for field in kind])
    return kind
