"""Columns of dead letters: one for each field of a DeadLetter, and letters as record batches and back.

Owner: the calling thread; no state. Files name columns, so a later version may add some and must not rename any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.common.serialization import BulkWriterFactory
from yarrow.datastream.connectors.dead_letters import DeadLetter, encodable
from yarrow.datastream.formats.columnar_files import ColumnarBulkWriter, FileColumns

_TIME: Final = pa.timestamp("ms", "UTC")

#: The columns of the files, in their order.
LETTER_COLUMNS: Final = pa.schema(
    [
        ("operator", pa.string()),
        ("input", pa.int32()),
        ("system", pa.string()),
        ("split", pa.string()),
        ("position", pa.int64()),
        ("raw", pa.binary()),
        ("encoding", pa.string()),
        ("record_type", pa.string()),
        ("key", pa.binary()),
        ("timestamp", _TIME),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
        ("schema_id", pa.int64()),
        ("places", pa.list_(pa.int32())),
        ("error_class", pa.string()),
        ("error", pa.string()),
        ("traceback", pa.string()),
        ("failed_at", _TIME),
        ("row_times", pa.list_(pa.int64())),
        ("steps", pa.list_(pa.string())),
        ("rows", pa.binary()),
        ("match_time", _TIME),
        ("timed_out", pa.bool_()),
    ]
)
#: The last columns, which files of earlier versions do not have.
ADDED_COLUMNS: Final = ("row_times", "steps", "rows", "match_time", "timed_out")
#: The column that the names of folders give.
DAY: Final = "day"

#: Fields that are null in the table where a letter has this value.
_NOTHING: Final = {"system": "", "split": "", "position": -1, "record_type": "", "timed_out": False}
_TIMES: Final = ("timestamp", "failed_at", "match_time")
_TUPLES: Final = ("places", "row_times", "steps")


def batch_of_letters(letters: Sequence[DeadLetter], schema: pa.Schema = LETTER_COLUMNS) -> pa.RecordBatch:
    """Return a row for each letter. Raises pyarrow's errors for a field of another type."""
    arrays = [pa.array([_cell(letter, field.name) for letter in letters], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def letters_of_batch(batch: pa.RecordBatch) -> list[DeadLetter]:
    """Return the letter of each row of a batch with these columns."""
    columns = {name: _values(batch, name) for name in LETTER_COLUMNS.names}
    found = zip(*(columns[name] for name in DeadLetter._fields), strict=True)
    return [DeadLetter(*values) for values in found]


def _cell(letter: DeadLetter, name: str) -> Any:
    value = getattr(letter, name)
    if name == "headers":
        return [{"name": header, "value": content} for header, content in value]
    if name in _NOTHING and value == _NOTHING[name]:
        return None
    return encodable(value) if isinstance(value, str) else value


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if name in _TIMES:
        column = column.cast(pa.int64())
    values = column.to_pylist()
    if name == "headers":
        return [tuple((each["name"], each["value"]) for each in value or ()) for value in values]
    if name in _TUPLES:
        return [tuple(value or ()) for value in values]
    nothing = _NOTHING.get(name)
    return values if nothing is None else [nothing if value is None else value for value in values]


_FILE_COLUMNS: Final = FileColumns(LETTER_COLUMNS, batch_of_letters)


class LetterWriterFactory(BulkWriterFactory[DeadLetter]):
    """Makes a writer of letters for each Parquet file."""

    can_be_concatenated = False
    counts_bytes = True

    def create(self, stream: BinaryIO) -> ColumnarBulkWriter:
        """A writer into an open stream."""
        file = pq.ParquetWriter(stream, LETTER_COLUMNS)
        return ColumnarBulkWriter(_FILE_COLUMNS, file.write_batch, file.close)
