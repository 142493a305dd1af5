"""JSON objects as Rows or columns of a declared type, in one step where the type is of basic fields.

Owner: the task's thread for schemas, none for functions. msgspec decodes the fields of a Row type and checks their
types meanwhile; Arrow parses many objects as columns. What they refuse is decoded in two steps, as an object and then
field by field: that way gives the Row or the exact error. So all ways give the same. The one difference: bytes inside
fields that the type does not have are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import json as arrow_json

from yarrow.common.serialization import ColumnarDeserializationSchema
from yarrow.common.typeinfo import BasicTypeInfo, RowTypeInfo, TypeInformation
from yarrow.common.types import Row, positional_names, row_of, rows_of
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.columns import arrow_schema, batch_of_rows
from yarrow.datastream.formats.values import json_decoder, row_reader

#: Types of Python whose JSON form msgspec reads as `row_reader` does.
_DIRECT: Final = (str, int, float, bool)


def row_decoder(row_type: RowTypeInfo, missing_is_error: bool) -> Callable[[bytes], Row]:
    """Return a function from a JSON object to a Row; absent fields are None unless `missing_is_error`.

    The function raises ValueError or msgspec.DecodeError for what is no object of the type.
    """
    decode, read = json_decoder(row_type), row_reader(row_type, missing_is_error)

    def in_two_steps(message: bytes) -> Row:
        return read(decode(message))

    structure = row_structure(row_type, missing_is_error)
    if structure is None:
        return in_two_steps
    in_one_step = msgspec.json.Decoder(structure).decode
    names = names_of_rows(row_type)
    values_of = msgspec.structs.astuple

    def decode_row(message: bytes) -> Row:
        try:
            found = in_one_step(message)
        except msgspec.DecodeError:
            return in_two_steps(message)
        return row_of(names, list(values_of(found)))

    return decode_row


def rows_decoder(
    row_type: RowTypeInfo, missing_is_error: bool
) -> Callable[[Sequence[bytes]], list[Row | None]] | None:
    """Return a function from many JSON objects to their Rows, at half the cost of one by one; None = there is none.

    The function raises msgspec.DecodeError if one of them needs the second step of `row_decoder`.
    """
    structure = row_structure(row_type, missing_is_error)
    if structure is None:
        return None
    decode, values_of = msgspec.json.Decoder(structure).decode, msgspec.structs.astuple
    names = names_of_rows(row_type)

    def decode_rows(messages: Sequence[bytes]) -> list[Row | None]:
        rows: list[Row | None] = []
        rows += rows_of(names, map(list, map(values_of, map(decode, messages))), len(messages))
        return rows

    return decode_rows


def names_of_rows(row_type: RowTypeInfo) -> tuple[str, ...]:
    """Return the names that Rows of a type bear."""
    declared = row_type.get_field_names()
    return tuple(declared) if row_type.is_named else positional_names(len(declared))


def row_structure(row_type: RowTypeInfo, missing_is_error: bool) -> Any:
    """Return the msgspec type of an object with the fields of a Row type, in their order; None = there is none."""
    fields = _fields(row_type, missing_is_error)
    if fields is None:
        return None
    places = {f"f{place}": name for place, name in enumerate(row_type.get_field_names())}
    return msgspec.defstruct("Fields", fields, rename=places, gc=False)


def _fields(row_type: RowTypeInfo, missing_is_error: bool) -> list[Any] | None:
    """The fields as msgspec declares them; None = one of them has no such form."""
    fields: list[Any] = []
    for place, declared in enumerate(row_type.get_field_types()):
        kind = _kind(declared)
        if kind is None:
            return None
        fields.append((f"f{place}", kind) if missing_is_error else (f"f{place}", kind, None))
    return fields


def _kind(declared: TypeInformation) -> Any:
    if not isinstance(declared, BasicTypeInfo) or declared.tag == "CHAR":
        return None
    kind = declared.python_type
    if kind not in _DIRECT:
        return None
    if declared.value_range is None:
        return kind | None
    low, high = declared.value_range
    return Annotated[kind, msgspec.Meta(ge=low, le=high)] | None


class ColumnDecoder:
    """Parses lines of JSON into the columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        # Arrow's reader takes fewer forms of these than rows do.
        self._only_rows = any(
            pa.types.is_temporal(field.type)
            or pa.types.is_nested(field.type)
            or pa.types.is_binary(field.type)
            or pa.types.is_decimal(field.type)
            for field in schema
        )

    def batch(self, block: bytes) -> pa.RecordBatch | None:
        """The columns of a block of lines; None = Arrow does not take it, so that its lines must be decoded as rows."""
        if self._only_rows:
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=self._options,
            )
            batches = table.select(self._schema.names).cast(self._schema).combine_chunks().to_batches()
        except (pa.ArrowInvalid, KeyError):
            return None
        return batches[0] if batches else self._schema.empty_table().to_batches()[0]


class JsonColumnsDeserializationSchema(ColumnarDeserializationSchema[Row]):
    """JSON objects as columns of a declared Row type, many messages at once; an absent field is null.

    Raises InvalidProgramError for a field whose type has no columnar form.
    """

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type_info = type_info
        self._schema = arrow_schema(type_info)
        self._columns = ColumnDecoder(self._schema)
        self._row = row_decoder(type_info, missing_is_error=False)

    def produced_schema(self) -> pa.Schema:
        return self._schema

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def deserialize(self, message: bytes) -> Row:
        """Return the Row of one message. Raises FileFormatError for what is no object of the declared type."""
        try:
            return self._row(message)
        except (ValueError, msgspec.DecodeError) as error:
            raise FileFormatError(
                f"no JSON object of the declared type: {error}: {message[:120]!r}"
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """Return one row for each message. Raises FileFormatError if one is no object of the declared type."""
        # Each message gives a line of its own only if none is blank and none has a line end inside.
        if all(map(bytes.startswith, messages, repeat(b"{"))):
            block = b"\n".join(messages)
            if block.count(b"\n") + 1 == len(messages):
                batch = self._columns.batch(block)
                if batch is not None and batch.num_rows == len(messages):
                    return batch
        return batch_of_rows([self.deserialize(message) for message in messages], self._schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)
