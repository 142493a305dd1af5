"""Tables read by the tasks of a DataFrame are those of SavepointReader, whatever wrote the snapshot."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from tests.format.golden_snapshots import native_checkpoint, savepoint
from tests.unit.state_processor.bootstrapped import Color, Pair, Point, Unsafe
from tests.unit.state_processor.spark.without_spark import READS, read_as_tasks, table_of
from yarrow.common import Row, Types
from yarrow.datastream.state import MapStateDescriptor, ValueStateDescriptor
from yarrow.runtime.snapshot.errors import CorruptSnapshotError, SnapshotFormatError, UntrustedPickleError
from yarrow.runtime.snapshot.key_group_form import EncodedRun, encoded_runs
from yarrow.state_processor import (
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    StateProcessorError,
)
from yarrow.state_processor.operator_identifier import OperatorIdentifier
from yarrow.state_processor.spark import partition_reading
from yarrow.state_processor.spark.key_group_ranges import SizedRange, divided
from yarrow.state_processor.spark.savepoint_source import SavepointSource
from yarrow.state_processor.spark.state_tables import TableKind


def rows_of(table: pa.Table) -> list[str]:
    """Rows without their order: cells of SavepointReader that Spark has as texts are texts."""
    return sorted(map(repr, table.to_pylist()))


def same_rows(path: str, operator: str, kind: TableKind, name: str, wanted: int) -> int:
    """Compares one table; gives its number of rows."""
    found = read_as_tasks(table_of(path, operator, kind, name, trusted=True), wanted)
    with SavepointReader.read(path, trust_pickle=True) as reader:
        identifier = OperatorIdentifier.for_uid_hash(operator)
        arguments = (identifier, name) if name else (identifier,)
        expected: pa.Table = getattr(reader, READS[kind])(*arguments)
    if kind is TableKind.TIMERS:
        texts = [None if each is None else repr(each) for each in expected.column("namespace").to_pylist()]
        if any(texts):
            expected, found = (table.drop_columns(["namespace"]) for table in (expected, found))
    assert found.column_names == expected.column_names
    assert rows_of(found) == rows_of(expected)
    return int(found.num_rows)


def all_tables(path: str) -> Iterator[tuple[str, TableKind, str]]:
    with SavepointReader.read(path, trust_pickle=True) as reader:
        for operator in reader.operators():
            yield operator.operator_id, TableKind.TIMERS, ""
            for state in reader.states(OperatorIdentifier.for_uid_hash(operator.operator_id)):
                if state.kind == "timers":
                    continue
                yield (
                    operator.operator_id,
                    TableKind.KEYED if state.keyed else TableKind(state.kind),
                    state.name,
                )


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [1, 5])
@pytest.mark.parametrize("snapshot", [savepoint, native_checkpoint])
def test_every_table_of_a_job_with_every_kind_of_state(tmp_path: Path, snapshot: Any, wanted: int) -> None:
    path = snapshot(tmp_path)
    read = {
        (operator, kind, name): same_rows(path, operator, kind, name, wanted)
        for operator, kind, name in all_tables(path)
    }
    assert {kind for _, kind, _ in read} == set(TableKind)
    assert sum(count > 0 for count in read.values()) > 10


def made(folder: Path, entries: dict[Any, Any], descriptor: Any, key_type: Any = None) -> str:
    rows = OperatorTransformation.bootstrap_with(list(entries.items()))
    state = rows.key_by(lambda row: row[0], key_type).to_state(descriptor, lambda row: row[1])
    return SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{folder}/made")


PICKLED: ValueStateDescriptor[Any] = ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY())


@pytest.mark.parametrize(
    "entries",
    [
        {1: 5, 2: 2**70, 3: None},
        {"a": Color.RED, "b": Color.BLUE},
        {(1, "a"): Point(1, 2.5, ("t",)), (2, "b"): Point(2, None)},
        {"a": Pair("l", 1), "b": Pair("r", 2)},
        {1.5: {"k": 1}, 2: {"m": 2, "k": None}},
        {True: [1, 2], False: []},
        {"a": {1, 2}, "b": frozenset({3})},
        {Row(1, "x"): Row(n=1, m=None)},
        {b"k": (1, (2, "x"))},
        {"a": 1, 2: "of several kinds"},
    ],
    ids=str,
)
def test_values_of_no_declared_type_have_the_columns_of_savepoint_reader(
    tmp_path: Path, entries: dict[Any, Any]
) -> None:
    path = made(tmp_path, entries, PICKLED)
    (operator, kind, name) = next(each for each in all_tables(path) if each[1] is TableKind.KEYED)
    assert same_rows(path, operator, kind, name, 3) == sum(value is not None for value in entries.values())


def test_declared_types_need_no_look_at_values(tmp_path: Path) -> None:
    path = made(
        tmp_path, {1: {"a": 2.5}}, MapStateDescriptor("s", Types.STRING(), Types.DOUBLE()), Types.LONG()
    )
    parts = table_of(path, "op", TableKind.KEYED, "s").parts()
    assert {part: shape and shape.type for part, shape in parts.items()} == {
        "key": pa.int64(), "value": pa.float64(), "map_key": pa.string(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (Types.LONG(), [1, -(2**63), 7]),
        (Types.SHORT(), [1, -5, 7]),
        (Types.DOUBLE(), [0.1, float("-inf"), -0.0]),
        (Types.FLOAT(), [0.5, 2.0, -0.0]),
        (Types.BOOLEAN(), [True, False, True]),
        (Types.STRING(), ["a", "", "\u00e9\u4e00"]),
        (Types.STRING(), ["a", "with\0nul", ""]),
        (Types.LONG(), [1, None, 3]),
        (Types.BIG_INT(), [1, 2, 3]),
        (Types.TUPLE([Types.LONG()]), [(1,), (2,), (3,)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("key_type", [Types.INT(), Types.STRING()], ids=str)
def test_values_of_declared_types(tmp_path: Path, key_type: Any, declared: Any, values: list[Any]) -> None:
    keys = [1, -2, 3] if key_type == Types.INT() else ["x", "", "z"]
    path = made(tmp_path, dict(zip(keys, values, strict=True)), ValueStateDescriptor("s", declared), key_type)
    (operator, kind, name) = next(each for each in all_tables(path) if each[1] is TableKind.KEYED)
    assert same_rows(path, operator, kind, name, 3) == sum(value is not None for value in values)


def test_columns_of_numbers_and_texts_are_read_without_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("values are looked at one by one")

    count: ValueStateDescriptor[int] = ValueStateDescriptor("s", Types.LONG())
    path = made(tmp_path, {number: number * 2 for number in range(200)}, count, Types.LONG())
    monkeypatch.setattr(partition_reading, "load_contents", refuse)
    monkeypatch.setattr(partition_reading, "load_keys", refuse)
    found = read_as_tasks(table_of(path, "op", TableKind.KEYED, "s"), 2).sort_by("key")
    assert found.to_pydict() == {"key": list(range(200)), "value": [number * 2 for number in range(200)]}


@pytest.mark.parametrize("keys", [b"x" * 12, b"x" * 8], ids=["half a key", "a key less"])
def test_keys_of_another_number_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: bytes
) -> None:
    count: ValueStateDescriptor[int] = ValueStateDescriptor("s", Types.LONG())
    path = made(tmp_path, {number: number for number in range(40)}, count, Types.LONG())
    whole = encoded_runs

    def damaged(*of_file: Any) -> Iterator[EncodedRun]:
        return (run._replace(keys=keys) for run in whole(*of_file) if run.entries > 1)

    monkeypatch.setattr(partition_reading, "encoded_runs", damaged)
    with pytest.raises(SnapshotFormatError, match=r"operator 'op': a run of state 's' cannot be read"):
        read_as_tasks(table_of(path, "op", TableKind.KEYED, "s"), 1)


def test_batches_of_large_texts_have_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No array holds more than 2 GiB of texts. The bytes are pages that nobody touches."""
    size = 800 << 20
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    large = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(mmap.mmap(-1, size)))
    text: ValueStateDescriptor[str] = ValueStateDescriptor("s", Types.STRING())
    path = made(tmp_path, dict.fromkeys(range(4), "a"), text, Types.LONG())
    monkeypatch.setattr(partition_reading, "load_column", lambda *_: large)
    (partition,) = table_of(path, "op", TableKind.KEYED, "s").partitions(1)
    schema = pa.schema([("value", pa.string())])
    batches = list(partition_reading.read_partition(partition, schema))
    assert [batch.num_rows for batch in batches] == [1, 1, 1, 1], "each key has its own key group"


