"""CarriedRecords: records that a reader gave and the chain had not run at a cut, in a source's operator state.

Owner: the task thread of the source. Split positions lie behind these records, so at another parallelism the
records follow their split. Must not know readers, nor when records run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from yarrow.datastream.connectors.base import SourceRecords
from yarrow.runtime.data.elements import is_record_batch
from yarrow.runtime.data.errors import UncopyableValueError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.snapshot.errors import StateSerializationError
from yarrow.runtime.snapshot.value_serializers import value_serializer

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of the operator state; part of the format of savepoints.
CARRIED = "source-records"

#: Subtask, parallelism, whether its reader held the split, split id, rows or the bytes of an Arrow stream,
#: timestamps, rows for side outputs, ids of splits that had ended before.
Carried = tuple[
    int, int, bool, str | None, list[Any] | bytes, list[int | None] | None, list[Any] | None, list[str]
]


def can_be_carried(records: Iterable[SourceRecords], operator: str) -> bool:
    """False if a snapshot could not hold these: some objects have no stored form, or no copy."""
    serializer = value_serializer(None, CARRIED, operator, allow_pickle=True)
    try:
        elements = encode_carried(records, 0, 1, ())
        # The state keeps copies. An object that pickles and cannot be unpickled also shows here.
        for element in elements:
            freeze_or_copy(element)
        serializer.dump_values(list(elements))
    except (StateSerializationError, UncopyableValueError):
        return False
    return True


def encode_carried(
    records: Iterable[SourceRecords], subtask: int, parallelism: int, held_splits: Collection[str]
) -> list[Carried]:
    """The elements of the state; `held_splits` are the splits in the reader's own state."""
    return [
        (
            subtask,
            parallelism,
            found.split_id in held_splits,
            found.split_id,
            _rows_of(found),
            None if found.timestamps is None else list(found.timestamps),
            None if found.side is None else list(found.side),
            list(found.finished_before),
        )
        for found in records
    ]


def decode_carried(
    elements: Sequence[Carried], subtask: int, parallelism: int, splits: Collection[str]
) -> list[SourceRecords]:
    """The elements for a reader to which `splits` were restored, in order.

    Records follow their split. Other records, of an ended split or without one, stay with their subtask if
    the parallelism is the same. At another parallelism they are divided in turn.
    """
    found: list[SourceRecords] = []
    ended: list[str] = []
    for writer, writers, held, split_id, rows, stamps, side, finished in elements:
        owner = writer if writers == parallelism else writer % parallelism
        if (split_id in splits) if held else owner == subtask:
            read = _batch(rows) if isinstance(rows, bytes) else rows
            sides = None if side is None else [(tag, value) for tag, value in side]
            found.append(SourceRecords(read, stamps, split_id, sides, 0, tuple(finished)))
            if not held and split_id is not None and split_id not in ended:
                ended.append(split_id)
    if ended:
        # No other message will say that such a split holds back no watermark any more.
        found.append(SourceRecords([], finished_before=tuple(ended)))
    return found


def _rows_of(records: SourceRecords) -> list[Any] | bytes:
    rows = records.rows
    if not is_record_batch(rows):
        return list(rows)
    import pyarrow as pa  # only jobs with columns load it

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batch(data: bytes) -> pa.RecordBatch:
    import pyarrow as pa  # only jobs with columns load it

    with pa.ipc.open_stream(data) as stream:
        return stream.read_next_batch()
