"""Tuples of plain declared types as MessagePack: the fast form of the commonest rows.

msgspec writes a batch of tuples in one call and checks classes while it reads, all in C. Whether whole
numbers fit their declared width is checked while writing, where the row is known. The columnar form explains
or converts values that do not fit: a named tuple, a numpy number, a number beyond its width. Owner: the
calling thread; stateless. It must not be used for types that MessagePack cannot tell apart.
"""

from __future__ import annotations

import functools
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from yarrow.common.typeinfo import BasicTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.columns import Buffer

#: First byte of the encoding; the columnar form begins with another.
MESSAGE_PACK: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_UNTYPED: Final = msgspec.msgpack.Decoder(list[Any])
#: Up to so many rows are looked at one by one.
_FEW: Final = 4

#: The types for reading: the writer has checked the width of numbers.
_READ: Final[dict[str, Any]] = {
    "BYTE": int | None,
    "SHORT": int | None,
    "INT": int | None,
    "LONG": int | None,
    "DOUBLE": float | None,
    "BOOLEAN": bool | None,
    "STRING": str | None,
}
#: The types that may be written.
_WRITTEN: Final[dict[str, Any]] = _READ | {
    "BYTE": Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)] | None,
    "SHORT": Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)] | None,
    "INT": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None,
    "LONG": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
}


class _Width(NamedTuple):
    """Whole numbers of one declared width, and the first bytes in MessagePack of numbers beyond it."""

    tag: str
    #: The code of the width in `struct`.
    code: str
    #: Bytes before every number beyond it,
    beyond: bytes
    #: but for those before which this stands, with the highest bit of the number set.
    partly_beyond: bytes


_WIDTHS: Final = (
    _Width("BYTE", "b", b"\xcd\xce\xcf\xd1\xd2\xd3", b"\xcc"),
    _Width("SHORT", "h", b"\xce\xcf\xd2\xd3", b"\xcd"),
    _Width("INT", "i", b"\xcf\xd3", b"\xce"),
    _Width("LONG", "q", b"", b"\xcf"),
)

_CODES: Final = {width.tag: width.code for width in _WIDTHS}


@functools.lru_cache(256)
def message_form(type_info: TupleTypeInfo) -> MessagePackForm | None:
    """The form of tuples of a type, which never changes; None when MessagePack has none for it.

    To make one takes 0.1 ms, and each edge and each state of a task asks for one.
    """
    return None if _row_type(type_info, _READ) is None else MessagePackForm(type_info)


def _row_type(type_info: TypeInformation, types: Mapping[str, Any]) -> Any | None:
    """The Python type that msgspec checks for a tuple of plain types; None when the type has no such form."""
    if isinstance(type_info, BasicTypeInfo):
        return types.get(type_info.tag)
    if isinstance(type_info, TupleTypeInfo):
        fields = [_row_type(field, types) for field in type_info.get_field_types()]
        if fields and None not in fields:
            return functools.reduce(operator.or_, (tuple.__class_getitem__(tuple(fields)), None))
    return None


def _tags(type_info: TypeInformation) -> set[str]:
    """The tags of the plain types in a type."""
    if isinstance(type_info, TupleTypeInfo):
        return set().union(*map(_tags, type_info.get_field_types()))
    return {type_info.tag} if isinstance(type_info, BasicTypeInfo) else set()


