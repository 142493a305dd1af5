"""Savepoints made without a cluster, read as tables, changed, and restored by the operators of a job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.format.golden_snapshots import native_checkpoint
from tests.unit.state_processor.bootstrapped import (
    BY_DAY,
    COUNT,
    EXPIRING,
    NAMES,
    Bootstrap,
    Color,
    Everything,
    Job,
    Overdue,
    Pair,
    Point,
    Unsafe,
)
from yarrow.common import Row, Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from yarrow.runtime.snapshot.errors import (
    CorruptSnapshotError,
    SavepointMismatchError,
    SnapshotStorageError,
    UntrustedPickleError,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.metadata import decode_metadata, encode_metadata
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.trust import SnapshotTrust, check_trust
from yarrow.state_processor import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointEnvironment,
    SavepointReader,
    SavepointWriter,
    StateBootstrapFunction,
    StateProcessorError,
)

ROWS = [("a", "x"), ("b", "yy"), ("a", "zzz"), ("c", "x")]
BACKENDS = ["hashmap", "rocksdb"]


def key_of(row: Any) -> Any:
    return row[0]


def second_of(row: Any) -> Any:
    return row[1]


def job(rows: Any) -> Any:
    return rows.key_by(key_of).process(Job()).uid("op")


def by_key(table: pa.Table, column: str = "value") -> dict[Any, Any]:
    keys = [tuple(key.values()) if isinstance(key, dict) else key for key in table.column("key").to_pylist()]
    return dict(zip(keys, table.column(column).to_pylist(), strict=True))


def bootstrapped(folder: Path, backend: str = "hashmap") -> str:
    transformation = OperatorTransformation.bootstrap_with(ROWS).key_by(key_of).transform(Bootstrap())
    writer = SavepointWriter.new_savepoint(16, configuration={"state.backend.type": backend})
    return writer.with_operator("op", transformation).write(f"{folder}/made")


def written(folder: Path, entries: dict[Any, Any], descriptor: Any, name: str = "made") -> str:
    """A savepoint of one state."""
    rows = OperatorTransformation.bootstrap_with(list(entries.items()))
    state = rows.key_by(key_of).to_state(descriptor, second_of)
    return SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{folder}/{name}")


def value_table(path: str, name: str = "s") -> pa.Table:
    with SavepointReader.read(path) as reader:
        return reader.read_keyed_state("op", name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bootstrap_function_runs_in_the_operator_of_a_job(tmp_path: Path, backend: str) -> None:
    path = bootstrapped(tmp_path, backend)
    with SavepointReader.read(path) as reader:
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 2, "b": 1, "c": 1}
        assert by_key(reader.read_keyed_state("op", "names")) == {"a": ["x", "zzz"], "b": ["yy"], "c": ["x"]}
        assert by_key(reader.read_keyed_state("op", "sum")) == {"a": 4, "b": 2, "c": 1}
        timers = reader.read_timers("op").to_pylist()
        assert [(t["key"], t["timestamp"]) for t in timers if t["domain"] == "EVENT_TIME"] in (
            [("a", 1000), ("c", 1000), ("b", 2000), ("a", 3000)],
            [("c", 1000), ("a", 1000), ("b", 2000), ("a", 3000)],
        )
        assert [t["key"] for t in timers if t["domain"] == "PROCESSING_TIME"] == ["a"]
        rows = reader.read_keyed_state("op", Everything()).sort_by("key").to_pylist()
    assert rows == [
        {"key": "a", "count": 2, "names": ["x", "zzz"], "event": [1000, 3000], "processing": 1},
        {"key": "b", "count": 1, "names": ["yy"], "event": [2000], "processing": 0},
        {"key": "c", "count": 1, "names": ["x"], "event": [1000], "processing": 0},
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_go_on_from_a_savepoint_without_a_cluster(tmp_path: Path, backend: str) -> None:
    path = bootstrapped(tmp_path)
    with SavepointEnvironment(job, path, configuration={"state.backend.type": backend}) as environment:
        environment.push([("a", "w"), ("d", "v")])
        assert environment.take() == [("a", 3, ["x", "zzz", "w"], 5), ("d", 1, ["v"], 1)]
        environment.watermark(1500)
        assert sorted(environment.take()) == [("a", "timer", 1000), ("c", "timer", 1000)]
        after = environment.write(f"{tmp_path}/after")
    with SavepointReader.read(after) as reader:
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 3, "b": 1, "c": 1, "d": 1}
        left = [t["timestamp"] for t in reader.read_timers("op").to_pylist() if t["domain"] == "EVENT_TIME"]
        assert left == [2000, 3000]
        assert reader.metadata.checkpoint_id == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_whose_time_has_passed_fire_in_the_job_that_restores_them(
    tmp_path: Path, backend: str
) -> None:
    rows = [("a", 1000), ("b", 2000), ("c", 3000), ("a", 4000), ("c", -3000), ("a", 1000)]
    configuration = {"state.backend.type": backend}
    overdue = OperatorTransformation.bootstrap_with(rows).key_by(key_of).transform(Overdue())
    writer = SavepointWriter.new_savepoint(16, configuration=configuration).with_operator("op", overdue)
    path = writer.write(f"{tmp_path}/made")
    with SavepointReader.read(path) as reader:
        timers = reader.read_timers("op").to_pylist()
        assert sorted((t["key"], t["timestamp"], t["domain"]) for t in timers) == [
            ("a", 1000, "PROCESSING_TIME"), ("a", 4000, "PROCESSING_TIME"), ("b", 2000, "PROCESSING_TIME"),
        ]  # fmt: skip
        counts = by_key(reader.read_keyed_state("op", "count"))
        assert set(counts) == {"a", "b", "c"} and all(time > 1_600_000_000_000 for time in counts.values())
    with SavepointEnvironment(job, path, configuration=configuration) as environment:
        environment.advance(0)
        assert environment.take() == [("a", "timer", 1000), ("b", "timer", 2000), ("a", "timer", 4000)]


def test_a_drained_jobs_operators_go_on_without_a_cluster(tmp_path: Path) -> None:
    """In a job they would not be run again."""
    path = Path(bootstrapped(tmp_path), "_metadata")
    metadata = decode_metadata(path.read_bytes(), str(path))
    ended = [msgspec.structs.replace(state, finished_subtasks=(0,)) for state in metadata.operators]
    path.write_bytes(encode_metadata(msgspec.structs.replace(metadata, operators=tuple(ended))))
    with SavepointEnvironment(job, str(path)) as environment:
        environment.push([("a", "w")])
        assert environment.take() == [("a", 3, ["x", "zzz", "w"], 5)]


def test_what_there_is_is_listed(tmp_path: Path) -> None:
    with SavepointReader.read(bootstrapped(tmp_path)) as reader:
        (operator,) = reader.operators()
        assert (operator.uid, operator.parallelism, operator.max_parallelism) == ("op", 1, 16)
        assert operator.size > 0 and {"count", "names", "sum"} <= set(operator.states)
        states = {state.name: state for state in reader.states("op")}
        assert (states["count"].kind, states["count"].type, states["count"].entries) == (
            "value", Types.LONG(), 3,
        )  # fmt: skip
        assert (states["names"].kind, states["sum"].kind) == ("list", "reducing")
        assert states["count"].size > 0 and not states["count"].pickled
        same = reader.states(OperatorIdentifier.for_uid_hash(operator.operator_id))
        assert same == list(states.values())
        with pytest.raises(StateProcessorError, match=r"no operator with uid 'else', only 'op'"):
            reader.states("else")
        with pytest.raises(
            StateProcessorError, match=r"operator 'op' has no keyed state 'cuont', only .*'count'"
        ):
            reader.read_keyed_state("op", "cuont")
        with pytest.raises(StateProcessorError, match=r"no operator state 'count', only none"):
            reader.read_list_state("op", "count")


@pytest.mark.parametrize(
    ("declared", "values", "kind"),
    [
        (Types.INT(), [1, -2], pa.int32()),
        (Types.BOOLEAN(), [True, False], pa.bool_()),
        (Types.BIG_INT(), [2**100, -1], pa.decimal128(31, 0)),
        (Types.BIG_DEC(), [Decimal("1.50"), Decimal("-20")], pa.decimal128(4, 2)),
        (Types.SQL_DATE(), [dt.date(2024, 2, 29)], pa.date32()),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), (None, None)],
         pa.struct([("f0", pa.string()), ("f1", pa.int64())])),
        (Types.ROW_NAMED(["n", "m"], [Types.STRING(), Types.MAP(Types.STRING(), Types.LONG())]),
         [Row(n="x", m={"k": 1})], pa.struct([("n", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])),
        (Types.LIST(Types.DOUBLE()), [[0.5, None], []], pa.list_(pa.float64())),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"ab"], pa.binary()),
        (None, [1, None, 2**40], pa.int64()),
        (None, [1, 2.5], pa.float64()),
        (None, [("a", (1, None)), ("b", (2, 0.5))],
         pa.struct([("f0", pa.string()), ("f1", pa.struct([("f0", pa.int64()), ("f1", pa.float64())]))])),
        (None, [Point(1, 0.5, ("t",)), Point(2, None, ("u",))],
         pa.struct([("x", pa.int64()), ("y", pa.float64()), ("tags", pa.struct([("f0", pa.string())]))])),
        (None, [Pair("l", 1)], pa.struct([("left", pa.string()), ("right", pa.int64())])),
        (None, [Color.RED, Color.BLUE], pa.string()),
        (None, [{"k": 1}, {"j": 2}], pa.map_(pa.string(), pa.int64())),
        (None, [{"name": "x", "size": 1}, {"name": "y"}], pa.struct([("name", pa.string()), ("size", pa.int64())])),
        (None, [[1, 2], []], pa.list_(pa.int64())),
        (None, [{1, 2}], pa.list_(pa.int64())),
        (None, [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_values_have_columns_and_columns_give_values_back(
    tmp_path: Path, declared: Any, values: list[Any], kind: pa.DataType
) -> None:
    entries = {number: value for number, value in enumerate(values) if value is not None}
    path = written(tmp_path, entries, ValueStateDescriptor("s", declared))
    assert value_table(path).schema.field("value").type == kind
    # Read as a table and written again as it is: the same values, found by the job's own backend.
    seen: list[pa.Table] = []
    again = SavepointWriter.from_existing_savepoint(path).transform_state("op", "s", _noting(seen))
    copy = again.write(f"{tmp_path}/copy")
    assert len(seen) == 1
    with SavepointReader.read(path) as one, SavepointReader.read(copy) as other:
        found = [dict(_entries(reader)) for reader in (one, other)]
    assert found == [entries, entries]


def _noting(seen: list[pa.Table]) -> Callable[[pa.Table], pa.Table]:
    def note(table: pa.Table) -> pa.Table:
        seen.append(table)
        return table

    return note


def _entries(reader: SavepointReader) -> list[tuple[Any, Any]]:
    return [
        entry
        for keys, values in reader.keyed_table("op", "s").entries()
        for entry in zip(keys, values, strict=True)
    ]


@pytest.mark.parametrize(
    "keys", [[1, 2**40], ["a", "\u00e4"], [("a", 1), ("b", 2)], [None, "x"], [dt.date(2024, 1, 1)], [1, 2.5]]
)
def test_keys_have_columns(tmp_path: Path, keys: list[Any]) -> None:
    entries = {key: place for place, key in enumerate(keys)}
    path = written(tmp_path, entries, ValueStateDescriptor("s", Types.LONG()))
    assert by_key(value_table(path)) == entries


def test_keys_of_several_kinds_are_texts_and_not_written_back(tmp_path: Path) -> None:
    """The job would look for none of the texts, so that the state would be lost."""
    rows = OperatorTransformation.bootstrap_with([("a", "x"), (5, "y")]).key_by(key_of)
    made = SavepointWriter.new_savepoint(16).with_operator("op", rows.transform(Bootstrap()))
    path = made.write(f"{tmp_path}/made")
    with SavepointReader.read(path) as reader:
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 1, "5": 1}
    for change in (
        SavepointWriter.from_existing_savepoint(path).transform_state("op", "count", lambda table: table),
        SavepointWriter.from_existing_savepoint(path).transform_timers("op", lambda table: table),
    ):
        with pytest.raises(
            StateProcessorError, match=r"operator 'op', .*: its keys are of several kinds.* give key_type"
        ):
            change.write(f"{tmp_path}/refused")
        assert not (tmp_path / "refused").exists()
    texts = SavepointWriter.from_existing_savepoint(path).transform_state(
        "op", "count", lambda table: table, key_type=Types.STRING()
    )
    assert by_key(value_table(texts.write(f"{tmp_path}/texts"), "count")) == {"a": 1, "5": 1}


def test_floats_as_keys_are_written_back_however_large(tmp_path: Path) -> None:
    """In their canonical form whole floats are integers, here one of 301 digits."""
    entries = {0.5: 1, -0.0: 2, 1e300: 3}
    rows = OperatorTransformation.bootstrap_with(list(entries.items())).key_by(key_of, Types.DOUBLE())
    state = rows.to_state(ValueStateDescriptor("s", Types.LONG()), second_of)
    path = SavepointWriter.new_savepoint(16).with_operator("op", state).write(f"{tmp_path}/made")
    assert value_table(path).schema.field("key").type == pa.float64()
    changed = SavepointWriter.from_existing_savepoint(path).transform_state("op", "s", lambda table: table)
    again = changed.write(f"{tmp_path}/changed")
    assert by_key(value_table(again)) == entries
    with SavepointReader.read(path) as before, SavepointReader.read(again) as after:
        assert sorted(_entries(before)) == sorted(_entries(after))


def test_values_of_several_kinds_are_texts_and_not_written_back(tmp_path: Path) -> None:
    path = written(tmp_path, {1: "a", 2: 5}, ValueStateDescriptor("s"))
    assert by_key(value_table(path)) == {1: "a", 2: "5"}
    writer = SavepointWriter.from_existing_savepoint(path).transform_state("op", "s", lambda table: table)
    with pytest.raises(
        StateProcessorError, match=r"operator 'op', state 's': its values are of several kinds"
    ):
        writer.write(f"{tmp_path}/copy")
    assert not (tmp_path / "copy").exists()


def test_tables_become_state_of_every_kind(tmp_path: Path) -> None:
    table = pa.table(
        {
            "user": ["a", "b"],
            "count": pa.array([1, 2], pa.int32()),
            "names": [["x", "y"], []],
            "days": pa.array([[("mon", 0.5)], [("tue", 1.5)]], pa.map_(pa.string(), pa.float64())),
            "seen": pa.array([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], pa.timestamp("ms", "UTC")),
        }
    )
    keyed = OperatorTransformation.bootstrap_with(table).key_by("user")
    path = (
        SavepointWriter.new_savepoint(16)
        .with_operator(
            "op",
            keyed.to_state(COUNT, "count"),
            keyed.to_state(NAMES, "names"),
            keyed.to_state(BY_DAY, "days"),
            keyed.to_state(EXPIRING, "count", access_time="seen"),
        )
        .write(f"{tmp_path}/made")
    )
    with SavepointReader.read(path) as reader:
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 1, "b": 2}
        assert by_key(reader.read_keyed_state("op", "names")) == {"a": ["x", "y"], "b": []}
        assert by_key(reader.read_keyed_state("op", "by day")) == {"a": [("mon", 0.5)], "b": [("tue", 1.5)]}
        expiring = reader.read_keyed_state("op", "expiring")
        assert by_key(expiring, "access_time")["a"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    with SavepointEnvironment(job, path) as environment:
        environment.push([("a", "z")])
        assert environment.take() == [("a", 2, ["x", "y", "z"], 1)]


def test_a_table_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "a"], "value": ["no number", "none"]})
    rows = OperatorTransformation.bootstrap_with(table).key_by("key")
    for descriptor, column, error in [
        (COUNT, "value", r"operator 'op', state 'count': a column of string is no column of int64"),
        (COUNT, "else", r"state 'count': the table has no column 'else', only \['key', 'value'\]"),
        (ValueStateDescriptor("s", Types.STRING()), "value", r"state 's': the key 'a' comes twice"),
        (BY_DAY, "value", r"state 'by day': map state takes a column of maps, not of string"),
    ]:
        writer = SavepointWriter.new_savepoint(16).with_operator("op", rows.to_state(descriptor, column))
        with pytest.raises(StateProcessorError, match=error):
            writer.write(f"{tmp_path}/made")
        assert not (tmp_path / "made").exists()


class _Elements(StateBootstrapFunction[int]):
    def initialize_state(self, context: Any) -> None:
        self._state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("numbers", Types.LONG())
        )
        self._sum = 0

    def process_element(self, value: int) -> None:
        self._sum += value

    def snapshot_state(self, context: Any) -> None:
        self._state.update([self._sum])


RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class _Rules(BroadcastStateBootstrapFunction[Any]):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


def test_operator_state_is_bootstrapped(tmp_path: Path) -> None:
    begin = OperatorTransformation.bootstrap_with
    union: ListStateDescriptor[Any] = ListStateDescriptor("union", Types.STRING())
    other: MapStateDescriptor[str, int] = MapStateDescriptor("other rules", Types.STRING(), Types.LONG())
    path = (
        SavepointWriter.new_savepoint(16)
        .with_operator(
            "op",
            begin([1, 2, 3]).transform(_Elements()),
            begin(["u", "v"]).to_union_state(union),
            begin([("r", 1)]).transform(_Rules()),
            begin(pa.table({"key": ["k"], "value": [5]})).to_broadcast_state(other),
        )
        .write(f"{tmp_path}/made")
    )
    with SavepointReader.read(path) as reader:
        assert reader.read_list_state("op", "numbers").to_pylist() == [{"subtask": 0, "value": 6}]
        assert reader.read_union_state("op", "union").column("value").to_pylist() == ["u", "v"]
        assert by_key(reader.read_broadcast_state("op", "rules")) == {"r": 1}
        assert by_key(reader.read_broadcast_state("op", "other rules")) == {"k": 5}
        with pytest.raises(StateProcessorError, match="is a union state; read it with read_union_state"):
            reader.read_list_state("op", "union")


def test_operators_are_added_removed_and_renamed(tmp_path: Path) -> None:
    path = bootstrapped(tmp_path)
    count = OperatorTransformation.bootstrap_with([("q", 9)]).key_by(key_of).to_state(COUNT, second_of)
    before = {file.name: file.read_bytes() for file in Path(path).iterdir()}
    writer = SavepointWriter.from_existing_savepoint(path).change_operator_identifier("op", "renamed")
    with pytest.raises(StateProcessorError, match=r"there is an operator with uid 'renamed' already"):
        writer.with_operator("renamed", count)
    with pytest.raises(StateProcessorError, match=r"no operator with uid 'op', only 'renamed'"):
        writer.remove_operator("op")
    second = writer.with_operator("added", count).write(f"{tmp_path}/second")
    with SavepointReader.read(second) as reader:
        assert [operator.uid for operator in reader.operators()] == ["renamed", "added"]
        assert by_key(reader.read_keyed_state("renamed", "count")) == {"a": 2, "b": 1, "c": 1}
        assert by_key(reader.read_keyed_state("added", "count")) == {"q": 9}
    third = (
        SavepointWriter.from_existing_savepoint(second).remove_operator("renamed").write(f"{tmp_path}/third")
    )
    with SavepointReader.read(third) as reader:
        assert [operator.uid for operator in reader.operators()] == ["added"]
    with pytest.raises(StateProcessorError, match="never overwritten"):
        SavepointWriter.from_existing_savepoint(second).write(path)
    assert {file.name: file.read_bytes() for file in Path(path).iterdir()} == before


def test_a_state_is_transformed_and_the_others_stay(tmp_path: Path) -> None:
    path = bootstrapped(tmp_path)

    def doubled(table: pa.Table) -> pa.Table:
        kept = table.filter(pc.not_equal(table["key"], "b"))
        return kept.set_column(1, "value", pc.multiply(kept["value"], 10))

    changed = SavepointWriter.from_existing_savepoint(path).transform_state("op", "count", doubled)
    with SavepointEnvironment(job, changed.write(f"{tmp_path}/changed")) as environment:
        environment.push([("a", "w"), ("b", "w")])
        assert environment.take() == [("a", 21, ["x", "zzz", "w"], 5), ("b", 1, ["yy", "w"], 3)]
        environment.watermark(1500)
        assert len(environment.take()) == 2, "timers were kept"
    texts = SavepointWriter.from_existing_savepoint(path).transform_state(
        "op",
        "count",
        lambda table: table.set_column(1, "value", table["value"].cast(pa.string())),
        ValueStateDescriptor("count as text", Types.STRING()),
    )
    with SavepointReader.read(texts.write(f"{tmp_path}/texts")) as reader:
        assert by_key(reader.read_keyed_state("op", "count as text")) == {"a": "2", "b": "1", "c": "1"}
        assert "count" not in {state.name for state in reader.states("op")}


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_are_transformed_and_fire_as_they_then_are(tmp_path: Path, backend: str) -> None:
    """Those of `a` at 1000 go, all others come 100 ms later, and one is new; states stay."""

    def later(table: pa.Table) -> pa.Table:
        gone = pc.and_(pc.equal(table["key"], "a"), pc.equal(table["timestamp"], 1000))
        kept = table.filter(pc.invert(gone))
        moved = kept.set_column(2, "timestamp", pc.add(kept["timestamp"], 100))
        new = pa.table(
            {"key": ["b"], "namespace": pa.nulls(1), "timestamp": [1200], "domain": ["EVENT_TIME"]}
        )
        # One that comes twice is one.
        return pa.concat_tables([moved, new, new])

    path = bootstrapped(tmp_path, backend)
    writer = SavepointWriter.from_existing_savepoint(path).transform_timers("op", later)
    changed = writer.write(f"{tmp_path}/changed")
    with SavepointReader.read(changed) as reader:
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 2, "b": 1, "c": 1}
        timers = reader.read_timers("op").to_pylist()
        assert [(t["key"], t["timestamp"]) for t in timers if t["domain"] == "EVENT_TIME"] == [
            ("c", 1100), ("b", 1200), ("b", 2100), ("a", 3100),
        ]  # fmt: skip
        assert [t["key"] for t in timers if t["domain"] == "PROCESSING_TIME"] == ["a"]
    configuration = {"state.backend.type": backend}
    with SavepointEnvironment(job, changed, configuration=configuration) as environment:
        environment.watermark(1250)
        assert environment.take() == [("c", "timer", 1100), ("b", "timer", 1200)]
    without = SavepointWriter.from_existing_savepoint(path).transform_timers("op", lambda t: t.slice(0, 0))
    with SavepointReader.read(without.write(f"{tmp_path}/without")) as reader:
        assert reader.read_timers("op").num_rows == 0
        assert by_key(reader.read_keyed_state("op", "count")) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda t: t.set_column(3, "domain", pa.array(["NOON"] * len(t))),
            "one of .*EVENT_TIME.* not 'NOON'",
        ),
        (lambda t: t.set_column(2, "timestamp", pa.nulls(len(t), pa.int64())), "integers without nulls"),
        (lambda t: t.set_column(2, "timestamp", t["key"]), "integers without nulls .* not string"),
        (lambda t: t.drop_columns("namespace"), "no column 'namespace'"),
        (lambda t: t.to_pylist(), "gave list, not a pyarrow Table"),
    ],
)
def test_timers_that_are_none_are_refused_and_nothing_is_left(
    tmp_path: Path, function: Callable[[pa.Table], pa.Table], said: str
) -> None:
    writer = SavepointWriter.from_existing_savepoint(bootstrapped(tmp_path)).transform_timers("op", function)
    with pytest.raises(StateProcessorError, match=said):
        writer.write(f"{tmp_path}/refused")
    assert not (tmp_path / "refused").exists()


def test_states_of_an_operator_are_transformed_and_the_others_stay(tmp_path: Path) -> None:
    begin = OperatorTransformation.bootstrap_with
    numbers: ListStateDescriptor[int] = ListStateDescriptor("numbers", Types.LONG())
    union: ListStateDescriptor[Any] = ListStateDescriptor("union", Types.STRING())
    count = begin([("q", 9)]).key_by(key_of).to_state(COUNT, second_of)
    made = SavepointWriter.new_savepoint(16).with_operator(
        "op",
        begin([1, 2, 3]).to_list_state(numbers),
        begin(["u", "v"]).to_union_state(union),
        begin([("r", 1), ("s", 2)]).to_broadcast_state(RULES),
        count,
    )
    path = made.write(f"{tmp_path}/made")
    texts: ListStateDescriptor[str] = ListStateDescriptor("numbers", Types.STRING())
    changed = (
        SavepointWriter.from_existing_savepoint(path)
        .transform_state("op", "numbers", lambda t: t.filter(pc.greater(t["value"], 1)))
        .transform_state("op", "rules", lambda t: t.set_column(1, "value", pc.add(t["value"], 10)))
        .write(f"{tmp_path}/changed")
    )
    with SavepointReader.read(changed) as reader:
        assert reader.read_list_state("op", "numbers").column("value").to_pylist() == [2, 3]
        assert by_key(reader.read_broadcast_state("op", "rules")) == {"r": 11, "s": 12}
        assert reader.read_union_state("op", "union").column("value").to_pylist() == ["u", "v"]
        assert by_key(reader.read_keyed_state("op", "count")) == {"q": 9}
    retyped = SavepointWriter.from_existing_savepoint(path).transform_state(
        "op", "numbers", lambda t: pa.table({"value": pc.cast(t["value"], pa.string())}), texts
    )
    with SavepointReader.read(retyped.write(f"{tmp_path}/retyped")) as reader:
        assert reader.read_list_state("op", "numbers").column("value").to_pylist() == ["1", "2", "3"]
    for function, error in [
        (lambda t: pa.table({"value": ["x"]}), "a column of string of one of int64; give a descriptor"),
        (lambda t: pa.table({"value": [1], "subtask": [3]}), "the subtasks 0 to 0, the table names 3"),
        (lambda t: t.drop_columns(["value"]), "has no column 'value'"),
        (lambda t: None, "gave NoneType, not a pyarrow Table"),
    ]:
        writer = SavepointWriter.from_existing_savepoint(path).transform_state("op", "numbers", function)
        with pytest.raises(StateProcessorError, match=error):
            writer.write(f"{tmp_path}/refused")
        assert not (tmp_path / "refused").exists()


def test_pickled_values_are_read_only_where_they_are_trusted(tmp_path: Path) -> None:
    path = written(tmp_path, {1: Unsafe()}, ValueStateDescriptor("s"))
    with SavepointReader.read(path) as reader:
        assert reader.states("op")[0].pickled
        with pytest.raises(
            UntrustedPickleError, match=r"operator 'op', state 's': .*Unsafe.*trust_pickle=True"
        ):
            reader.read_keyed_state("op", "s")
        with pytest.raises(UntrustedPickleError, match=r"operator 'op', state 's'"):
            list(reader.read_keys("op", Everything()))
    with pytest.raises(UntrustedPickleError, match=r"operator 'op', state 's'"):
        SavepointEnvironment(job, path)
    SavepointEnvironment(job, path, trust_pickle=True).close()
    with SavepointReader.read(path, trust_pickle=True) as reader:
        assert len(reader.read_keyed_state("op", "s")) == 1
    copy = SavepointWriter.from_existing_savepoint(path).write(f"{tmp_path}/copy")
    with SavepointReader.read(copy) as reader:
        assert reader.states("op")[0].pickled, "carried over unread"


def test_savepoints_are_sealed_for_jobs_of_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 2)
    secret.chmod(0o600)
    sealing = {"security.snapshot.secret-file": str(secret)}
    demanded = SnapshotTrust.of(str(secret), False)

    def is_trusted(path: str) -> bool:
        opened = open_snapshot(path, secret=demanded.secret)
        return check_trust(opened.metadata, opened.seal, demanded, path)

    unsealed = written(tmp_path, {1: Unsafe()}, ValueStateDescriptor("s"))
    with pytest.raises(UntrustedPickleError):
        is_trusted(unsealed)
    # Pickles of others get no seal by being carried over.
    with pytest.raises(UntrustedPickleError, match="bears no seal"):
        SavepointWriter.from_existing_savepoint(unsealed, configuration=sealing)
    with pytest.raises(UntrustedPickleError, match="bears no seal"):
        SavepointEnvironment(job, unsealed, configuration=sealing)
    trusting = SavepointWriter.from_existing_savepoint(unsealed, trust_pickle=True, configuration=sealing)
    sealed = trusting.write(f"{tmp_path}/sealed")
    assert is_trusted(sealed)
    with pytest.raises(UntrustedPickleError, match="bears no seal"):
        SavepointReader.read(unsealed, configuration=sealing)
    # What is sealed needs no trust.
    with SavepointReader.read(sealed, configuration=sealing) as reader:
        assert reader.read_keyed_state("op", "s").num_rows == 1
    with (
        SavepointReader.read(sealed) as reader,
        pytest.raises(UntrustedPickleError, match=r"security\.snapshot\.secret-file that sealed"),
    ):
        reader.read_keyed_state("op", "s")
    with SavepointEnvironment(job, sealed, configuration=sealing) as environment:
        environment.push([("a", "x")])
        assert is_trusted(environment.write(f"{tmp_path}/again"))
    without = SavepointWriter.from_existing_savepoint(sealed).write(f"{tmp_path}/without")
    with pytest.raises(UntrustedPickleError):
        is_trusted(without)
    secret.chmod(0o644)
    with pytest.raises(SnapshotStorageError, match="chmod 600"):
        SavepointWriter.new_savepoint(configuration=sealing)


def test_flipped_bytes_are_found(tmp_path: Path) -> None:
    entries = {f"key {number}": "x" * 100 for number in range(1000)}
    path = written(tmp_path, entries, ValueStateDescriptor("s", Types.STRING()))
    (file,) = Path(path).glob("state-*")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with (
        SavepointReader.read(path) as reader,
        pytest.raises(CorruptSnapshotError, match=rf"{file}.*operator 'op'"),
    ):
        reader.read_keyed_state("op", "s")


def test_batches_are_bounded_and_have_one_schema(tmp_path: Path) -> None:
    entries = {number: None if number % 2 else (number, "x") for number in range(2500)}
    kept = {key: value for key, value in entries.items() if value is not None}
    path = written(tmp_path, kept, ValueStateDescriptor("s"))
    with SavepointReader.read(path) as reader:
        batches = list(reader.iterate_keyed_state("op", "s", 100))
    assert all(batch.num_rows <= 100 for batch in batches) and len(batches) >= 12
    assert len({batch.schema for batch in batches}) == 1
    table = pa.Table.from_batches(batches)
    assert {k: (v["f0"], v["f1"]) for k, v in by_key(table).items()} == kept


_atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
_values = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(_values.filter(lambda value: value is not None), max_size=6))
def test_any_values_have_a_table(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    table = value_table(written(folder, dict(enumerate(values)), ValueStateDescriptor("s")))
    assert sorted(table.column("key").to_pylist()) == list(range(len(values)))
    table.validate(full=True)


KEY_TYPES = [
    None,
    Types.ROW_NAMED(["name", "open"], [Types.STRING(), Types.BOOLEAN()]),
]


@pytest.mark.parametrize("declared", KEY_TYPES, ids=["undeclared", "declared"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_keys_of_maps_in_tables_and_back(tmp_path: Path, backend: str, declared: Any) -> None:
    descriptor: MapStateDescriptor[Row, int] = MapStateDescriptor("by row", declared, Types.LONG())

    class ByRow(KeyedStateBootstrapFunction[str, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.by_row = runtime_context.get_map_state(descriptor)

        def process_element(self, value: Any, ctx: Any) -> None:
            self.by_row.put(Row(name=value[1], open=len(value[1]) > 1), 7)

    configuration = {"state.backend.type": backend}
    rows = OperatorTransformation.bootstrap_with(ROWS).key_by(key_of).transform(ByRow())
    writer = SavepointWriter.new_savepoint(16, configuration=configuration).with_operator("op", rows)
    path = writer.write(f"{tmp_path}/made")
    expected = {
        key: [({"name": name, "open": len(name) > 1}, 7) for own, name in ROWS if own == key] for key in "abc"
    }

    def shown(path: str) -> dict[Any, Any]:
        found = by_key(value_table(path, "by row"))
        return {key: sorted(entries, key=lambda entry: entry[0]["name"]) for key, entries in found.items()}

    assert shown(path) == expected

    class Everywhere(BroadcastStateBootstrapFunction[Any]):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(descriptor).put(Row(name=value[1], open=len(value[1]) > 1), 7)

    rules = OperatorTransformation.bootstrap_with(ROWS).transform(Everywhere())
    broadcast = SavepointWriter.new_savepoint(16).with_operator("op", rules).write(f"{tmp_path}/rules")
    with SavepointReader.read(broadcast) as reader:
        table = reader.read_broadcast_state("op", "by row").to_pylist()
    assert sorted(table, key=lambda row: row["key"]["name"]) == [
        {"key": {"name": name, "open": len(name) > 1}, "value": 7} for name in ("x", "yy", "zzz")
    ]
    if declared is not None:
        again = SavepointWriter.from_existing_savepoint(path).transform_state("op", "by row", lambda t: t)
        assert shown(again.write(f"{tmp_path}/again")) == expected


# ---------------------------------------------------------------------- the type of keys


TOTAL: ValueStateDescriptor[int] = ValueStateDescriptor("total", Types.LONG())
DUE_AT = 9_000_000_000_000


class TotalAndTimer(KeyedStateBootstrapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> None:
        self._total.update(value[1])
        ctx.timer_service().register_processing_time_timer(DUE_AT)


class TellTotals(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (value[0], self._total.value())


def key_type_of(path: str, operator: str = "op") -> Any:
    with SavepointReader.read(path) as reader:
        return next(each.key_type for each in reader.operators() if each.uid == operator)


def totals_of(path: str, key_type: Any, keys: list[Any], backend: str = "hashmap") -> list[Any]:
    """What a job with keys of that type finds."""

    def fragment(rows: Any) -> Any:
        return rows.key_by(key_of, key_type).process(TellTotals()).uid("op")

    with SavepointEnvironment(fragment, path, configuration={"state.backend.type": backend}) as running:
        running.push([(key, 0) for key in keys])
        return [total for _, total in running.take()]


def as_numbers(table: pa.Table) -> pa.Table:
    at = table.column_names.index("key")
    return table.set_column(at, "key", pc.cast(table["key"], pa.int64()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bootstrapped_state_has_the_type_of_its_keys(tmp_path: Path, backend: str) -> None:
    rows = OperatorTransformation.bootstrap_with([("1", 10), ("2", 20)])
    made = rows.key_by(key_of, Types.STRING()).transform(TotalAndTimer())
    writer = SavepointWriter.new_savepoint(16, configuration={"state.backend.type": backend})
    path = writer.with_operator("op", made).write(f"{tmp_path}/made")
    assert key_type_of(path) == Types.STRING()
    assert totals_of(path, Types.STRING(), ["1", "2"], backend) == [10, 20]
    assert totals_of(path, None, [1], backend) == [None], "what is not declared is not compared"
    with pytest.raises(SavepointMismatchError, match=r"operator 'KeyedProcess'.*String.*Long"):
        totals_of(path, Types.LONG(), [1], backend)
    # Copied, it keeps the type; keys that a function changes have the type it is told.
    change = SavepointWriter.from_existing_savepoint
    kept = change(path).change_operator_identifier("op", "new").write(f"{tmp_path}/kept")
    assert key_type_of(kept, "new") == Types.STRING()
    half = change(path).transform_state("op", "total", as_numbers).write(f"{tmp_path}/half")
    assert key_type_of(half) is None, "timers and the state have keys of two types"
    with pytest.raises(SavepointMismatchError, match="processing"):
        totals_of(half, Types.LONG(), [1], backend)
    both = change(path).transform_state("op", "total", as_numbers, key_type=Types.LONG())
    whole = both.transform_timers("op", as_numbers, key_type=Types.LONG()).write(f"{tmp_path}/whole")
    assert key_type_of(whole) == Types.LONG()
    assert totals_of(whole, Types.INT(), [1, 2], backend) == [10, 20]
    untold = change(path).transform_state("op", "total", as_numbers).transform_timers("op", as_numbers)
    assert totals_of(untold.write(f"{tmp_path}/untold"), Types.INT(), [1, 2], backend) == [10, 20]


def test_the_type_of_a_key_column_is_that_of_the_table(tmp_path: Path) -> None:
    rows = OperatorTransformation.bootstrap_with(pa.table({"name": ["1", "2"], "total": [10, 20]}))
    for key_type, stored in ((None, Types.STRING()), (Types.CHAR(), Types.CHAR()), (Types.LONG(), None)):
        made = rows.key_by("name", key_type).to_state(TOTAL, "total")
        path = SavepointWriter.new_savepoint(16).with_operator("op", made).write(f"{tmp_path}/{stored}")
        assert key_type_of(path) == stored


def test_a_native_checkpoint_keeps_the_type_of_its_keys_as_a_savepoint(tmp_path: Path) -> None:
    path = native_checkpoint(tmp_path / "golden")
    written = Path(path, "_metadata")
    metadata = decode_metadata(written.read_bytes(), path)
    changed = msgspec.json.decode(
        msgspec.json.encode(metadata).replace(b'"type":"rocksdb"', b'"type":"rocksdb","key_type":"STRING"'),
        type=type(metadata),
    )
    assert key_type_of(path, "kinds") is None
    written.write_bytes(encode_metadata(changed))
    copied = SavepointWriter.from_existing_savepoint(path).write(f"{tmp_path}/copied")
    with SavepointReader.read(copied) as reader:
        (state,) = [each for each in reader.metadata.operators if each.uid == "kinds"]
    found = {handle.key_type for subtask in state.subtasks.values() for handle in subtask.keyed}
    assert "STRING" in found


def columns_of(path: str) -> set[Any]:
    with SavepointReader.read(path) as reader:
        states = [subtask for each in reader.metadata.operators for subtask in each.subtasks.values()]
    return {handle.key_columns for subtask in states for handle in subtask.keyed}


def test_columns_of_keys_are_kept_unless_the_keys_are_made_anew(tmp_path: Path) -> None:
    pairs = Types.TUPLE([Types.STRING(), Types.STRING()])
    rows = OperatorTransformation.bootstrap_with([(("1", "2"), 10)])
    made = rows.key_by(key_of, pairs).transform(TotalAndTimer())
    path = SavepointWriter.new_savepoint(16).with_operator("op", made).write(f"{tmp_path}/made")
    assert columns_of(path) == {msgspec.UNSET}
    written = Path(path, "_metadata")
    told = msgspec.json.encode(decode_metadata(written.read_bytes(), path)).replace(
        b'"type":"key_groups"', b'"type":"key_groups","key_columns":["city","land"]'
    )
    written.write_bytes(encode_metadata(msgspec.json.decode(told, type=CheckpointMetadata)))
    change = SavepointWriter.from_existing_savepoint

    def same(table: pa.Table) -> pa.Table:
        return table

    kept = change(path).transform_state("op", "total", same).write(f"{tmp_path}/kept")
    assert columns_of(kept) == {("city", "land")}
    both = change(path).transform_state("op", "total", same, key_type=pairs)
    assert columns_of(both.transform_timers("op", same, key_type=pairs).write(f"{tmp_path}/anew")) == {
        msgspec.UNSET
    }
