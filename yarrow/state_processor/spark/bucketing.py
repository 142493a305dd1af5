"""The task before the shuffle: rows are cut into slices by bucket, so that the shuffle moves slices and no rows.

Owner: a task's thread. Knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from yarrow.runtime.common.errors import YarrowError
from yarrow.state_processor.spark.key_buckets import Numbers
from yarrow.state_processor.spark.keyed_columns import KeyedRows

#: Columns of the exchange as Spark's tasks declare them. `source` and `sequence` say where the slice was in the
#: DataFrame.
SLICES_DDL: Final = "partition int, bucket int, source int, sequence bigint, rows binary"
_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("bucket", pa.int32()),
        ("source", pa.int32()),
        ("sequence", pa.int64()),
        ("rows", pa.binary()),
    ]
)
#: The bucket of a refusal: it comes before all others, and its `rows` are the text.
REFUSED: Final = -1
#: Rows and bytes that are cut at once.
_MOST_ROWS: Final = 1 << 18
_MOST_BYTES: Final = 32 << 20


def slices(batches: Iterable[pa.RecordBatch], rows: KeyedRows, source: int) -> Iterator[pa.RecordBatch]:
    """The rows of one partition of the DataFrame as slices. Rows that are refused become one refusal."""
    sequence = 0
    try:
        for chunk in _gathered(rows.in_schema(batch) for batch in batches):
            yield _cut(chunk, rows, source, sequence)
            sequence += 1
    except YarrowError as error:
        yield _batch([0], [REFUSED], source, sequence, [str(error).encode()])


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)


def _cut(chunk: pa.RecordBatch, rows: KeyedRows, source: int, sequence: int) -> pa.RecordBatch:
    groups = rows.key_groups(chunk.column(rows.key))
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    taken = pa.RecordBatch.from_arrays(
        [*chunk.take(pa.array(order)).columns, pa.array(ordered)], schema=rows.grouped_schema
    )
    found, starts = rows.buckets.cuts(ordered)
    ends = [*starts[1:].tolist(), len(ordered)]
    payloads = [
        taken.slice(start, end - start).serialize().to_pybytes()
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return _batch(rows.buckets.partitions_of(found), found, source, sequence, payloads)


def _batch(
    partitions: Numbers | list[int],
    buckets: Numbers | list[int],
    source: int,
    sequence: int,
    payloads: list[bytes],
) -> pa.RecordBatch:
    count = len(payloads)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.int32()),
            pa.array(buckets, pa.int32()),
            pa.array([source] * count, pa.int32()),
            pa.array([sequence] * count, pa.int64()),
            pa.array(payloads, pa.binary()),
        ],
        schema=_SCHEMA,
    )
