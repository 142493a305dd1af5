"""Columns of Arrow as the bytes of a declared type, and back: the same bytes that their rows have, without rows.

The bytes are those of `serializer_for(type).dump_rows`, which a property test holds. Where a column or bytes need a
look at each value, the functions return None, and the caller takes rows. Owner: the calling thread; pure. It must not
know states.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common.typeinfo import BasicTypeInfo, TypeInformation
from yarrow.runtime.data.serializers.columns import NO_NULLS, Buffer

#: Of all rows: see ColumnarRows.
_HEAD: Final = struct.Struct("<BI")
_COLUMNAR: Final = 1
_BEFORE: Final = _HEAD.size + len(NO_NULLS)
#: Of texts: see TextCoder.
_SIZE: Final = struct.Struct("<Q")
_NUL: Final = "\0"

Bytes = npt.NDArray[np.uint8]


class _Fixed(NamedTuple):
    """Numbers of one width."""

    arrow: pa.DataType
    #: As they are stored.
    stored: str


_FIXED: Final = {
    "BYTE": _Fixed(pa.int8(), "<i1"),
    "SHORT": _Fixed(pa.int16(), "<i2"),
    "INT": _Fixed(pa.int32(), "<i4"),
    "LONG": _Fixed(pa.int64(), "<i8"),
    "FLOAT": _Fixed(pa.float32(), "<f8"),
    "DOUBLE": _Fixed(pa.float64(), "<f8"),
    "BOOLEAN": _Fixed(pa.bool_(), "<u1"),
}


def has_columns(declared: TypeInformation | None) -> bool:
    """Whether columns of the type are written and read here."""
    return isinstance(declared, BasicTypeInfo) and (declared.tag in _FIXED or declared.tag == "STRING")


def dump_column(declared: TypeInformation | None, column: pa.Array) -> bytes | None:
    """The bytes of a column's values.

    None for another type, for an empty column, and where a value is null or a text of bytes that are no UTF-8.
    """
    if not isinstance(declared, BasicTypeInfo) or column.null_count or not len(column):
        return None
    head = _HEAD.pack(_COLUMNAR, len(column)) + NO_NULLS
    fixed = _FIXED.get(declared.tag)
    if fixed is not None:
        if column.type != fixed.arrow:
            return None
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        # A signalling NaN becomes a quiet one, as in rows, of which numpy would warn.
        with np.errstate(invalid="ignore"):
            return head + numbers.astype(fixed.stored, copy=False).tobytes()
    if declared.tag != "STRING" or not pa.types.is_string(column.type):
        return None
    text = _joined(column)
    return None if text is None else b"".join((head, NO_NULLS, _SIZE.pack(len(text)), text))


def _joined(column: pa.Array) -> memoryview | None:
    """Texts with a NUL between them; None where one holds a NUL itself, or bytes that are no UTF-8."""
    if not _is_valid(column):
        return None
    wide = column.cast(pa.large_string())
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(column)], pa.int64()), wide)
    text = memoryview(pc.binary_join(whole, pa.scalar(_NUL, pa.large_string()))[0].as_buffer())
    found: Bytes = np.frombuffer(text, np.uint8)
    return text if int(np.count_nonzero(found == 0)) == len(column) - 1 else None


def load_column(declared: TypeInformation | None, data: Buffer) -> pa.Array | None:
    """The column of the bytes, of Arrow's type for the declared one.

    None for another type, for nulls, and for bytes that were not written by `dump_rows` of the type.
    """
    if not isinstance(declared, BasicTypeInfo) or len(data) < _BEFORE:
        return None
    version, count = _HEAD.unpack_from(data)
    if version != _COLUMNAR or not count or data[_HEAD.size] != NO_NULLS[0]:
        return None
    fixed = _FIXED.get(declared.tag)
    if fixed is not None:
        return _load_fixed(fixed, data, count)
    return _load_texts(data, count) if declared.tag == "STRING" else None


def _load_fixed(fixed: _Fixed, data: Buffer, count: int) -> pa.Array | None:
    stored = np.dtype(fixed.stored)
    if len(data) != _BEFORE + count * stored.itemsize:
        return None
    # Copied, because the bytes may begin at any address.
    numbers: npt.NDArray[Any] = np.frombuffer(data, stored, count, _BEFORE).copy()
    if pa.types.is_boolean(fixed.arrow):
        return pa.array(numbers.view(np.bool_)) if int(numbers.max()) <= 1 else None
    found = pa.array(numbers)
    return found if found.type == fixed.arrow else found.cast(fixed.arrow)


def _load_texts(data: Buffer, count: int) -> pa.Array | None:
    start = _BEFORE + len(NO_NULLS) + _SIZE.size
    if len(data) < start or data[_BEFORE] != NO_NULLS[0]:
        return None
    (size,) = _SIZE.unpack_from(data, _BEFORE + len(NO_NULLS))
    if len(data) != start + size or size >= 1 << 31:
        return None
    text: Bytes = np.frombuffer(data, np.uint8, size, start)
    is_text = text != 0
    borders = np.flatnonzero(~is_text)
    if len(borders) != count - 1:
        return None
    offsets = np.empty(count + 1, np.int32)
    offsets[0], offsets[-1] = 0, size - len(borders)
    offsets[1:-1] = borders - np.arange(len(borders))
    found = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text[is_text]))
    # Else a lone surrogate, or damage.
    return found if _is_valid(found) else None


def _is_valid(texts: pa.Array) -> bool:
    """Whether all texts are UTF-8, which Arrow does not check when it gets them from elsewhere."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
