"""Columnar routing: the same channel as for a row, order kept, nothing lost, fragments gathered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of, cut
from yarrow.common.types import Row
from yarrow.container.network import columnar_partition
from yarrow.container.network.columnar_partition import ColumnarResultPartition, ColumnRoutingError
from yarrow.container.network.output_channel import OutputChannel
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.data.elements import ArrowBatch, Batch, ControlElement, RowBatch, Watermark
from yarrow.runtime.data.key_groups import group_of_raw_key, key_group_of, operator_index_for_key_group
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.job_graph import JobEdge, ResultPartitionType
from yarrow.runtime.graph.operator_spec import KeyColumns, PartitionerKind, PartitionerSpec, StreamKind

Kind = PartitionerKind
MAX_PARALLELISM = 128


class KeepingChannel(OutputChannel):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.batches: list[ArrowBatch] = []
        self.elements: list[Batch | ControlElement] = []
        self.closed: str | None = None

    def _transmit(self, batch: Batch) -> None:
        assert not isinstance(batch, RowBatch)
        self.sent_batches += 1
        self.batches.append(batch)
        self.elements.append(batch)

    def _transmit_control(self, element: ControlElement) -> None:
        self.elements.append(element)

    def close(self, reason: str) -> None:
        self.closed = reason

    def column(self, name: str) -> list[Any]:
        return [value for batch in self.batches for value in batch.batch.column(name).to_pylist()]


def _partition(
    kind: PartitionerKind,
    channels: int,
    key_column: KeyColumns | None = "key",
    max_parallelism: int = MAX_PARALLELISM,
) -> tuple[ColumnarResultPartition, list[KeepingChannel]]:
    edge = JobEdge(
        index=3,
        source=JobVertexID("0" * 32),
        source_operator=0,
        target=JobVertexID("1" * 32),
        target_input=0,
        partitioner=PartitionerSpec(kind=kind, key_column=key_column if kind is Kind.KEY_GROUP else None),
        result_type=ResultPartitionType.PIPELINED,
        stream_kind=StreamKind.COLUMNAR,
    )
    kept = [KeepingChannel() for _ in range(channels)]
    for channel in kept:
        channel.grant(1 << 40, 1 << 40)
    return ColumnarResultPartition(edge, kept, max_parallelism), kept


def _numbers(rows: int, start: int = 0) -> ArrowBatch:
    numbers = np.arange(start, start + rows)
    stamps, kinds = pa.array(numbers * 10), bytes((numbers % 4).astype(np.uint8))
    return ArrowBatch(pa.record_batch({"key": numbers, "row": numbers}), stamps, kinds)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_COLUMNS)
@pytest.mark.parametrize("max_parallelism", [128, 100])
@settings(max_examples=25)
@given(data=st.data())
def test_rows_go_where_their_key_would(name: str, max_parallelism: int, data: st.DataObject) -> None:
    kind, values_of = KEY_COLUMNS[name]
    values = data.draw(st.lists(st.none() | values_of, min_size=1, max_size=30))
    channels = data.draw(st.sampled_from([1, 2, 3, 7, 100]))
    partition, kept = _partition(Kind.KEY_GROUP, channels, max_parallelism=max_parallelism)
    columns = {"key": array_of(values, kind), "row": pa.array(range(len(values)))}
    for batch in cut(columns, data.draw(st.lists(st.integers(0, 30), max_size=3))):
        partition.emit_batch(batch)
    partition.flush_all()
    expected: list[list[int]] = [[] for _ in kept]
    for row, value in enumerate(values):
        key = canonicalize(Row(**value) if isinstance(value, dict) else value)
        group = key_group_of(key, max_parallelism)
        expected[operator_index_for_key_group(max_parallelism, channels, group)].append(row)
    assert [channel.column("row") for channel in kept] == expected


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_rows_go_where_the_tuple_of_their_columns_would(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KEY_COLUMNS)), min_size=2, max_size=4))
    count = data.draw(st.integers(1, 30))
    channels = data.draw(st.sampled_from([2, 3, 100]))
    columns, values = {}, []
    for place, name in enumerate(names):
        kind, values_of = KEY_COLUMNS[name]
        values.append(data.draw(st.lists(st.none() | values_of, min_size=count, max_size=count)))
        columns[f"key{place}"] = array_of(values[-1], kind)
    # Named in another order than the columns of the batch have.
    keys = tuple(reversed(columns))
    partition, kept = _partition(Kind.KEY_GROUP, channels, key_column=keys)
    rows = {**columns, "row": pa.array(range(count))}
    for batch in cut(rows, data.draw(st.lists(st.integers(0, 30), max_size=3))):
        partition.emit_batch(batch)
    partition.flush_all()
    expected: list[list[int]] = [[] for _ in kept]
    for row, key in enumerate(zip(*reversed(values), strict=True)):
        raw = tuple(Row(**value) if isinstance(value, dict) else value for value in key)
        group = group_of_raw_key(raw, MAX_PARALLELISM)
        expected[operator_index_for_key_group(MAX_PARALLELISM, channels, group)].append(row)
    assert [channel.column("row") for channel in kept] == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.KEY_GROUP, Kind.SHUFFLE, Kind.REBALANCE, Kind.RESCALE, Kind.FORWARD])
@pytest.mark.parametrize("channels", [1, 2, 5, 300])
@pytest.mark.parametrize("rows", [1, 900, 40_000])
def test_each_row_arrives_once_in_order_with_its_time_and_kind(
    kind: PartitionerKind, channels: int, rows: int
) -> None:
    partition, kept = _partition(kind, channels, max_parallelism=512)
    for start in range(3):
        partition.emit_batch(_numbers(rows, start * rows))
    partition.flush_all()
    arrived = [channel.column("row") for channel in kept]
    assert all(column == sorted(column) for column in arrived)
    assert sorted(row for column in arrived for row in column) == list(range(3 * rows))
    for batch in (batch for channel in kept for batch in channel.batches):
        numbers = batch.batch.column("row").to_numpy()
        assert batch.timestamps is not None and (batch.timestamps.to_numpy() == numbers * 10).all()
        assert batch.kinds == bytes((numbers % 4).astype(np.uint8))
    assert partition.records_taken == 3 * rows
    assert partition.batches_out == sum(len(channel.batches) for channel in kept)


def test_broadcast_and_global() -> None:
    partition, kept = _partition(Kind.BROADCAST, 3)
    partition.emit_batch(_numbers(10))
    partition.flush_all()
    assert [channel.column("row") for channel in kept] == [list(range(10))] * 3
    assert partition.records_taken == 10
    partition, kept = _partition(Kind.GLOBAL, 3)
    partition.emit_batch(_numbers(10))
    partition.flush_all()
    assert [len(channel.column("row")) for channel in kept] == [10, 0, 0]


def test_large_batches_are_dealt_out_evenly_small_ones_in_turn() -> None:
    partition, kept = _partition(Kind.REBALANCE, 4)
    partition.emit_batch(_numbers(100_002))
    partition.flush_all()
    assert sorted(len(channel.column("row")) for channel in kept) == [25_000, 25_000, 25_001, 25_001]
    partition, kept = _partition(Kind.REBALANCE, 4)
    for _ in range(6):
        partition.emit_batch(_numbers(10))
    partition.flush_all()
    assert [len(channel.column("row")) for channel in kept] == [20, 20, 10, 10]


def test_fragments_are_gathered_until_they_are_large() -> None:
    partition, kept = _partition(Kind.KEY_GROUP, 2)
    sent = 0
    while not partition.batches_out:
        partition.emit_batch(_numbers(1000, sent))
        sent += 1000
        assert partition.has_buffered
    assert sent > columnar_partition.COALESCE_ROWS
    (first,) = [channel for channel in kept if channel.batches]
    assert len(first.batches[0]) >= columnar_partition.COALESCE_ROWS
    partition.flush_all()
    assert not partition.has_buffered
    assert sum(len(channel.column("row")) for channel in kept) == sent


def test_waiting_slices_do_not_keep_the_batches_they_were_cut_from() -> None:
    rows, before = 50_000, pa.total_allocated_bytes()
    partition, kept = _partition(Kind.KEY_GROUP, 2)
    keys = np.zeros(rows, np.int64)
    keys[0] = next(k for k in range(100) if _channel_of(k, 2) != _channel_of(0, 2))
    for _ in range(200):
        partition.emit_batch(ArrowBatch(pa.record_batch({"key": keys.copy(), "row": keys.copy()})))
        for channel in kept:
            channel.batches.clear()
            channel.elements.clear()
    assert partition.has_buffered
    held = pa.total_allocated_bytes() - before
    assert held < columnar_partition.MAX_PINNED_BYTES + 4 * 16 * rows
    partition.flush_all()
    assert sum(len(channel.column("key")) for channel in kept) == 200


def _channel_of(key: int, channels: int) -> int:
    return operator_index_for_key_group(MAX_PARALLELISM, channels, key_group_of(key, MAX_PARALLELISM))


def test_control_elements_follow_what_was_gathered() -> None:
    partition, kept = _partition(Kind.KEY_GROUP, 2)
    partition.emit_batch(_numbers(100))
    partition.broadcast_control(Watermark(5))
    assert all(channel.elements[-1] == Watermark(5) and len(channel.elements) == 2 for channel in kept)


def test_without_credit_batches_wait() -> None:
    partition, kept = _partition(Kind.FORWARD, 1)
    stuck = KeepingChannel()
    partition.channels = (stuck,)
    partition.emit_batch(_numbers(20_000))
    assert (partition.queued, partition.is_available, partition.drain_overdraft()) == (1, False, False)
    stuck.grant(1, 1 << 30)
    assert partition.drain_overdraft()
    assert len(stuck.column("row")) == 20_000
    partition.close("the task failed")
    assert (stuck.closed, kept[0].batches) == ("the task failed", [])


def test_a_change_of_schema_ends_a_gathered_batch() -> None:
    partition, kept = _partition(Kind.FORWARD, 1)
    partition.emit_batch(_numbers(5))
    partition.emit_batch(ArrowBatch(pa.record_batch({"key": ["a"]})))
    partition.flush_all()
    assert [batch.batch.num_rows for batch in kept[0].batches] == [5, 1]


def test_what_cannot_be_routed_is_refused() -> None:
    with pytest.raises(InvalidProgramError, match="edge 3: a custom partitioner"):
        _partition(Kind.CUSTOM, 2)
    with pytest.raises(InvalidProgramError, match="names none"):
        _partition(Kind.KEY_GROUP, 2, key_column=None)
    partition, _ = _partition(Kind.KEY_GROUP, 2, key_column="missing")
    with pytest.raises(ColumnRoutingError, match=r"0 columns named 'missing'.*\['key', 'row'\]"):
        partition.emit_batch(_numbers(5))
    partition, _ = _partition(Kind.KEY_GROUP, 2)
    with pytest.raises(ColumnRoutingError, match="key column 'key': a column of Arrow type list"):
        partition.emit_batch(ArrowBatch(pa.record_batch({"key": [[1]]})))
    partition, _ = _partition(Kind.KEY_GROUP, 2, key_column=("key", "day"))
    with pytest.raises(ColumnRoutingError, match=r"edge 3: .*0 columns named 'day'.*\['key', 'row'\]"):
        partition.emit_batch(_numbers(5))
    with pytest.raises(ColumnRoutingError, match="edge 3: key column 'day': a column of Arrow type list"):
        partition.emit_batch(ArrowBatch(pa.record_batch({"key": [1], "day": [[1]]})))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_rows_with_views_of_text_and_bytes_are_distributed(kind: pa.DataType) -> None:
    texts = [None, "", "short", "a text that is longer than a view holds in itself"] * 5
    plain = pa.array(texts, pa.large_string()).cast(
        pa.large_binary() if "binary" in str(kind) else pa.large_string()
    )
    column = plain.cast(kind)
    batch = ArrowBatch(pa.record_batch({"key": column, "row": np.arange(20)}))
    partition, channels = _partition(Kind.KEY_GROUP, 3, ("key", "row"))
    partition.emit_batch(batch)
    partition.flush_all()
    values = column.to_pylist()
    assert sorted(row for channel in channels for row in channel.column("row")) == list(range(20))
    for index, channel in enumerate(channels):
        for key, row in zip(channel.column("key"), channel.column("row"), strict=True):
            group = group_of_raw_key((key, row), MAX_PARALLELISM)
            assert (key, operator_index_for_key_group(MAX_PARALLELISM, 3, group)) == (values[row], index)
        assert {part.batch.schema.field("key").type for part in channel.batches} <= {kind}
