"""State written by the tasks of a DataFrame: equal to that of the SavepointWriter, whole or not there."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.state_processor.bootstrapped import BY_DAY, COUNT, EXPIRING, NAMES, BootstrapOfColumns, Job
from tests.unit.state_processor.spark.without_spark import FunctionWithoutSpark, WithoutSpark, results_of
from yarrow.common import Types
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.data.key_groups import group_of_raw_key
from yarrow.runtime.snapshot.errors import SnapshotNotFoundError, SnapshotStorageError
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX
from yarrow.state_processor import (
    OperatorTransformation,
    SavepointEnvironment,
    SavepointReader,
    SavepointWriter,
    StateProcessorError,
)
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.spark.key_buckets import KeyBuckets
from yarrow.state_processor.spark.keyed_columns import KeyedColumns
from yarrow.state_processor.spark.partition_writing import PartitionWriting

BACKENDS = ["hashmap", "rocksdb"]


def rows(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"key": [f"k{number}" for number in numbers], "value": list(numbers)})


def wide(count: int = 3000) -> list[pa.Table]:
    """Enough bytes for files of their own."""
    text = "x" * 40
    return [
        pa.table(
            {
                "key": [f"k{n}" for n in range(start, count, 2)],
                "value": [f"{text}{n}" for n in range(start, count, 2)],
            }
        )
        for start in range(2)
    ]


TEXT: ValueStateDescriptor[str] = ValueStateDescriptor("text", Types.STRING())


def written(folder: Path, transformation: WithoutSpark, most: int = 16) -> str:
    return SavepointWriter.new_savepoint(most).with_operator("op", transformation).write(f"{folder}/made")


def state_of(path: str, name: str) -> pa.Table:
    with SavepointReader.read(path) as reader:
        return reader.read_keyed_state("op", name).sort_by("key")


@pytest.mark.parametrize("partitions", [1, 3, 16, 50])
def test_each_partition_writes_its_key_groups(tmp_path: Path, partitions: int) -> None:
    path = written(tmp_path, WithoutSpark([rows(60), rows(40, 60)], COUNT, partitions))
    assert state_of(path, "count").to_pydict() == {
        "key": sorted(f"k{number}" for number in range(100)),
        "value": [int(key[1:]) for key in sorted(f"k{number}" for number in range(100))],
    }
    (operator,) = open_snapshot(path).metadata.operators
    handles = operator.subtasks[0].keyed
    buckets = KeyBuckets.of(16, partitions)
    assert [handle.key_groups for handle in handles] == [
        tuple(buckets.key_groups(number)) for number in range(min(partitions, 16))
    ]
    with SavepointReader.read(path) as reader:
        for part in reader._stored.keyed_parts(operator):
            assert {run.key_group for run in part.runs()} <= set(
                range(part.key_groups[0], part.key_groups[1] + 1)
            )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("most", [16, 128])
def test_a_job_goes_on_from_it(tmp_path: Path, backend: str, most: int) -> None:
    names = pa.table({"key": ["a", "b", "a"], "value": [["x"], ["yy"], ["zzz"]]})
    counts = pa.table({"key": ["a", "b"], "value": [2, 1]})
    path = (
        SavepointWriter.new_savepoint(most)
        .with_operator("op", WithoutSpark([names], NAMES, 4), WithoutSpark([counts], COUNT, 3))
        .write(f"{tmp_path}/made")
    )

    def job(stream: Any) -> Any:
        return stream.key_by(lambda row: row[0]).process(Job()).uid("op")

    with SavepointEnvironment(job, path, configuration={"state.backend.type": backend}) as environment:
        environment.push([("a", "w"), ("c", "v")])
        assert environment.take() == [("a", 3, ["x", "zzz", "w"], 1), ("c", 1, ["v"], 1)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_makes_state_and_timers_in_each_task(tmp_path: Path, backend: str) -> None:
    words = [[f"k{number % 40}", "x" * (number % 3 + 1)] for number in range(200)]
    sources = [
        pa.table({"name": [name for name, _ in part], "word": [word for _, word in part]})
        for part in (words[:90], words[90:])
    ]
    configuration = {"state.backend.type": backend}
    made = FunctionWithoutSpark(sources, "name", BootstrapOfColumns(), 3)
    writer = SavepointWriter.new_savepoint(16, configuration=configuration)
    path = writer.with_operator("op", made).write(f"{tmp_path}/made")
    with SavepointReader.read(path) as reader:
        names = reader.read_keyed_state("op", "names").to_pydict()
        timers = {(row["key"], row["timestamp"]) for row in reader.read_timers("op").to_pylist()}
    assert dict(zip(names["key"], names["value"], strict=True)) == {
        f"k{number}": [word for name, word in words if name == f"k{number}"] for number in range(40)
    }, "in the order of the DataFrame"
    assert timers == {(name, 1000 * len(word)) for name, word in words}

    def job(stream: Any) -> Any:
        return stream.key_by(lambda row: row[0]).process(Job()).uid("op")

    with SavepointEnvironment(job, path, configuration=configuration) as environment:
        environment.push([("k7", "w")])
        assert environment.take()[0][1] == 6
        environment.watermark(1500)
        assert sorted(environment.take()) == sorted(
            (name, "timer", 1000) for name, word in {*map(tuple, words)} if word == "x"
        )


def test_a_functions_failure_is_told_with_its_traceback_and_leaves_nothing(tmp_path: Path) -> None:
    made = FunctionWithoutSpark(
        [pa.table({"name": ["a", "b"], "word": ["x", "broken"]})], "name", BootstrapOfColumns()
    )
    with pytest.raises(StateProcessorError, match=r"LookupError: no rate for b"):
        SavepointWriter.new_savepoint(16).with_operator("op", made).write(f"{tmp_path}/made")
    assert not (tmp_path / "made").exists()


KEYS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "float": st.floats(),
    "bool": st.booleans(),
    "bytes": st.binary(max_size=6),
    "date": st.dates(),
    "time of day": st.times(),
    "time": st.datetimes(),
    "duration": st.timedeltas(dt.timedelta(days=-1000), dt.timedelta(days=1000)),
    "decimal": st.decimals(-1000, 1000, places=2),
    "tuple": st.fixed_dictionaries({"f0": st.integers(-5, 5), "f1": st.text("ab", max_size=2)}),
    "row": st.fixed_dictionaries(
        {"n": st.integers(-5, 5), "of": st.fixed_dictionaries({"f0": st.floats(0, 2)})}
    ),
}


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_key_groups_are_those_of_the_engine(data: Any) -> None:
    """A row in a partition of another key group would be lost to the job."""
    values = data.draw(st.lists(data.draw(st.sampled_from(list(KEYS.values()))), min_size=1, max_size=30))
    most = data.draw(st.sampled_from([1, 16, 128, 32768]))
    column = pa.array(values)
    columns = KeyedColumns(
        operator="op", target=KeyedTarget.of(COUNT), schema=pa.schema([]), buckets=KeyBuckets.of(most, 3)
    )
    groups = columns.key_groups(column)
    assert groups.tolist() == [group_of_raw_key(key, most) for key in columns.keys(column)]


def buckets_of(buckets: KeyBuckets, groups: Any) -> Any:
    """The bucket of each key group: ranges of about the same size."""
    return groups.astype(np.int64) * (buckets.partitions * buckets.per_partition) // buckets.max_parallelism


@given(st.integers(1, 32768), st.integers(1, 300))
def test_buckets_lie_within_partitions(most: int, partitions: int) -> None:
    buckets = KeyBuckets.of(most, partitions)
    found = buckets.partitions_of(buckets_of(buckets, np.arange(most))).tolist()
    wanted = [number for number in range(buckets.partitions) for _ in buckets.key_groups(number).groups()]
    assert found == wanted


@given(st.integers(1, 400), st.integers(1, 60), st.data())
def test_rows_are_cut_where_their_bucket_changes(most: int, partitions: int, data: Any) -> None:
    buckets = KeyBuckets.of(most, partitions)
    groups = np.sort(np.array(data.draw(st.lists(st.integers(0, most - 1), max_size=30)), np.uint16))
    each = buckets_of(buckets, groups).tolist()
    found, starts = buckets.cuts(groups)
    assert found.tolist() == sorted(set(each))
    assert starts.tolist() == [each.index(bucket) for bucket in found.tolist()]


@pytest.mark.parametrize(
    ("descriptor", "column", "expected"),
    [
        (BY_DAY, pa.array([[("mon", 1.5)], [("tue", 2.0)]], pa.map_(pa.string(), pa.float64())),
         [{"mon": 1.5}, {"tue": 2.0}]),
        (NAMES, pa.array(["x", "y"]), [["x"], ["y"]]),
        (ValueStateDescriptor("s", Types.BIG_INT()), pa.array([2**40, -1]), [2**40, -1]),
        (ValueStateDescriptor("s", Types.BIG_DEC()), pa.array([Decimal("1.50"), Decimal("-20")]),
         [Decimal("1.50"), Decimal("-20")]),
        (ValueStateDescriptor("s", Types.TUPLE([Types.STRING(), Types.LONG()])),
         pa.array([{"f0": "a", "f1": 1}, {"f0": None, "f1": 2}]), [{"f0": "a", "f1": 1}, {"f0": None, "f1": 2}]),
    ],
    ids=["map", "elements", "big int", "decimal", "tuple"],
)  # fmt: skip
def test_kinds_of_state(tmp_path: Path, descriptor: Any, column: pa.Array, expected: list[Any]) -> None:
    path = written(tmp_path, WithoutSpark([pa.table({"key": [1, 2], "value": column})], descriptor))
    with SavepointReader.read(path) as reader:
        table = reader.read_keyed_state("op", descriptor.get_name()).sort_by("key")
    found = table.column("value").to_pylist()
    assert [dict(cell) if descriptor is BY_DAY else cell for cell in found] == expected
    same = OperatorTransformation.bootstrap_with(pa.table({"key": [1, 2], "value": column}))
    made = same.key_by("key").to_state(descriptor)
    other = SavepointWriter.new_savepoint(16).with_operator("op", made).write(f"{tmp_path}/other")
    assert state_of(other, descriptor.get_name()).equals(state_of(path, descriptor.get_name()))


def test_times_of_access_are_kept(tmp_path: Path) -> None:
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    table = pa.table({"key": ["a"], "value": [5], "access_time": pa.array([at], pa.timestamp("us", "UTC"))})
    found = state_of(written(tmp_path, WithoutSpark([table], EXPIRING)), "expiring").to_pylist()
    assert found == [{"key": "a", "value": 5, "access_time": at}]


def test_a_null_is_no_state(tmp_path: Path) -> None:
    table = pa.table({"key": [1, 2], "value": pa.array([None, 7], pa.int64())})
    assert state_of(written(tmp_path, WithoutSpark([table], COUNT)), "count").to_pylist() == [
        {"key": 2, "value": 7}
    ]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3]}),
         r"operator 'op', state 'count': the key 'a' comes twice; give each key one row"),
        (pa.table({"key": ["a", None], "value": [1, 2]}), r"operator 'op', state 'count': 1 of 2 rows have no key"),
        (pa.table({"key": ["a"], "value": pa.array([2**63], pa.uint64())}),
         r"operator 'op', state 'count': .*9223372036854775808"),
        (pa.table({"key": pa.array([[1]]), "value": [1]}), r"cannot be a key"),
    ],
    ids=["a key twice", "a null key", "too large", "no key"],
)  # fmt: skip
def test_rows_that_are_refused_leave_nothing(tmp_path: Path, table: pa.Table, said: str) -> None:
    with pytest.raises(StateProcessorError, match=said):
        written(
            tmp_path,
            WithoutSpark(
                [wide()[0].select(["key"]).append_column("value", pa.array(range(1500))), table][1:], COUNT
            ),
        )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("native", [False, True], ids=["canonical", "native"])
@pytest.mark.parametrize("damaged", ["key", "value"])
def test_texts_that_are_no_utf8_are_refused(tmp_path: Path, damaged: str, native: bool) -> None:
    """Spark makes a text of any bytes; no job could restore them."""
    texts = {"key": [b"a", b"b"], "value": [b"c", b"d"]} | {damaged: [b"e", b"\xff"]}
    table = pa.table({name: pa.array(each, pa.binary()).view(pa.string()) for name, each in texts.items()})
    with pytest.raises(
        StateProcessorError,
        match=r"^operator 'op', state 'text': a text holds bytes that are no UTF-8 .*0xff.* keep them as binary",
    ):
        written(tmp_path, WithoutSpark([table], TEXT, native=native))
    assert not (tmp_path / "made").exists()


def test_a_key_in_two_partitions_of_the_dataframe_comes_twice(tmp_path: Path) -> None:
    with pytest.raises(StateProcessorError, match=r"the key 'k3' comes twice"):
        written(tmp_path, WithoutSpark([rows(60), rows(1, 3)], COUNT, 4))
    assert not (tmp_path / "made").exists()


def test_the_second_of_two_states_fails_and_the_files_of_the_first_go(tmp_path: Path) -> None:
    twice = pa.table({"key": ["a", "a"], "value": [1, 2]})
    writer = SavepointWriter.new_savepoint(16).with_operator(
        "op", WithoutSpark(wide(), TEXT), WithoutSpark([twice], COUNT)
    )
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "of somebody else").touch()
    with pytest.raises(StateProcessorError, match=r"comes twice"):
        writer.write(f"{tmp_path}/made")
    assert os.listdir(tmp_path / "made") == ["of somebody else"]


def test_other_attempts_leave_no_files(tmp_path: Path) -> None:
    """A copy that ended, one that failed on its way, and one that comes when the savepoint is complete."""
    late: list[tuple[PartitionWriting, list[pa.RecordBatch]]] = []

    def ended(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> None:
        assert results_of(writing, arriving)[0][1] is not None
        late.append((writing, arriving))

    def killed(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> None:
        Path(writing.place.directory, STATE_FILE_PREFIX + writing.place.hex_id()).write_bytes(b"half")

    def failed(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> None:
        def torn() -> Any:
            yield from arriving
            raise OSError("the shuffle is gone")

        with pytest.raises(OSError, match=r"the shuffle is gone"):
            list(writing(torn()))

    path = written(tmp_path, WithoutSpark(wide(), TEXT, 2, attempts=[ended, killed, failed]))
    files = sorted(os.listdir(path))
    assert len(files) == 3 and files[0] == "_metadata", "one file for each partition"
    for writing, arriving in late:
        with pytest.raises(SnapshotStorageError, match=r"is complete or was given up"):
            list(writing(arriving))
    assert sorted(os.listdir(path)) == files
    assert state_of(path, "text").num_rows == 3000


def test_an_attempt_that_ends_behind_the_savepoint_takes_its_file_with_it(tmp_path: Path) -> None:
    """It made its file after the driver had looked for files."""
    held: list[Any] = []

    def slow(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> None:
        if not held:
            held.append(writing.place.open())
            held[0].__enter__()

    path = written(tmp_path, WithoutSpark(wide(), TEXT, 2, attempts=[slow]))
    files = sorted(os.listdir(path))
    held[0].file.write([b"x" * 100_000])
    assert len(os.listdir(path)) == len(files) + 1
    with pytest.raises(SnapshotStorageError, match=r"is complete or was given up"):
        held[0].__exit__(None, None, None)
    assert sorted(os.listdir(path)) == files


def test_what_is_being_written_is_no_savepoint(tmp_path: Path) -> None:
    def looked(writing: PartitionWriting, arriving: list[pa.RecordBatch]) -> None:
        with pytest.raises(SnapshotNotFoundError, match=r"this checkpoint was never completed"):
            SavepointReader.read(writing.place.directory)

    written(tmp_path, WithoutSpark(wide(), TEXT, 2, attempts=[looked]))
