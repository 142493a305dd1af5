"""JSON: lines of a file as rows or columns, and single messages.

Owner: the task's thread. Rows are decoded one by one. Arrow parses columns block by block. A block that Arrow
refuses is read again row by row, so that both ways give the same rows and the same malformed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from yarrow.common.serialization import DeserializationSchema, Encoder, SerializationSchema
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.types import Row
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.datastream.connectors.file_format import (
    FileFormatError,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.connectors.line_blocks import (
    COLUMN_BLOCK,
    ROW_BLOCK,
    BlockErrors,
    BlockParser,
    BlockReader,
    LineBlocks,
    letter_parser,
)
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.columns import arrow_schema, batch_of_rows
from yarrow.datastream.formats.json_rows import (
    ColumnDecoder,
    JsonColumnsDeserializationSchema,
    row_decoder,
    rows_decoder,
)
from yarrow.datastream.formats.values import (
    Check,
    json_reader,
    rfc3339_text,
    row_checked,
    row_reader,
    to_json,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

__all__ = [
    "JsonColumnsDeserializationSchema",
    "JsonLinesEncoder",
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]


class JsonLinesFormat(StreamFormat[Any]):
    """A format with one JSON value a line: Rows of a declared type, otherwise any value. Blank lines are skipped.

    With `columnar` the lines are objects and come as record batches. Raises InvalidProgramError when a
    columnar format has no declared type.
    """

    splittable = True
    counts_bytes = True
    decompresses = True
    reads_single_records = True

    def __init__(
        self,
        type_info: RowTypeInfo | None = None,
        columnar: bool = False,
        on_malformed: ErrorPolicy = ErrorPolicy.FAIL,
    ) -> None:
        if columnar and type_info is None:
            raise InvalidProgramError(
                "JsonLinesFormat: columns need a declared type; give type_info=Types.ROW_NAMED(...)"
            )
        self._type_info = type_info
        self._schema = arrow_schema(type_info) if columnar and type_info is not None else None
        self.errors = ErrorHandling(on_malformed)
        if type_info is not None:
            row_reader(type_info, missing_is_error=False)  # refuses a type without a form in JSON

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is JsonLinesFormat

    @property
    def makes_named_rows(self) -> bool:
        """Whether the Row type has names."""
        declared = self._type_info
        return type(self) is JsonLinesFormat and declared is not None and declared.is_named

    def produced_type(self) -> TypeInformation | None:
        """The Row type declared."""
        return self._type_info

    def produced_schema(self, first_file: str | None) -> pa.Schema | None:
        """The declared type's columns, when columnar."""
        return self._schema

    def create_reader(self, split: FileSourceSplit) -> BlockReader:
        """A reader of rows or columns."""
        size = ROW_BLOCK if self._schema is None else COLUMN_BLOCK
        return BlockReader(split, LineBlocks(split, size), self._parser(), self.errors.policy)

    def record_parser(self, path: str) -> RecordParser:
        """A parser of one line."""
        return letter_parser(self._parser(), self.errors.policy)

    def _parser(self) -> BlockParser:
        rows = _LineParser(self._type_info)
        return rows if self._schema is None else _ColumnParser(self._schema, rows)


class _LineParser(BlockParser):
    def __init__(self, type_info: RowTypeInfo | None) -> None:
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
        if type_info is not None:
            self._decode = row_decoder(type_info, missing_is_error=False)
        self._decode_many = None if type_info is None else rows_decoder(type_info, missing_is_error=False)

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> list[Any]:
        lines = block.removesuffix(b"\n").split(b"\n")
        if self._decode_many is not None:
            # Blank lines and wrong ones take the way line by line.
            with suppress(msgspec.DecodeError):
                return self._decode_many(lines)
        decode, records = self._decode, []
        for index, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                records.append(decode(line))
            except (ValueError, msgspec.DecodeError) as error:
                errors.report(index, line.removesuffix(b"\r"), str(error), error)
        return records


class _ColumnParser(BlockParser):
    def __init__(self, schema: pa.Schema, rows: _LineParser) -> None:
        self._schema = schema
        self._rows = rows
        self._columns = ColumnDecoder(schema)

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> pa.RecordBatch:
        batch = self._columns.batch(block)
        if batch is not None:
            return batch
        return batch_of_rows(self._rows.parse(block, at_file_start, errors), self._schema)


_ENCODER = msgspec.json.Encoder(decimal_format="number")