def test_a_narrower_column_takes_values_that_fit_and_refuses_others(tmp_path: Path) -> None:
    count: ValueStateDescriptor[int] = ValueStateDescriptor("s", Types.LONG())
    path = made(tmp_path, {1: 5, 2: 300}, count, Types.LONG())
    (partition,) = table_of(path, "op", TableKind.KEYED, "s").partitions(1)

    def values(kind: pa.DataType) -> list[Any]:
        batches = partition_reading.read_partition(partition, pa.schema([("value", kind)]))
        return sorted(value for batch in batches for value in batch.column(0).to_pylist())

    assert values(pa.int16()) == [5, 300]
    with pytest.raises(
        StateProcessorError, match=r"state 's', column 'value': its values do not fit .* int8"
    ):
        values(pa.int8())


def test_only_wanted_columns_are_decoded(tmp_path: Path) -> None:
    """The pickled values would be refused."""
    path = made(tmp_path, {1: Unsafe(), 2: Unsafe()}, PICKLED)
    table = table_of(path, "op", TableKind.KEYED, "s", trusted=True)
    assert sorted(read_as_tasks(table, 2, ["key"]).column("key").to_pylist()) == [1, 2]
    with pytest.raises(
        UntrustedPickleError, match=r"operator 'op', state 's': its values are pickled .*Unsafe"
    ):
        table_of(path, "op", TableKind.KEYED, "s").refuse_pickles()
    with pytest.raises(UntrustedPickleError, match=r"operator 'op', state 's'"):
        read_as_tasks(table_of(path, "op", TableKind.KEYED, "s"), 1)


