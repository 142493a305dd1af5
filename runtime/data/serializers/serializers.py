"""Row serializers: lists of rows to bytes and back, chosen from the declared type of an edge.

Declared types are written column by column. Rows of no declared type are one pickle of protocol 5, which only
a data connection that proved its peer may carry. Owner: the calling thread; a serializer has no state and may
be shared. It must not know frames, channels or credit, nor read bytes of another declared type.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from yarrow.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from yarrow.runtime.data.errors import (
    RowFormatError,
    SerializationError,
    UnpicklableRowError,
    UnsupportedTypeInfoError,
)
from yarrow.runtime.data.serializers.columns import (
    MISFITS,
    Buffer,
    ColumnCoder,
    check_value,
    read_column,
    write_column,
    write_column_runs,
)
from yarrow.runtime.data.serializers.msgpack_tuples import MESSAGE_PACK, MessagePackForm, message_form
from yarrow.runtime.data.serializers.nested import ListCoder, MapCoder, RowCoder, TupleCoder
from yarrow.runtime.data.serializers.numbers import (
    BigIntCoder,
    BoolCoder,
    DecimalCoder,
    FixedIntCoder,
    FloatCoder,
)
from yarrow.runtime.data.serializers.texts import BytesCoder, PickledCoder, TextCoder
from yarrow.runtime.data.serializers.times import DateCoder, InstantCoder, TimeCoder, TimestampCoder
from yarrow.runtime.data.serializers.transposed_rows import TRANSPOSED, dump_transposed, load_transposed
from yarrow.runtime.data.serializers.tuple_lists import TupleListCoder, TupleListTypeInfo

__all__ = [
    "ColumnarRows",
    "PickledRows",
    "RowsSerializer",
    "TupleRows",
    "dump_timestamps",
    "load_timestamps",
    "serializer_for",
]

_HEAD = struct.Struct("<BI")
_COLUMNAR: Final = 1
#: The most rows of one batch, checked before memory is taken for them.
MAX_ROWS: Final = 1 << 24


class RowsSerializer(Protocol):
    """Writes and reads lists of rows."""

    def dump_rows(self, rows: list[Any]) -> bytes:
        """The encoding of rows.

        Raises SerializationError, which names row, field, the expected and the found value.
        """

    @property
    def pickles(self) -> bool:
        """Whether rows, or some of their fields, are pickled."""

    def load_rows(self, data: Buffer) -> list[Any]:
        """The rows of an encoding.

        Raises RowFormatError for bytes that `dump_rows` of this type did not write, or SerializationError where such
        bytes are rows of another type.
        """


class ColumnarRows:
    """Rows of a declared type, written as columns.

    Any value may be None unless its place in the type forbids it.
    """

    __slots__ = ("_coder",)

    def __init__(self, coder: ColumnCoder) -> None:
        self._coder = coder

    @property
    def pickles(self) -> bool:
        """See RowsSerializer."""
        return self._coder.pickles

    def dump_rows(self, rows: list[Any]) -> bytes:
        """See RowsSerializer."""
        out = [_HEAD.pack(_COLUMNAR, len(rows))]
        if rows:
            if len(rows) > MAX_ROWS:
                raise RowFormatError(f"a batch of {len(rows)} rows is above {MAX_ROWS}; cut it")
            try:
                write_column(self._coder, rows, out)
            except MISFITS as error:
                raise self._explain(rows, error) from error
        return b"".join(out)

    def dump_runs(self, rows: list[Any], runs: Sequence[slice]) -> list[bytes]:
        """The encoding of each run of rows, as `dump_rows` gives it for the run alone; no run is empty."""
        outs = [[_HEAD.pack(_COLUMNAR, run.stop - run.start)] for run in runs]
        try:
            write_column_runs(self._coder, rows, runs, outs)
        except MISFITS:
            # Run by run: the error then names the row, and runs that fit alone are written.
            return [self.dump_rows(rows[run]) for run in runs]
        return list(map(b"".join, outs))

    def load_rows(self, data: Buffer) -> list[Any]:
        """See RowsSerializer."""
        try:
            version, count = _HEAD.unpack_from(data)
            if version != _COLUMNAR or count > MAX_ROWS:
                raise RowFormatError(
                    f"rows of version {version}, {count} of them: not written by this serializer"
                )
            at = _HEAD.size
            rows: list[Any] = []
            if count:
                values, at = read_column(self._coder, data, at, count)
                rows = values if type(values) is list else list(values)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise RowFormatError(
                f"the rows cannot be read ({error}): truncated, or of another type"
            ) from error
        if at != len(data):
            raise RowFormatError(
                f"{len(data) - at} bytes follow the rows: were they written for another type?"
            )
        return rows

    def _explain(self, rows: list[Any], error: Exception) -> Exception:
        for index, row in enumerate(rows):
            misfit = check_value(self._coder, row, "")
            if misfit is not None:
                return SerializationError(index, misfit.path, misfit.expected, misfit.value)
        return RowFormatError(f"the rows cannot be written: {error}. Return values of the declared type.")


class TupleRows:
    """Tuples of plain types: MessagePack where the rows allow it, else columns; the first byte tells which."""

    __slots__ = ("_columns", "_message")

    def __init__(self, columns: ColumnarRows, message: MessagePackForm) -> None:
        self._columns = columns
        self._message = message

    @property
    def pickles(self) -> bool:
        """See RowsSerializer."""
        return self._columns.pickles

    def dump_rows(self, rows: list[Any]) -> bytes:
        """See RowsSerializer.

        Only `load_rows` may find a value of another class, such as a str among numbers. It names the value
        too.
        """
        data = self._message.dump(rows) if rows else None
        return self._columns.dump_rows(rows) if data is None else data

    def dump_places(
        self, rows: Sequence[Any], places: npt.NDArray[np.intp], runs: Sequence[slice]
    ) -> list[bytes] | None:
        """The encoding of the rows at the places of each run, as `dump_rows` gives it for the run alone.

        None if some row does not allow MessagePack. `places`: dtype intp, shape (entries,). No run is empty.
        """
        return self._message.dump_places(rows, places, runs)

    def load_rows(self, data: Buffer) -> list[Any]:
        """See RowsSerializer. Raises SerializationError where a value does not fit the declared type."""
        if not data or data[0] != MESSAGE_PACK:
            return self._columns.load_rows(data)
        try:
            return self._message.load(data)
        except msgspec.MsgspecError:
            # The columns convert some values (True to 1), and explain the rest.
            return self._columns.load_rows(self._columns.dump_rows(self._message.load_untyped(data)))

    def load_untyped(self, data: Buffer) -> list[Any]:
        """The tuples of MessagePack as they were written, whatever the declared type. Raises RowFormatError."""
        return self._message.load_untyped(data)


class PickledRows:
    """Rows of no declared type: one pickle, protocol 5, of the list, or of columns where it can be."""

    __slots__ = ()

    @property
    def pickles(self) -> bool:
        """See RowsSerializer."""
        return True

    def dump_rows(self, rows: list[Any]) -> bytes:
        """See RowsSerializer."""
        transposed = dump_transposed(rows)
        if transposed is not None:
            return transposed
        try:
            return pickle.dumps(rows, 5)
        except Exception as error:
            for index, row in enumerate(rows):
                # Imported late: only the text of this error needs it.
                from yarrow.runtime.data.unpicklable import unpicklable_member

                place, member = unpicklable_member(row)
                try:
                    pickle.dumps(row, 5)
                except Exception as of_row:  # a user's __reduce__ may raise anything
                    raise UnpicklableRowError(index, row, place, member, of_row) from error
            raise

    def load_rows(self, data: Buffer) -> list[Any]:
        """See RowsSerializer; errors of the user's own classes pass as they are."""
        try:
            rows = load_transposed(data) if data[:1] == TRANSPOSED else pickle.loads(data)
        except (pickle.UnpicklingError, EOFError) as error:
            raise RowFormatError(
                f"the pickled rows cannot be read ({error}): truncated or damaged"
            ) from error
        if type(rows) is not list:
            raise RowFormatError(f"the pickled rows are a {type(rows).__name__}, not a list")
        return rows


