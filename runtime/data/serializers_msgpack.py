"""Tuples of plain declared types as MessagePack: the fast form of the commonest rows.

msgspec writes a batch of tuples in one call and checks the declared type while it reads, all in C. What does
not fit this form (a named tuple, a numpy number, a whole number beyond 64 bits) goes through the columnar
form, which explains or
converts. Owner: the calling thread; stateless. It must not be used for types that MessagePack cannot tell apart.
"""

from __future__ import annotations

import functools
import operator
from typing import Annotated, Any, Final

import msgspec

from yarrow.common.typeinfo import BasicTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers_columns import Buffer

#: First byte of the encoding; the columnar form begins with another.
MESSAGE_PACK: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_UNTYPED: Final = msgspec.msgpack.Decoder()

_PLAIN: Final[dict[str, Any]] = {
    "BYTE": Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)] | None,
    "SHORT": Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)] | None,
    "INT": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None,
    "LONG": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
    "DOUBLE": float | None,
    "BOOLEAN": bool | None,
    "STRING": str | None,
}


def message_type(type_info: TypeInformation) -> Any | None:
    """The Python type that msgspec reads for a tuple of plain types; None when the type has no such form."""
    if isinstance(type_info, BasicTypeInfo):
        return _PLAIN.get(type_info.tag)
    if isinstance(type_info, TupleTypeInfo):
        fields = [message_type(field) for field in type_info.get_field_types()]
        if fields and None not in fields:
            return functools.reduce(operator.or_, (tuple.__class_getitem__(tuple(fields)), None))
    return None


class MessagePackForm:
    """Writes and reads lists of tuples; `None` and `False` as results mean: use the columnar form instead."""

    __slots__ = ("_decoder",)

    def __init__(self, row_type: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[row_type])

    def dump(self, rows: list[Any]) -> bytes | None:
        """The encoding of rows, at least one; None when they are no plain tuples of plain values."""
        # Looking at every row would cost as much as writing them; a list among tuples arrives as the tuple declared.
        if type(rows[0]) is not tuple or type(rows[-1]) is not tuple:
            return None
        out = bytearray(1)
        out[0] = MESSAGE_PACK
        try:
            _ENCODER.encode_into(rows, out, 1)
        except (TypeError, OverflowError, ValueError, msgspec.MsgspecError):
            return None
        return bytes(out)

    def load(self, data: Buffer) -> list[Any]:
        """The rows. Raises msgspec.ValidationError when they are not of the declared type."""
        rows: list[Any] = self._decoder.decode(memoryview(data)[1:])
        return rows

    @staticmethod
    def load_untyped(data: Buffer) -> list[Any]:
        """The rows as they were written, for an explanation of what does not fit. Raises RowFormatError."""
        try:
            rows: list[Any] = _as_tuples(_UNTYPED.decode(memoryview(data)[1:]))
        except msgspec.MsgspecError as error:
            raise RowFormatError(f"the rows cannot be read ({error}): truncated, or of another type") from error
        return rows


def _as_tuples(rows: Any) -> Any:
    return [_as_tuple(row) for row in rows]


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if type(value) is list else value
