"""DataSets: what each operation gives, and what is refused while the program is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.batch_runner import run_batch
from tests.support.data_sets import data_set_environment, graph_of, rows_of, run
from yarrow.batch.dataset import Aggregations, DataSet, Order, WriteMode
from yarrow.batch.dataset.functions import (
    GroupCombineFunction,
    GroupReduceFunction,
    MapFunction,
    RichMapFunction,
    RichReduceFunction,
    RuntimeContext,
)
from yarrow.batch.dataset.output import file_output
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.common.types import Row
from yarrow.container.operators.data_set import grouped_rows
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.graph.states import BatchRunner, JobType

PAIRS = [("a", 1), ("b", 5), ("a", 3), ("c", 2), ("b", 4)]


def pairs(declared: bool = True) -> DataSet:
    kind = Types.TUPLE([Types.STRING(), Types.LONG()]) if declared else None
    return data_set_environment().from_collection(PAIRS, kind)


class Above(MapFunction[int, bool]):
    """Whether a number is above the mean of a broadcast variable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        numbers = runtime_context.get_broadcast_variable("numbers")
        self.mean = sum(numbers) / len(numbers)
        assert runtime_context.has_broadcast_variable("numbers")
        assert not runtime_context.has_broadcast_variable("others")
        assert runtime_context.get_broadcast_variable_with_initializer("numbers", max) == max(numbers)

    def map(self, value: int) -> bool:
        return bool(value > self.mean)


def test_a_function_finds_broadcast_variables_when_it_is_opened() -> None:
    numbers = data_set_environment().generate_sequence(1, 9)
    found = rows_of(numbers.map(Above()).with_broadcast_set(numbers.map(lambda n: n), "numbers"))
    assert sorted(found) == [False] * 5 + [True] * 4