_PICKLED_ROWS: Final = PickledRows()
_TIMESTAMPS: Final = ColumnarRows(FixedIntCoder("q"))


def serializer_for(type_info: TypeInformation | None) -> RowsSerializer:
    """The serializer of a declared type (None: undeclared). Raises UnsupportedTypeInfoError."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return _PICKLED_ROWS
    columns = ColumnarRows(_coder(type_info))
    message = message_form(type_info) if isinstance(type_info, TupleTypeInfo) else None
    return columns if message is None else TupleRows(columns, message)


def dump_timestamps(timestamps: list[int | None]) -> bytes:
    """Row timestamps (ms UTC, None where a row has none). Raises SerializationError beyond 64 bits."""
    return _TIMESTAMPS.dump_rows(timestamps)


def load_timestamps(data: Buffer) -> list[int | None]:
    """The inverse of dump_timestamps. Raises RowFormatError."""
    return _TIMESTAMPS.load_rows(data)


_ATOMS: Final[dict[str, Callable[[], ColumnCoder]]] = {
    "BYTE": lambda: FixedIntCoder("b"),
    "SHORT": lambda: FixedIntCoder("h"),
    "INT": lambda: FixedIntCoder("i"),
    "LONG": lambda: FixedIntCoder("q"),
    "FLOAT": FloatCoder,
    "DOUBLE": FloatCoder,
    "BOOLEAN": BoolCoder,
    "STRING": TextCoder,
    "CHAR": lambda: TextCoder(single=True),
    "BIG_INT": BigIntCoder,
    "BIG_DEC": DecimalCoder,
    "INSTANT": InstantCoder,
    "SQL_DATE": DateCoder,
    "SQL_TIME": TimeCoder,
    "SQL_TIMESTAMP": TimestampCoder,
}


def _coder(type_info: TypeInformation) -> ColumnCoder:
    if isinstance(type_info, (BasicTypeInfo, SqlTimeTypeInfo)) and type_info.tag in _ATOMS:
        return _ATOMS[type_info.tag]()
    if isinstance(type_info, TupleTypeInfo):
        return TupleCoder([_coder(field) for field in type_info.get_field_types()])
    if isinstance(type_info, RowTypeInfo):
        fields = [_coder(field) for field in type_info.get_field_types()]
        return RowCoder(type_info.get_field_names(), type_info.is_named, fields)
    if isinstance(type_info, PrimitiveArrayTypeInfo):
        if type_info.python_type is bytes:
            return BytesCoder()
        return ListCoder(_coder(type_info.element_type), nullable=False)
    if isinstance(type_info, (BasicArrayTypeInfo, ObjectArrayTypeInfo, ListTypeInfo)):
        return ListCoder(_coder(type_info.element_type), nullable=True)
    if isinstance(type_info, TupleListTypeInfo):
        return TupleListCoder(type_info.width, _coder(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        return MapCoder(_coder(type_info.key_type_info), _coder(type_info.value_type_info))
    if isinstance(type_info, PickledBytesTypeInfo):
        return PickledCoder()
    raise UnsupportedTypeInfoError(
        f"the declared type {type_info!r} has no row serializer; declare one of Types.*, or leave the type "
        f"undeclared"
    )
