"""JSON objects as Rows of a declared type, decoded in one step where the type is of basic fields.

Owner: none (functions). msgspec decodes the fields of a Row type and checks their types meanwhile. What it refuses is
decoded in two steps, as an object and then field by field: that way gives the Row or the exact error. So both ways
give the same. The one difference: bytes inside fields that the type does not have are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from yarrow.common.typeinfo import BasicTypeInfo, RowTypeInfo, TypeInformation
from yarrow.common.types import Row, positional_names, row_of
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

    fields = _fields(row_type, missing_is_error)
    if fields is None:
        return in_two_steps
    declared = row_type.get_field_names()
    places = {f"f{place}": name for place, name in enumerate(declared)}
    structure = msgspec.defstruct("Fields", fields, rename=places, gc=False)
    in_one_step = msgspec.json.Decoder(structure).decode
    names = tuple(declared) if row_type.is_named else positional_names(len(declared))
    values_of = msgspec.structs.astuple

    def decode_row(message: bytes) -> Row:
        try:
            found = in_one_step(message)
        except msgspec.DecodeError:
            return in_two_steps(message)
        return row_of(names, list(values_of(found)))

    return decode_row


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