class WithRest(RichReduceFunction[Any]):
    """Adds, and adds a broadcast variable once a call."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = self.get_runtime_context() is runtime_context
        (self.rest,) = runtime_context.get_broadcast_variable("rest")
        self.calls = IntCounter()
        runtime_context.add_accumulator("calls", self.calls)

    def reduce(self, value1: Any, value2: Any) -> Any:
        assert self.opened and self.rest == 7
        self.calls.add(1)
        return value1[0], value1[1] + value2[1]


def test_a_rich_reduce_has_accumulators_and_broadcast_variables_on_both_sides_of_the_shuffle() -> None:
    data = pairs()
    rest = data.get_execution_environment().from_elements(7)
    left = run(data.group_by(0).reduce(WithRest()).with_broadcast_set(rest, "rest"))
    assert sorted(left.rows()) == [("a", 4), ("b", 9), ("c", 2)]
    calls = [
        result.accumulators["calls"] for result in left.results.values() if "calls" in result.accumulators
    ]
    assert sum(calls) == 2


def test_a_plain_reduce_may_have_a_broadcast_variable() -> None:
    data = pairs()
    rest = data.get_execution_environment().from_elements(7)
    reduced = data.group_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])).with_broadcast_set(rest, "rest")
    assert sorted(rows_of(reduced)) == [("a", 4), ("b", 9), ("c", 2)]


class Parameter(RichMapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return self.get_runtime_context().get_job_parameter("limit", "none")


def test_functions_read_the_parameters_of_the_job() -> None:
    env = data_set_environment(2)
    env.get_config().set_global_job_parameters({"limit": "7"})
    graph = graph_of(env.from_elements(1).map(Parameter()))
    assert run_batch(graph, graph.configuration).rows() == ["7"]


def test_a_broadcast_variable_that_is_missing_is_named() -> None:
    data = pairs()
    found = data.map(Above()).with_broadcast_set(data, "others")
    with pytest.raises(OperatorFailure) as failed:
        rows_of(found)
    cause = str(failed.value.__cause__)
    assert "no broadcast variable 'numbers', it has: 'others'" in cause and "with_broadcast_set" in cause


def test_aggregates_of_several_fields_come_in_one_row() -> None:
    rows = [("a", 1, 9), ("a", 3, 4), ("b", 2, 2)]
    kind = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    data = data_set_environment().from_collection(rows, kind)
    found = data.group_by(0).aggregate(Aggregations.SUM, 1).and_(Aggregations.MIN, "f2")
    assert sorted(rows_of(found)) == [("a", 4, 4), ("b", 2, 2)]
    whole = data.aggregate(Aggregations.MAX, 1).and_sum(2).project(1, 2)
    assert rows_of(whole) == [(3, 15)]


def test_nothing_aggregates_to_nothing() -> None:
    empty = data_set_environment().from_collection([], Types.TUPLE([Types.LONG()]))
    assert rows_of(empty.sum(0)) == []
    assert rows_of(empty.reduce_group(lambda rows: [len(list(rows))])) == []
    # The function is called for each of both partitions.
    assert rows_of(empty.map_partition(lambda rows: [len(list(rows))])) == [0, 0]


def test_rows_are_grouped_by_names_of_nested_fields() -> None:
    rows = [Row(who=Row(name=n, age=1), n=v) for n, v in PAIRS]
    data = data_set_environment().from_collection(rows)
    found = data.group_by("who.name").reduce_group(lambda rows: [sum(row.n for row in rows)])
    assert sorted(rows_of(found)) == [2, 4, 9]


def test_distinct_takes_fields_selectors_or_rows() -> None:
    data = pairs()
    assert sorted(rows_of(data.distinct(0).project(0))) == [("a",), ("b",), ("c",)]
    again = pairs(declared=False)
    assert len(rows_of(again.distinct(lambda row: row[1] % 2))) == 2
    numbers = data_set_environment().from_elements(1, 2, 1, 2, 3)
    assert sorted(rows_of(numbers.distinct())) == [1, 2, 3]


class Sums(GroupReduceFunction[Any, Any], GroupCombineFunction[Any, Any]):
    """Sums by key, which count the rows that they get."""

    def reduce(self, values: Iterator[Any]) -> Iterator[Any]:
        found = list(values)
        yield found[0][0], sum(value for _, value in found)

    def combine(self, values: Iterator[Any]) -> Iterator[Any]:
        return self.reduce(values)


def test_a_group_reduce_combines_before_the_shuffle() -> None:
    data = data_set_environment().generate_sequence(1, 5000).map(lambda n: (n % 5, n))
    left = run(data.group_by(0).reduce_group(Sums()))
    assert sorted(left.rows()) == [(k, sum(range(k or 5, 5001, 5))) for k in range(5)]
    received = [
        left.results[vertex.id, subtask].records_in
        for vertex in left.graph.vertices
        if vertex.head.name == "GroupReduce"
        for subtask in range(vertex.parallelism)
    ]
    assert sum(received) == 10


def test_sorted_groups_come_in_order_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(n % 3, n * 7 % 101, n) for n in range(3000)]
    for sort_memory in ("128 mb", "1 mb"):
        monkeypatch.setattr(grouped_rows, "_SHARE", 2 if sort_memory == "128 mb" else 100)
        data = data_set_environment(settings={"execution.batch.sort-memory": sort_memory}).from_collection(
            rows
        )
        found = (
            data.group_by(0)
            .sort_group(1, Order.DESCENDING)
            .sort_group(2)
            .reduce_group(lambda group: [list(group)])
        )
        assert sorted(rows_of(found)) == sorted(
            sorted((row for row in rows if row[0] == key), key=lambda row: (-row[1], row[2]))
            for key in range(3)
        )


def running_sums(values: Iterator[int]) -> Iterator[int]:
    total = 0
    for value in values:
        total += value
        yield total


def test_functions_of_iterators_wait_for_rows_and_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_rows._IteratingOperator, "waiting_rows", 3)
    numbers = data_set_environment(1).generate_sequence(1, 20)
    assert rows_of(numbers.map_partition(running_sums)) == list(running_sums(iter(range(1, 21))))
    numbers = data_set_environment(1).generate_sequence(1, 20)
    assert rows_of(numbers.reduce_group(running_sums)) == list(running_sums(iter(range(1, 21))))
    numbers = data_set_environment(1).generate_sequence(1, 20)
    assert rows_of(numbers.map_partition(lambda rows: [next(rows), next(rows)])) == [1, 2]
    numbers = data_set_environment(1).generate_sequence(1, 20)
    many = numbers.map_partition(lambda rows: (n for row in rows for n in range(500)))
    assert rows_of(many) == list(range(500)) * 20


def failing(values: Iterator[int]) -> Iterator[int]:
    for value in values:
        yield 10 // (value - 15)


def test_a_failure_within_an_iterator_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_rows._IteratingOperator, "waiting_rows", 4)
    numbers = data_set_environment(1).generate_sequence(1, 20)
    with pytest.raises(OperatorFailure, match=r"MapPartition") as failed:
        rows_of(numbers.map_partition(failing))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert "rows from 13 on" in failed.value.record


def test_a_failure_over_an_empty_partition_names_no_record() -> None:
    with pytest.raises(OperatorFailure) as failed:
        rows_of(
            data_set_environment(2)
            .from_collection([1])
            .rebalance()
            .map_partition(lambda rows: [1 // len([*rows])])
        )
    assert (failed.value.operator_name, failed.value.record) == ("MapPartition", "")


def test_counts_and_plans_are_those_of_a_batch_job() -> None:
    data = pairs()
    graph = graph_of(data.group_by(0).sum(1))
    assert graph.job_type is JobType.BATCH
    assert "sum" in str(graph.plan)
    # What no sink reads is no part of the job.
    data.map(lambda row: row)
    assert len(graph_of(data).vertices) == 1


def write(data: DataSet, path: Path) -> None:
    data.write_as_text(str(path))


def test_bad_programs_are_refused_at_the_call(tmp_path: Path) -> None:
    data = pairs()
    other = pairs()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")
    refused: dict[str, Any] = {
        r"group_by\(2\): there is no such field; the records have 2 fields": lambda: data.group_by(2),
        r"group_by\('x'\): there is no such field; the records have \['f0', 'f1'\]": lambda: data.group_by(
            "x"
        ),
        r"group_by\(\) needs a key": lambda: data.group_by(),
        r"aggregate\(SUM, 0\): the field is a .*which has no sum": lambda: data.sum(0),
        r"and_\(.*the field has an aggregate already": lambda: data.group_by(0).sum(1).and_min(1),
        r"min_by\(\) needs the positions": lambda: data.group_by(0).min_by(),
        r"project takes positions": lambda: data.project(),
        r"project\(5\): there is no such field": lambda: data.project(0, 5),
        r"'Projection' runs no function": lambda: data.project(0).with_broadcast_set(data, "x"),
        r"the data sets belong to two": lambda: data.map(str).with_broadcast_set(other, "x"),
        r"has a broadcast variable 'x' already": lambda: (
            data.map(str).with_broadcast_set(data, "x").with_broadcast_set(data, "x")
        ),
        r"write_as_text: .*there is a folder with files already.*OVERWRITE": lambda: write(
            data, tmp_path / "there"
        ),
        r"write_as_parquet needs the names and types": lambda: data.write_as_parquet(str(tmp_path / "x")),
        r"can only run with parallelism 1": lambda: data.sum(1).set_parallelism(2),
        r"No new data sinks have been defined": lambda: data.get_execution_environment().execute(),
    }
    for message, call in refused.items():
        with pytest.raises(InvalidProgramError, match=message):
            call()
    with pytest.raises(TypeError, match="with_broadcast_set"):
        data.__reduce__()
    with pytest.raises(TypeError, match=r"flat_map takes"):
        data.flat_map(RichMapFunction)  # type: ignore[arg-type]


def test_a_folder_that_gets_files_before_the_job_starts_is_refused_then(tmp_path: Path) -> None:
    env = data_set_environment()
    env.from_elements("a").write_as_text(str(tmp_path))
    (tmp_path / "file").write_text("x")
    (output,) = env.program.file_outputs
    with pytest.raises(InvalidProgramError, match=r"a folder with files already.*WriteMode\.OVERWRITE"):
        output.check()


@pytest.mark.parametrize("mode", WriteMode)
def test_a_plain_path_is_looked_at_in_the_default_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    (tmp_path / "local").write_text("x")

    def unreachable(path: str) -> NoReturn:
        raise FileSystemError(f"nobody answers at {path}")

    monkeypatch.setattr(file_output, "file_system_for", unreachable)
    env = data_set_environment(settings={"fs.default-scheme": "hdfs://name:8020/"})
    with pytest.raises(InvalidProgramError, match=rf"nobody answers at hdfs://name:8020{tmp_path}"):
        env.from_elements("a").write_as_text(str(tmp_path), mode)


@pytest.mark.parametrize("mode", WriteMode)
def test_a_path_that_is_a_file_is_refused_in_both_modes(tmp_path: Path, mode: WriteMode) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidProgramError, match="file is a file, and the job writes a folder of files"):
        data_set_environment().from_elements("a").write_as_text(str(tmp_path / "file"), mode)
    assert (tmp_path / "file").read_text() == "x"


def test_a_program_that_is_refused_removes_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    env = data_set_environment()
    mixed = env.from_collection([1], Types.LONG()).union(env.from_collection(["a"], Types.STRING()))
    mixed.write_as_text(str(tmp_path), WriteMode.OVERWRITE)
    for _ in range(2):
        with pytest.raises(InvalidProgramError, match="A union of streams of different types"):
            env.execute()
    assert (tmp_path / "file").exists()
    assert len(env.program.file_outputs) == 1


def test_a_collect_that_is_refused_is_no_part_of_the_next_job() -> None:
    env = data_set_environment()
    numbers = env.from_collection([1], Types.LONG())
    mixed = numbers.union(env.from_collection(["a"], Types.STRING()))
    for call in (mixed.collect, mixed.count, mixed.print):
        with pytest.raises(InvalidProgramError, match="A union of streams of different types"):
            call()
    assert rows_of(numbers) == [1]


def test_a_second_job_knows_the_size_of_its_sources_too(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    env = data_set_environment(settings={"execution.runtime-mode": "AUTOMATIC"})
    lines = env.read_text_file(str(tmp_path / "in"))
    assert [graph_of(lines).batch_runner for _ in range(2)] == [BatchRunner.LOCAL] * 2
    spark = data_set_environment()
    assert graph_of(spark.from_elements(1)).batch_runner is BatchRunner.SPARK