class MessagePackForm:
    """Writes and reads lists of tuples; `None` as a result of `dump` means: use the columnar form instead."""

    __slots__ = ("_decoder", "_numbers", "_pack", "_widths", "_written")

    def __init__(self, type_info: TupleTypeInfo) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[_row_type(type_info, _READ)])  # type: ignore[misc]
        self._written = list[_row_type(type_info, _WRITTEN)]  # type: ignore[misc]
        fields = type_info.get_field_types()
        tags = _tags(type_info)
        self._widths = [_WidthCheck(width, fields) for width in _WIDTHS if width.tag in tags]
        ranged = [
            (place, _CODES[field.tag])
            for place, field in enumerate(fields)
            if isinstance(field, BasicTypeInfo) and field.tag in _CODES
        ]
        # With one place alone itemgetter would give no tuple.
        ranged = ranged * 2 if len(ranged) == 1 else ranged
        nested = any(isinstance(field, TupleTypeInfo) for field in fields)
        #: A function from a row to its whole numbers; None if some are not at hand. Packing takes only
        #: numbers that fit.
        self._numbers = (
            operator.itemgetter(*(place for place, _ in ranged)) if ranged and not nested else None
        )
        self._pack = struct.Struct("=" + "".join(code for _, code in ranged)).pack

    def dump(self, rows: list[Any]) -> bytes | None:
        """The encoding of rows, at least one; None if they are no plain tuples of plain values."""
        # Looking at the class of every row would cost as much as writing them; a list among tuples arrives as the
        # tuple declared.
        if type(rows[0]) is not tuple or type(rows[-1]) is not tuple:
            return None
        out = bytearray(1)
        out[0] = MESSAGE_PACK
        try:
            _ENCODER.encode_into(rows, out, 1)
            if not self._fits(rows, out):
                msgspec.convert(rows, self._written)
        except (TypeError, OverflowError, ValueError, msgspec.MsgspecError):
            return None
        return bytes(out)

    def dump_places(
        self, rows: Sequence[Any], places: npt.NDArray[np.intp], runs: Sequence[slice]
    ) -> list[bytes] | None:
        """The encoding of the rows at the places of each run, as `dump` gives it for the run alone.

        None if some row has none. `places`: dtype intp, shape (entries,).
        """
        parts = []
        for row in rows:
            data = self.dump([row])
            if data is None:
                return None
            parts.append(data[_HEAD_OF_ONE:])
        sizes = set(map(len, parts))
        if len(sizes) == 1:
            (size,) = sizes
            # A part is a value of its own type: numpy then repeats it faster than a loop does.
            packed = np.frombuffer(b"".join(parts), dtype=f"V{size}")[places].tobytes()
            return [_head(run.stop - run.start) + packed[run.start * size : run.stop * size] for run in runs]
        part_at = parts.__getitem__
        return [_head(run.stop - run.start) + b"".join(map(part_at, places[run].tolist())) for run in runs]

    def _fits(self, rows: list[Any], encoded: bytearray) -> bool:
        """True when every whole number has its width; False when that is not certain."""
        if self._numbers is None or len(rows) > _FEW:
            return all(width.fits(rows, encoded) for width in self._widths)
        try:
            for row in rows:
                self._pack(*self._numbers(row))
        except (struct.error, IndexError):  # None among them, or a row that is too short
            return False
        return True

    def load(self, data: Buffer) -> list[Any]:
        """The rows. Raises msgspec.ValidationError when they are not of the declared type."""
        rows: list[Any] = self._decoder.decode(memoryview(data)[1:])
        return rows

    @staticmethod
    def load_untyped(data: Buffer) -> list[Any]:
        """The rows as they were written, for an explanation of misfits. Raises RowFormatError."""
        try:
            return _as_tuples(_UNTYPED.decode(memoryview(data)[1:]))
        except msgspec.MsgspecError as error:
            raise RowFormatError(
                f"the rows cannot be read ({error}): truncated, or of another type"
            ) from error


class _WidthCheck:
    """Whether the whole numbers of one width in a batch have it, mostly without a look at each.

    Most batches hold small numbers and plain text: none of the bytes that would begin a number beyond the width.
    """

    __slots__ = ("_beyond", "_code", "_getters", "_partly_beyond")

    def __init__(self, width: _Width, fields: list[TypeInformation]) -> None:
        self._beyond = [bytes([mark]) for mark in width.beyond]
        self._partly_beyond = re.compile(re.escape(width.partly_beyond) + b"[\x80-\xff]")
        self._code = width.code
        own = [isinstance(field, BasicTypeInfo) and field.tag == width.tag for field in fields]
        nested = any(width.tag in _tags(field) for field in fields if isinstance(field, TupleTypeInfo))
        #: A function from a row to its numbers; None if some are in nested tuples.
        self._getters: list[Callable[[Any], Any]] | None = (
            None if nested else [operator.itemgetter(place) for place, is_own in enumerate(own) if is_own]
        )

    def fits(self, rows: list[Any], encoded: bytearray) -> bool:
        """True when all do; False when that is not certain."""
        if not any(mark in encoded for mark in self._beyond) and not self._partly_beyond.search(encoded):
            return True
        if self._getters is None:
            return False
        form = f"={len(rows)}{self._code}"
        try:
            for get in self._getters:
                struct.pack(form, *map(get, rows))
        except (struct.error, IndexError):  # None is among what `struct` does not take
            return False
        return True


@functools.lru_cache(1024)
def _head(rows: int) -> bytes:
    """The bytes before the first of so many rows."""
    # None is one byte.
    return bytes([MESSAGE_PACK]) + _ENCODER.encode([None] * rows)[:-rows]


#: The bytes before a single row.
_HEAD_OF_ONE: Final = len(_head(1))


def _as_tuples(rows: list[Any]) -> list[Any]:
    return [_as_tuple(row) for row in rows]


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if type(value) is list else value