class JsonLinesEncoder(Encoder[Any]):
    """Writes each record as one line of JSON, for a FileSink in row format.

    Named Rows and dicts become objects.
    """

    takes_added_columns = True

    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Writes one line. Raises FileFormatError for a value that JSON has no form for."""
        stream.write(encoded(element) + b"\n")


def encoded(element: Any, leaf: Callable[[Any], Any] | None = None) -> bytes:
    """Return the JSON text of a value. For `leaf` see `to_json`.

    Raises FileFormatError for a value that JSON has no form for.
    """
    try:
        return _ENCODER.encode(to_json(element, leaf))
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"no JSON form: {error}: {element!r}") from error


def object_of(row: Row, check: Check) -> dict[str, Any]:
    """Return the fields of a Row as an object for `encoded`; `check` is that of `row_checked`.

    Raises FileFormatError, with the field, for a Row with other fields or a value of another type.
    """
    try:
        found: dict[str, Any] = check(row)
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"the row does not fit its declared type: {error}: {row!r}") from error
    return found


class JsonRowSerializationSchema(SerializationSchema[Row]):
    """A Row as a JSON object; made by `JsonRowSerializationSchema.builder()`.

    Decimals are numbers. Times have the form of RFC 3339 in UTC, such as 2020-01-01T01:02:03Z.
    """

    class Builder:
        """Collects settings."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None

        def with_type_info(self, type_info: RowTypeInfo) -> JsonRowSerializationSchema.Builder:
            """Set the Row type, whose names are those of the object."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema. Raises InvalidProgramError without a type."""
            if self._type_info is None:
                raise InvalidProgramError("JsonRowSerializationSchema: give the Row type by with_type_info")
            return JsonRowSerializationSchema(self._type_info)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder."""
        return JsonRowSerializationSchema.Builder()

    def __init__(self, type_info: RowTypeInfo) -> None:
        json_reader(type_info)  # refuses a type without a form in JSON
        self._type_info = type_info
        self._check = row_checked(type_info)

    def serialize(self, element: Row) -> bytes:
        """The JSON object. Raises FileFormatError for a Row with other fields or a value of another type."""
        return encoded(object_of(element, self._check), rfc3339_text)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)


class JsonRowDeserializationSchema(DeserializationSchema[Row | None]):
    """A JSON object as a Row; made by `JsonRowDeserializationSchema.builder()`."""

    class Builder:
        """Collects settings."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: RowTypeInfo) -> JsonRowDeserializationSchema.Builder:
            """The Row type."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Refused: types are declared by `type_info`."""
            raise UnsupportedFeatureError(
                "JsonRowDeserializationSchema: a JSON schema is not read; declare the type by type_info(...)"
            )

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Let an absent field be an error, not None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Let a message that cannot be read give None."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema. Raises InvalidProgramError without a type."""
            if self._type_info is None:
                raise InvalidProgramError("JsonRowDeserializationSchema: give the Row type by type_info")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing_field, self._ignore_parse_errors
            )

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """A builder."""
        return JsonRowDeserializationSchema.Builder()

    def __init__(
        self, type_info: RowTypeInfo, fail_on_missing_field: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        self._settings = (type_info, fail_on_missing_field, ignore_parse_errors)
        self._decode = row_decoder(type_info, fail_on_missing_field)
        self._decode_many = rows_decoder(type_info, fail_on_missing_field)

    @property
    def makes_new_rows(self) -> bool:
        """True: decoded values are new."""
        # A class of the user's may keep them.
        return type(self) is JsonRowDeserializationSchema

    @property
    def makes_named_rows(self) -> bool:
        """Whether the Row type has names."""
        return type(self) is JsonRowDeserializationSchema and self._settings[0].is_named

    def deserialize(self, message: bytes) -> Row | None:
        """Return the Row; None for an unreadable message if errors are ignored, else FileFormatError is raised."""
        try:
            return self._decode(message)
        except (ValueError, msgspec.DecodeError) as error:
            if self._settings[2]:
                return None
            raise FileFormatError(
                f"no JSON object of the declared type: {error}: {message[:120]!r}"
            ) from error

    def deserialize_many(self, messages: Sequence[bytes]) -> list[Row | None]:
        # A subclass may read single messages in its own way.
        if (
            self._decode_many is None
            or type(self).deserialize is not JsonRowDeserializationSchema.deserialize
        ):
            return super().deserialize_many(messages)
        return self._decode_many(messages)

    def get_produced_type(self) -> TypeInformation:
        return self._settings[0]

    def __getstate__(self) -> tuple[RowTypeInfo, bool, bool]:
        return self._settings

    def __setstate__(self, state: tuple[RowTypeInfo, bool, bool]) -> None:
        self.__init__(*state)  # type: ignore[misc]