def test_the_data_source_refuses_pickles_before_tasks_start(tmp_path: Path) -> None:
    path = made(tmp_path, {1: Unsafe()}, PICKLED)
    options = {"path": path, "operator": "op", "state": "s"}
    schema = StructType([StructField("key", LongType())])
    with pytest.raises(UntrustedPickleError, match=r"operator 'op', state 's': its values are pickled"):
        SavepointSource(options).reader(schema)
    assert len(SavepointSource({**options, "trustPickle": "true"}).reader(schema).partitions()) == 1


def test_a_task_verifies_what_it_reads(tmp_path: Path) -> None:
    path = made(
        tmp_path, {number: "x" * 100 for number in range(500)}, ValueStateDescriptor("s", Types.STRING())
    )
    table = table_of(path, "op", TableKind.KEYED, "s")
    (file,) = Path(path).glob("state-*")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptSnapshotError, match=r"operator 'op': .*SHA-256 differs"):
        read_as_tasks(table, 2)


def test_a_state_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = made(tmp_path, {1: 2}, PICKLED)
    with pytest.raises(
        StateProcessorError, match=r"operator 'op' has no keyed state 'else', only 's' \(keyed\)"
    ):
        table_of(path, "op", TableKind.KEYED, "else")
    assert read_as_tasks(table_of(path, "op", TableKind.TIMERS), 2).num_rows == 0


PIECES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 1000)).map(
        lambda drawn: SizedRange(drawn[0], drawn[0] + drawn[1], drawn[2])
    ),
    max_size=8,
)


@given(PIECES, st.integers(1, 20))
def test_each_key_group_of_the_files_is_in_one_partition(pieces: list[SizedRange], wanted: int) -> None:
    found = divided(pieces, wanted)
    groups = [group for part in found for group in range(part.start, part.end + 1)]
    assert groups == sorted({group for piece in pieces for group in range(piece.start, piece.end + 1)})
    assert sum(part.size for part in found) == pytest.approx(sum(piece.size for piece in pieces))


def test_partitions_keep_to_files_where_these_are_even() -> None:
    files = [SizedRange(start, start + 15, 100) for start in range(0, 128, 16)]
    assert divided(files, 8) == files
    assert [(part.start, part.end) for part in divided(files, 2)] == [(0, 63), (64, 127)]
    one = [SizedRange(0, 127, 800)]
    assert [(part.start, part.end) for part in divided(one, 4)] == [(0, 31), (32, 63), (64, 95), (96, 127)]
