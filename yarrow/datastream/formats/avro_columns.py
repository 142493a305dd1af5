"""AvroColumns: a schema of Avro as columns of Arrow, and its records to columns and back.

Owner: the calling thread; no state. Values are those that Avro files give and take (see avro_values).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

import pyarrow as pa

from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.avro_schema import AvroSchema, AvroType
from yarrow.datastream.formats.avro_values import AvroValueError, writer_values
from yarrow.datastream.formats.columns import batch_of_rows
from yarrow.runtime.common.errors import InvalidProgramError

#: The most digits of a decimal of 128 bits.
_DIGITS_OF_DECIMAL128 = 38
#: The most digits of a decimal of 256 bits, which is the widest of Arrow.
_DIGITS_OF_DECIMAL256 = 76

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "double": pa.float64(),
    "enum": pa.string(),
    "float": pa.float32(),
    "int": pa.int32(),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "long": pa.int64(),
    "string": pa.string(),
    "time-micros": pa.time64("us"),
    "time-millis": pa.time32("ms"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "uuid": pa.string(),
}


class AvroColumns:
    """The columns of the records of a schema.

    Raises InvalidProgramError for a schema without columns, naming the field.
    """

    def __init__(self, schema: AvroSchema) -> None:
        if schema.root.kind != "record":
            raise InvalidProgramError(f"a schema of a record is expected, not of {schema.root.kind}")
        self._source = schema
        #: The columns.
        self.schema = pa.schema(_fields(schema.root, ()))
        self._prepare()

    def _prepare(self) -> None:
        self._values = writer_values(self._source.root)
        self._readers = [(name, _reader(part)) for name, part in self._source.root.fields]

    def batch_of(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Return the columns of records. Raises FileFormatError naming record and field of a wrong value."""
        rows = []
        for index, record in enumerate(records):
            try:
                rows.append(self._values(record))
            except AvroValueError as error:
                raise FileFormatError(f"record {index} of a batch: {error}") from error
        return batch_of_rows(rows, self.schema)

    def records_of(self, path: str, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return the records of a batch.

        Raises FileFormatError for a column of another type, a forbidden null, or a value that the type lacks.
        """
        columns = []
        for column, field, (name, read) in zip(batch.columns, self.schema, self._readers, strict=True):
            try:
                found = column.cast(field.type)
            except pa.ArrowException as error:
                raise FileFormatError(
                    f"{path}: column {name!r} does not have the type of the schema: {error}"
                ) from error
            if found.null_count and not field.nullable:
                raise FileFormatError(f"{path}: column {name!r} has nulls; the type in the schema lacks null")
            try:
                columns.append([read(value) for value in found.to_pylist()])
            except (ValueError, OverflowError) as error:
                raise FileFormatError(
                    f"{path}: column {name!r} has a value that its type in the schema lacks: {error}"
                ) from error
        names = self.schema.names
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def __getstate__(self) -> tuple[AvroSchema, pa.Schema]:
        return self._source, self.schema

    def __setstate__(self, state: tuple[AvroSchema, pa.Schema]) -> None:
        self._source, self.schema = state
        self._prepare()


def _fields(record: AvroType, outer: tuple[str, ...]) -> list[pa.Field]:
    if record.name in outer:
        raise InvalidProgramError(f"the record {record.name} contains itself: it has no columns")
    if not record.fields:
        raise InvalidProgramError(
            f"the record {record.name} has no fields: it has no columns; give it a field"
        )
    return [_field(name, part, (*outer, record.name)) for name, part in record.fields]


def _field(name: str, declared: AvroType, outer: tuple[str, ...]) -> pa.Field:
    present = declared.without_null or declared
    return pa.field(name, _arrow(name, present, outer), nullable=present is not declared)


def _arrow(name: str, declared: AvroType, outer: tuple[str, ...]) -> pa.DataType:
    match declared.kind:
        case "record":
            return pa.struct(_fields(declared, outer))
        case "array":
            return pa.list_(_field("element", declared.parts[0], outer))
        case "map":
            return pa.map_(pa.string(), _field("value", declared.parts[0], outer))
        case "decimal":
            if declared.precision > _DIGITS_OF_DECIMAL256:
                raise InvalidProgramError(
                    f"field {name!r}: a decimal of {declared.precision} digits has no columnar form; declare a"
                    f" precision of at most {_DIGITS_OF_DECIMAL256}, or store a text"
                )
            make = pa.decimal128 if declared.precision <= _DIGITS_OF_DECIMAL128 else pa.decimal256
            return make(declared.precision, declared.scale)
        case "fixed":
            if not declared.size:
                raise InvalidProgramError(
                    f"field {name!r}: a fixed of 0 bytes has no columnar form; leave it out"
                )
            return pa.binary(declared.size)
    if declared.kind not in _ARROW:
        raise InvalidProgramError(
            f"field {name!r}: the type {declared.kind} of Avro has no columnar form; only a union with null has one"
        )
    return _ARROW[declared.kind]


def _reader(declared: AvroType) -> Callable[[Any], Any]:
    """Return a function from Arrow's Python value to that which an Avro file gives.

    The function raises ValueError or OverflowError for a value that the type lacks.
    """
    present = declared.without_null or declared
    read = _present_reader(present)
    if present is not declared:
        return lambda value: None if value is None else read(value)

    def read_present(value: Any) -> Any:
        if value is None:
            raise ValueError(f"a null, and {present.name or present.kind} is without null")
        return read(value)

    return read_present


def _present_reader(declared: AvroType) -> Callable[[Any], Any]:
    match declared.kind:
        case "record":
            readers = [(name, _reader(part)) for name, part in declared.fields]
            return lambda value: {name: read(value[name]) for name, read in readers}
        case "array":
            element = _reader(declared.parts[0])
            return lambda value: [element(part) for part in value]
        case "map":
            item = _reader(declared.parts[0])
            return lambda value: {key: item(part) for key, part in value}
        case "timestamp-micros" | "timestamp-millis":
            # Arrow may use a zone of another library.
            return lambda value: value.astimezone(UTC)
        case "uuid":
            return UUID
        case "enum":
            return lambda value: _symbol(declared, value)
    return lambda value: value


def _symbol(declared: AvroType, value: str) -> str:
    if value not in declared.symbols:
        raise ValueError(
            f"{value!r} is not among the symbols {sorted(declared.symbols)} of the enum {declared.name}"
        )
    return value
