"""Messages that are one value without any form around it: a number, a boolean, a text or bytes.

Owner: the task's thread; the schema pickles by its settings. Lengths and byte order are those of Flink's `raw` format.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any, Final

from yarrow.common.serialization import DeserializationSchema, SerializationSchema
from yarrow.common.type_information import TypeInformation
from yarrow.common.typeinfo import BasicTypeInfo
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.runtime.common.errors import InvalidProgramError

__all__ = ["RawSchema"]

#: Codes of the struct module by the tags of basic types.
_NUMBERS: Final = {
    "BYTE": "b",
    "SHORT": "h",
    "INT": "i",
    "LONG": "q",
    "FLOAT": "f",
    "DOUBLE": "d",
    "BOOLEAN": "?",
}
_ORDERS: Final = {"big-endian": ">", "little-endian": "<"}
_TEXT: Final = "STRING"


class RawSchema(SerializationSchema[Any], DeserializationSchema[Any]):
    """A value of a type as a message, and back.

    BYTE, SHORT, INT, LONG, FLOAT and DOUBLE have 1, 2, 4, 8, 4 and 8 bytes in the order `endianness`, "big-endian" or
    "little-endian". A BOOLEAN is one byte, a STRING its text in `charset`, an array of BYTE the bytes themselves.

    Raises InvalidProgramError for another type, ValueError for another order, and LookupError when Python has no such
    character set.
    """

    def __init__(
        self, type_info: TypeInformation, charset: str = "UTF-8", endianness: str = "big-endian"
    ) -> None:
        order = _ORDERS.get(endianness)
        if order is None:
            raise ValueError(
                f'RawSchema: endianness must be "big-endian" or "little-endian", not {endianness!r}'
            )
        codecs.lookup(charset)
        self._settings = (type_info, charset, endianness)
        self._type_info = type_info
        self._write, self._read = _forms(type_info, charset, order)

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of a value. Raises FileFormatError for None and for a value that does not fit the type."""
        try:
            return self._write(element)
        except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
            raise FileFormatError(
                f"a value of {self._type_info} is expected, not {element!r}: {error}"
            ) from error

    def deserialize(self, message: bytes) -> Any:
        """Return the value. Raises FileFormatError for bytes of another length, or in another character set."""
        try:
            return self._read(message)
        except (ValueError, struct.error) as error:
            raise FileFormatError(
                f"a raw value of {self._type_info} is expected: {error}: {message[:120]!r}"
            ) from error

    def get_produced_type(self) -> TypeInformation:
        """The type of the values."""
        return self._type_info

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._settings


def _forms(
    type_info: TypeInformation, charset: str, order: str
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """The functions from a value to bytes and back. They raise ValueError, and what the struct module raises."""
    if isinstance(type_info, BasicTypeInfo) and type_info.tag == _TEXT:
        return lambda value: str.encode(value, charset), lambda message: message.decode(charset)
    if isinstance(type_info, BasicTypeInfo) and type_info.tag in _NUMBERS:
        return _number_forms(type_info, struct.Struct(order + _NUMBERS[type_info.tag]))
    if isinstance(type_info, TypeInformation) and type_info.python_type is bytes:
        return _written_bytes, bytes
    raise InvalidProgramError(
        f"RawSchema: the type {type_info!r} has no raw form; give STRING, BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT,"
        " DOUBLE or PRIMITIVE_ARRAY(BYTE)"
    )


def _number_forms(
    type_info: BasicTypeInfo, form: struct.Struct
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    pack, unpack, length, expected = form.pack, form.unpack, form.size, type_info.python_type

    def write(value: Any) -> bytes:
        # The struct module takes any object for a boolean, and a boolean for a number.
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise TypeError(f"{expected.__name__} is expected")
        return pack(value)

    def read(message: bytes) -> Any:
        if len(message) != length:
            raise ValueError(f"{length} bytes are expected, not {len(message)}")
        return unpack(message)[0]

    return write, read


def _written_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise TypeError("bytes are expected")
    return bytes(value)
