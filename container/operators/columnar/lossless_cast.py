"""Casts of columns that keep every value: between widths and units of one family of types, never by parsing.

Owner: the calling thread; no state. A number does not become text, and an aware timestamp not a naive one. An
integer outside the target's range fails. Must not know operators.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class LossyCastError(Exception):
    """The column cannot get the wanted type without a loss.

    The text, which may be empty, continues the sentence.
    """


def lossless_cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column in the type `wanted`. Raises LossyCastError."""
    kind = column.type
    if kind == wanted:
        return column
    if pa.types.is_dictionary(kind):
        return lossless_cast(column.dictionary_decode(), wanted)
    if pa.types.is_dictionary(wanted):
        return lossless_cast(column, wanted.value_type).dictionary_encode().cast(wanted)
    if not is_same_family(kind, wanted):
        raise LossyCastError("")
    try:
        cast = column.cast(wanted)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise LossyCastError(f" with a value that does not fit ({error})") from None
    if pa.types.is_floating(kind) and pa.types.is_floating(wanted) and wanted.bit_width < kind.bit_width:
        _require_round_trip(column, cast)
    return cast


def is_same_family(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast can keep the meaning of values; single values may still not fit."""
    types = pa.types
    if types.is_null(kind) or kind == wanted:
        return True
    if types.is_nested(kind) or types.is_nested(wanted):
        return _is_same_nesting(kind, wanted)
    if types.is_integer(kind) or types.is_floating(kind):
        return bool(
            types.is_integer(wanted)
            or types.is_floating(wanted)
            or (types.is_integer(kind) and types.is_decimal(wanted))
        )
    if types.is_timestamp(kind):
        return bool(types.is_timestamp(wanted) and (kind.tz is None) == (wanted.tz is None))
    families = (types.is_decimal, types.is_date, types.is_time, types.is_duration, _is_text, _is_bytes)
    return any(member(kind) and member(wanted) for member in families)


def _is_same_nesting(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind) and types.is_struct(wanted):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return names == [wanted.field(i).name for i in range(wanted.num_fields)] and all(
            is_same_family(kind.field(i).type, wanted.field(i).type) for i in range(kind.num_fields)
        )
    if types.is_map(kind) and types.is_map(wanted):
        return is_same_family(kind.key_type, wanted.key_type) and is_same_family(
            kind.item_type, wanted.item_type
        )
    if _is_list(kind) and _is_list(wanted):
        return is_same_family(kind.value_type, wanted.value_type)
    return False


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view")


def _require_round_trip(column: pa.Array, cast: pa.Array) -> None:
    back = cast.cast(column.type)
    same = pc.or_(pc.equal(back, column), pc.and_(pc.is_nan(back), pc.is_nan(column)))
    if pc.any(pc.invert(same)).as_py():
        raise LossyCastError(" with a value that would lose digits")
