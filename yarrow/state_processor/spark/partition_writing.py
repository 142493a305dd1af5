"""The task behind the shuffle: slices of one partition become a file with the state of its key groups.

Owner: a task's thread. Memory holds one bucket at a time. Knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.snapshot.errors import SnapshotStorageError
from yarrow.runtime.snapshot.handles import KeyedStateHandle, OperatorSubtaskState
from yarrow.runtime.snapshot.key_columns import split_by_key_group
from yarrow.runtime.snapshot.key_group_form import EncodedRun, Run, StateForm, encode_run
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import KEY, VALUE
from yarrow.state_processor.keyed_writing import KeyedContents, write_encoded_runs
from yarrow.state_processor.spark.bucketing import REFUSED
from yarrow.state_processor.spark.encoded_columns import encoded_columns
from yarrow.state_processor.spark.function_writing import FunctionRows, written_by_function
from yarrow.state_processor.spark.key_buckets import Numbers
from yarrow.state_processor.spark.keyed_columns import GROUP, KeyedColumns

#: A task's result: the handles of what it wrote, or why the rows are refused.
RESULT_DDL: Final = "partition int, state binary, refusal string"
_SCHEMA: Final = pa.schema([("partition", pa.int32()), ("state", pa.binary()), ("refusal", pa.string())])


class RefusedRowsError(YarrowError):
    """Rows that no other attempt would write either."""


@dataclass(frozen=True, slots=True)
class PartitionWriting:
    """Writes one partition; it travels to the tasks."""

    rows: KeyedColumns | FunctionRows
    place: ForeignFiles

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for the partition whose slices these are, in order of bucket, source and sequence; none without.

        Raises SnapshotStorageError where storage refuses the file: another attempt may have more luck.
        """
        arriving = _slices(batches)
        first = next(arriving, None)
        if first is None:
            return
        if self.rows.configuration:
            use_hdfs_settings(HdfsSettings.of(Settings(self.rows.configuration, "the writer")))
        try:
            state = self._written(first[0], _chain(first, arriving))
            yield _result(first[0], msgspec.msgpack.encode(state), None)
        except SnapshotStorageError:
            raise
        except YarrowError as error:
            yield _result(first[0], None, str(error))

    def _written(self, partition: int, arriving: Iterator[_Slice]) -> OperatorSubtaskState:
        rows, tables = self.rows, self._tables(arriving)
        key_groups = rows.buckets.key_groups(partition)
        with self.place.open() as output:
            if isinstance(rows, FunctionRows):
                return written_by_function(rows, tables, key_groups, output.file)
            handle = _state(rows, tables, key_groups, output.file)
            return OperatorSubtaskState(keyed=(handle,))

    def _tables(self, arriving: Iterator[_Slice]) -> Iterator[pa.Table]:
        """The rows of each bucket, in order of key groups."""
        schema = self.rows.grouped_schema
        bucket, waiting = REFUSED, list[pa.RecordBatch]()
        for _, number, rows in arriving:
            if number == REFUSED:
                raise RefusedRowsError(rows.to_pybytes().decode())
            if number != bucket and waiting:
                yield pa.Table.from_batches(waiting)
                waiting = []
            bucket = number
            waiting.append(pa.ipc.read_record_batch(rows, schema))
        if waiting:
            yield pa.Table.from_batches(waiting)


def _state(
    columns: KeyedColumns, tables: Iterable[pa.Table], key_groups: KeyGroupRange, output: SnapshotOutput
) -> KeyedStateHandle:
    """One state, of the tables of its buckets."""
    form, evidence = columns.target.form(columns.operator), KeyEvidence(columns.key_type)
    if columns.native:
        # Imported here alone: tasks that write the canonical form need no RocksDB.
        from yarrow.state_processor.spark.native_writing import write_database

        runs = (run for table in tables for run in _runs(columns, *_by_group(table)))
        return write_database(columns, form, evidence.of_runs(runs), key_groups, output, evidence)
    encoded = (run for table in tables for run in _encoded_runs(columns, form, *_by_group(table)))
    return write_encoded_runs(form, encoded, key_groups, output, evidence)


def _encoded_runs(
    columns: KeyedColumns, form: StateForm, table: pa.Table, groups: Numbers
) -> Iterator[EncodedRun]:
    """The runs of one bucket as bytes."""
    found = encoded_columns(columns, form, table, groups)
    if found is not None:
        yield from found
        return
    for run in _runs(columns, table, groups):
        yield from encode_run(form, run)


def _runs(columns: KeyedColumns, table: pa.Table, groups: Numbers) -> Iterator[Run]:
    """The runs of one bucket, whose rows are in order of their key groups."""
    keys = columns.keys(table.column(KEY))
    contents = columns.contents(table)
    no_nulls = not table.column(VALUE).null_count
    if no_nulls and not columns.target.ttl and len(set(keys)) == len(keys):
        starts = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            yield Run(0, int(groups[start]), keys[start:end], contents[start:end])
        return
    gathered = KeyedContents(columns.target, columns.operator)
    times = columns.access_times(table) or [None] * len(keys)
    for key, content, time in zip(keys, contents, times, strict=True):
        gathered.add(key, content, time)
    most = columns.buckets.max_parallelism
    found = gathered.by_key
    for group, (own, values) in split_by_key_group(list(found), most, list(found.values())):
        yield Run(0, group, own, values)


def _by_group(table: pa.Table) -> tuple[pa.Table, Numbers]:
    """Rows in order of their key groups, and these: int64, shape (rows,)."""
    groups: Numbers = table.column(GROUP).to_numpy().astype(np.int64)
    if np.any(groups[1:] < groups[:-1]):
        order = np.argsort(groups, kind="stable")
        return table.take(pa.array(order)), groups[order]
    return table, groups


_Slice = tuple[int, int, Any]


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[_Slice]:
    for batch in batches:
        partitions, buckets = batch.column("partition").to_pylist(), batch.column("bucket").to_pylist()
        for partition, bucket, rows in zip(partitions, buckets, batch.column("rows"), strict=True):
            yield partition, bucket, rows.as_buffer()


def _chain(first: _Slice, others: Iterator[_Slice]) -> Iterator[_Slice]:
    yield first
    yield from others


def _result(partition: int, state: bytes | None, refusal: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition], pa.int32()),
            pa.array([state], pa.binary()),
            pa.array([refusal], pa.string()),
        ],
        schema=_SCHEMA,
    )


def state_of_results(results: Iterable[tuple[int, bytes | None, str | None]]) -> OperatorSubtaskState:
    """The state of all partitions, in order. Raises StateProcessorError for rows that were refused."""
    ordered = sorted(results, key=lambda result: result[0])
    for _, _, refusal in ordered:
        if refusal is not None:
            raise StateProcessorError(refusal)
    states = [
        msgspec.msgpack.decode(state, type=OperatorSubtaskState)
        for _, state, _ in ordered
        if state is not None
    ]
    return OperatorSubtaskState(keyed=tuple(handle for state in states for handle in state.keyed))
