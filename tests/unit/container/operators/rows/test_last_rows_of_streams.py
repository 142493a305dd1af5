"""Rolling aggregates whose spec says `last_only`: a stream emits the last row of each key, when its input ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.common import Types
from yarrow.runtime.data.elements import MAX_TIMESTAMP, Watermark
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.testing.operator_harness import HarnessState, OperatorHarness

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def last_only(graph: JobGraph) -> tuple[JobGraph, dict[Any, Any]]:
    """The graph with `last_only` in all rolling aggregates."""

    def changed(operator: Any) -> Any:
        if not operator.spec.is_rolling:
            return operator
        return msgspec.structs.replace(operator, spec=msgspec.structs.replace(operator.spec, last_only=True))

    vertices = tuple(
        msgspec.structs.replace(vertex, operators=tuple(map(changed, vertex.operators)))
        for vertex in graph.vertices
    )
    return msgspec.structs.replace(graph, vertices=vertices), {}


def harness(fragment: Callable[[Any], Any], kind: Any = PAIR) -> OperatorHarness:
    return OperatorHarness(fragment, types=[kind], state=HarnessState(restore=last_only))


def test_each_key_is_emitted_once_with_the_time_of_its_last_record() -> None:
    fragment: Any = lambda stream: stream.key_by(lambda row: row[0]).reduce(  # noqa: E731
        lambda one, other: (one[0], one[1] + other[1])
    )
    with harness(fragment) as run:
        run.push(("a", 1), ("b", 2), timestamps=[5, 6])
        run.watermark(7)
        run.push(("a", 3), timestamps=[9])
        assert run.output == []
        assert [each for each in run.controls() if isinstance(each, Watermark)] == []
        run.watermark(MAX_TIMESTAMP)
        run.end()
        assert sorted(run.output) == [("a", 4), ("b", 2)]
        assert sorted(time for time in run.timestamps() if time is not None) == [6, 9]
        # The only watermark comes behind the rows, so none of them is late.
        marks = [each.timestamp for each in run.controls() if isinstance(each, Watermark)]
        assert marks == [MAX_TIMESTAMP]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=15),
    name=st.sampled_from(["sum", "min", "max", "min_by", "max_by", "reduce"]),
)
def test_they_are_the_last_rows_that_the_stream_emits(rows: list[Any], name: str) -> None:
    def fragment(stream: Any) -> Any:
        keyed = stream.key_by(lambda row: row[0])
        if name == "reduce":
            return keyed.reduce(lambda one, other: (one[0], (one[1] * 31 + other[1]) % 1009))
        return getattr(keyed, name)(1)

    def emitted(state: HarnessState) -> list[Any]:
        with OperatorHarness(fragment, types=[PAIR], state=state) as run:
            run.push(*rows)
            run.watermark(MAX_TIMESTAMP)
            run.end()
            return list(run.output)

    every = emitted(HarnessState())
    assert len(every) == len(rows)
    assert sorted(emitted(HarnessState(restore=last_only))) == sorted({row[0]: row for row in every}.values())


def test_built_in_aggregates_do_the_same() -> None:
    with harness(lambda stream: stream.key_by(lambda row: row[0]).max_by(1)) as run:
        run.push(("a", 1), ("a", 3), ("a", 2), ("b", 1))
        run.watermark(MAX_TIMESTAMP)
        run.end()
        assert sorted(run.output) == [("a", 3), ("b", 1)]


def test_columns_do_the_same() -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    with harness(lambda stream: stream.key_by("k").sum("n"), schema) as run:
        run.push_batch(pa.record_batch({"k": ["a", "b", "a"], "n": [1, 2, 3]}, schema=schema))
        run.push_batch(pa.record_batch({"k": ["b"], "n": [5]}, schema=schema))
        assert run.record_batches() == []
        run.watermark(MAX_TIMESTAMP)
        run.end()
        rows = [row for batch in run.record_batches() for row in batch.to_pylist()]
        assert sorted(rows, key=str) == [{"k": "a", "n_sum": 4}, {"k": "b", "n_sum": 7}]
