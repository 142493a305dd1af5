"""State written as databases: a job on RocksDB opens them as they are, and all readers read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.state_processor.bootstrapped import BY_DAY, COUNT, EXPIRING, NAMES, Job
from tests.unit.state_processor.spark.without_spark import WithoutSpark, read_as_tasks, table_of
from yarrow.container.fragment import FragmentFailedError
from yarrow.runtime.snapshot.handles import RocksDBSnapshot
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.state_processor import (
    SavepointEnvironment,
    SavepointReader,
    SavepointWriter,
    StateProcessorError,
)
from yarrow.state_processor.spark.state_tables import TableKind

ROCKSDB = {"state.backend.type": "rocksdb"}


def job(rows: Any) -> Any:
    return rows.key_by(lambda row: row[0]).process(Job()).uid("op")


def written(folder: Path, *transformations: WithoutSpark) -> str:
    return SavepointWriter.new_savepoint(16).with_operator("op", *transformations).write(f"{folder}/made")


def counts(count: int = 500) -> list[pa.Table]:
    numbers = [range(start, count, 2) for start in range(2)]
    return [pa.table({"key": [f"k{n}" for n in each], "value": list(each)}) for each in numbers]


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_job_goes_on_from_databases(tmp_path: Path, partitions: int) -> None:
    names = pa.table({"key": ["k1", "k2", "k1"], "value": [["x"], ["yy"], ["z", "w"]]})
    path = written(
        tmp_path,
        WithoutSpark(counts(), COUNT, partitions, native=True),
        WithoutSpark([names], NAMES, 3, native=True),
    )
    (operator,) = open_snapshot(path).metadata.operators
    assert all(isinstance(handle, RocksDBSnapshot) for handle in operator.subtasks[0].keyed)
    with SavepointEnvironment(job, path, configuration=ROCKSDB) as environment:
        environment.push([("k1", "v"), ("k499", "v"), ("k2", "v"), ("new", "v")])
        assert environment.take() == [
            ("k1", 2, ["x", "z", "w", "v"], 1), ("k499", 500, ["v"], 1),
            ("k2", 3, ["yy", "v"], 1), ("new", 1, ["v"], 1),
        ]  # fmt: skip
        after = environment.write(f"{tmp_path}/after")
    with pytest.raises(
        FragmentFailedError, match=r"files of RocksDB, which the state backend 'hashmap' cannot read"
    ):
        SavepointEnvironment(job, path)
    with SavepointReader.read(after) as reader:
        assert reader.read_keyed_state("op", "count").num_rows == 501


@pytest.mark.parametrize(
    ("descriptor", "keys", "column"),
    [
        (COUNT, list(range(-300, 300)), pa.array(range(600))),
        (NAMES, ["a", "b"], pa.array([["x", "y"], []])),
        (
            BY_DAY,
            ["a", "b"],
            pa.array([[("tue", 1.5), ("mon", 2.5)], []], pa.map_(pa.string(), pa.float64())),
        ),
        (EXPIRING, ["a", "b"], pa.array([5, 6])),
    ],
    ids=["value", "list", "map", "time to live"],
)
def test_databases_hold_what_the_canonical_form_holds(
    tmp_path: Path, descriptor: Any, keys: list[Any], column: pa.Array
) -> None:
    table = pa.table({"key": keys, "value": column})
    if descriptor is EXPIRING:
        table = table.append_column(
            "access_time", pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC"))
        )
    name = descriptor.get_name()
    found = []
    for native in (False, True):
        path = written(tmp_path / str(native), WithoutSpark([table], descriptor, 2, native=native))
        with SavepointReader.read(path) as reader:
            rows = reader.read_keyed_state("op", name).to_pylist()
        in_tasks = read_as_tasks(table_of(path, "op", TableKind.KEYED, name), 3).to_pylist()
        assert sorted(map(repr, in_tasks)) == sorted(map(repr, rows))
        # Neither a map nor a list without content is state in a database; the entries of a map have no order.
        kept = [
            row | {"value": sorted(row["value"])} if isinstance(row["value"], list) else row for row in rows
        ]
        found.append(sorted(repr(row) for row in kept if row["value"] != []))
    assert found[0] == found[1]


def test_a_refused_row_leaves_nothing(tmp_path: Path) -> None:
    twice = pa.table({"key": ["a", "a"], "value": [1, 2]})
    with pytest.raises(StateProcessorError, match=r"the key 'a' comes twice"):
        written(tmp_path, WithoutSpark([*counts(), twice], COUNT, 2, native=True))
    assert not (tmp_path / "made").exists()
