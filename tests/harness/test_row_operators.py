"""Every row operator through the operator harness: what goes in, what comes out, in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common.types import Row
from yarrow.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from yarrow.datastream.state import ValueState
from yarrow.testing.operator_harness import Fragment, OperatorHarness


def run(fragment: Fragment, *rows: Any, chunk_rows: int | None = None) -> list[Any]:
    with OperatorHarness(fragment, chunk_rows=chunk_rows) as harness:
        harness.push(*rows)
        harness.end()
        return harness.output


class Score(NamedTuple):
    name: str
    points: int


def test_map_and_filter() -> None:
    assert run(lambda s: s.map(lambda x: x * 2).filter(lambda x: x > 2), 1, 2, 3) == [4, 6]
    assert run(lambda s: s.map(lambda x: None), 1, 2) == [None, None]


def test_flat_map_takes_lists_generators_and_none() -> None:
    def spread(value: int) -> Iterable[int] | None:
        if value == 0:
            return None
        if value == 1:
            return [1, 1]
        return (value for _ in range(value))

    assert run(lambda s: s.flat_map(spread), 0, 1, 2, 0, 3) == [1, 1, 2, 2, 3, 3, 3]


def test_flat_map_without_return_gives_nothing() -> None:
    class Nothing(FlatMapFunction[Any, Any]):
        def flat_map(self, value: Any) -> Any:
            return None

    assert run(lambda s: s.flat_map(Nothing()), 1, 2) == []


def test_project_of_tuples_rows_and_named_tuples() -> None:
    from yarrow.common.typeinfo import Types

    kind = Types.TUPLE([Types.INT(), Types.STRING(), Types.INT()])
    with OperatorHarness(lambda s: s.project(2, 0), types=[kind]) as harness:
        harness.push((1, "a", 2), (3, "b", 4))
        assert harness.output == [(2, 1), (4, 3)]


def test_reduce_emits_each_new_value() -> None:
    pairs = [("a", 1), ("b", 5), ("a", 2), ("a", 3), ("b", 1)]
    result = run(lambda s: s.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])), *pairs)
    assert result == [("a", 1), ("b", 5), ("a", 3), ("a", 6), ("b", 6)]


FORMS: dict[str, Any] = {
    "tuple": lambda name, points: (name, points),
    "list": lambda name, points: [name, points],
    "named tuple": Score,
    "row": lambda name, points: Row(name, points),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("sum", [3, 4, 9]),
        ("min", [3, 1, 1]),
        ("max", [3, 3, 5]),
        ("min_by", [3, 1, 1]),
        ("max_by", [3, 3, 5]),
    ],
)
def test_aggregates_of_a_field(form: str, aggregate: str, expected: list[int]) -> None:
    make = FORMS[form]
    rows = [make("k", 3), make("k", 1), make("k", 5)]
    with OperatorHarness(lambda s: getattr(s.key_by(lambda r: r[0]), aggregate)(1)) as harness:
        harness.push(*rows)
        assert [row[1] for row in harness.output] == expected
        assert {type(row) for row in harness.output} == {type(rows[0])}
    assert [row[1] for row in rows] == [3, 1, 5]


def test_min_keeps_other_fields_of_the_first_record_and_min_by_takes_the_whole_record() -> None:
    rows = [("k", 3, "first"), ("k", 1, "second"), ("k", 1, "third")]
    assert run(lambda s: s.key_by(lambda r: r[0]).min(1), *rows)[-1] == ("k", 1, "first")
    assert run(lambda s: s.key_by(lambda r: r[0]).min_by(1), *rows)[-1] == ("k", 1, "second")


def test_sum_of_a_named_field_keeps_names_and_kind() -> None:
    rows = [Row(name="k", points=1), Row(name="k", points=2)]
    last = run(lambda s: s.key_by(lambda r: r["name"]).sum("points"), *rows)[-1]
    assert last == Row(name="k", points=3)
    assert last["points"] == 3


class Halves(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return ("first", value)

    def map2(self, value: Any) -> Any:
        return ("second", value)


class SpreadHalves(CoFlatMapFunction[Any, Any, Any]):
    def flat_map1(self, value: Any) -> Any:
        return [value] * value

    def flat_map2(self, value: Any) -> Any:
        return None if value == 0 else iter([value])


def test_co_map_and_co_flat_map() -> None:
    with OperatorHarness(lambda a, b: a.connect(b).map(Halves()), inputs=2) as harness:
        harness.push(1)
        harness.push(2, input=1)
        harness.push(3)
        assert harness.output == [("first", 1), ("second", 2), ("first", 3)]
    with OperatorHarness(lambda a, b: a.connect(b).flat_map(SpreadHalves()), inputs=2) as harness:
        harness.push(2)
        harness.push(0, 7, input=1)
        assert harness.output == [2, 2, 7]


class Both(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> None:
        return None


class Joined(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Pairs of two inputs by key; the first input waits in state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.first: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("first"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.first.update(value)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.first.value(), value


def test_co_process_with_and_without_keys() -> None:
    with OperatorHarness(lambda a, b: a.connect(b).process(Both()), inputs=2) as harness:
        harness.push("x", timestamps=[7])
        harness.push("y", input=1)
        harness.push("z")
        assert harness.output == [("x", 7), ("z", None)]

    def joined(a: Any, b: Any) -> Any:
        return a.connect(b).key_by(lambda v: v % 10, lambda v: v % 10).process(Joined())

    with OperatorHarness(joined, inputs=2) as harness:
        harness.push(11, 12)
        harness.push(21, 13, input=1)
        assert harness.output == [(1, 11, 21), (3, None, 13)]


LATE, ODD, UNREAD = OutputTag("late"), OutputTag("odd"), OutputTag("unread")


class Split(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value % 2:
            yield ODD, value
        elif value == 4:
            yield UNREAD, value
        else:
            yield value
            yield (value, value)


def test_side_outputs_and_a_tag_that_nobody_reads() -> None:
    def fragment(stream: Any) -> Any:
        split = stream.process(Split())
        return split, split.get_side_output(ODD), split.get_side_output(LATE)

    with OperatorHarness(fragment) as harness:
        harness.push(1, 2, 3, 4)
        assert harness.output == [2, (2, 2)]
        assert harness.outputs(1) == [1, 3]
        assert harness.outputs(2) == []


def test_side_output_flows_through_chained_operators() -> None:
    def fragment(stream: Any) -> Any:
        split = stream.process(Split())
        return split.get_side_output(ODD).map(lambda v: -v), split.map(str)

    with OperatorHarness(fragment) as harness:
        harness.push(1, 2, 3)
        assert harness.output == [-1, -3]
        assert harness.outputs(1) == ["2", "(2, 2)"]


def test_union_and_timestamps_travel() -> None:
    with OperatorHarness(lambda a, b: a.union(b).map(lambda v: v), inputs=2) as harness:
        harness.push(1, 2, timestamps=[10, None])
        harness.push(3, input=1, timestamps=[30])
        assert harness.output == [1, 2, 3]
        assert harness.timestamps() == [10, None, 30]


class Lifecycle(MapFunction[Any, Any]):
    calls: ClassVar[list[str]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize("end", [True, False])
def test_open_and_close_are_called_once(end: bool) -> None:
    Lifecycle.calls.clear()
    with OperatorHarness(lambda s: s.map(Lifecycle())) as harness:
        harness.push(1)
        if end:
            harness.end()
    assert Lifecycle.calls == ["open 0", "close"]


def chained(stream: Any) -> Any:
    split = stream.flat_map(lambda v: [v] * (v % 3)).map(lambda v: (v % 5, v)).process(SplitPairs())
    return split.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])), split.get_side_output(ODD)


class SplitPairs(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value
        if value[1] % 2:
            yield ODD, value


@pytest.mark.slow
@settings(max_examples=40)
@given(
    rows=st.lists(st.integers(-20, 20), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    chunk_rows=st.integers(1, 7),
)
def test_chunk_boundaries_never_change_results(rows: list[int], cuts: list[int], chunk_rows: int) -> None:
    with OperatorHarness(chained) as whole:
        whole.push(*rows)
        whole.end()
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    with OperatorHarness(chained, chunk_rows=chunk_rows) as parts:
        for start, end in itertools.pairwise(edges):
            parts.push(*rows[start:end])
        parts.end()
    assert parts.output == whole.output
    assert parts.outputs(1) == whole.outputs(1)


class Parameter(MapFunction[Any, Any]):
    """Reads a parameter of the job in place of each record's value."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.read = runtime_context.get_job_parameter

    def map(self, value: Any) -> Any:
        return self.read(value, "the default")


def test_functions_read_the_parameters_that_the_program_has_set() -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.get_config().set_global_job_parameters({"limit": "10", "query": "a,b:c"})
    configuration = environment.get_configuration().to_dict()
    with OperatorHarness(lambda s: s.map(Parameter()), configuration=configuration) as harness:
        harness.push("limit", "query", "other")
        assert harness.output == ["10", "a,b:c", "the default"]
