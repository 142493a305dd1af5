"""Immediate joins in a program: rules by name on both backends, and restores at other parallelisms against a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.restarted_job import CANONICAL, RestartedJob
from tests.unit.datastream.keyed_join_harness import (
    ROW,
    Join,
    Pairs,
    Run,
    keyed,
    opened,
    push,
    results,
    watermark,
)
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, KeyedStream, ProcessJoinFunction, StateTtlConfig
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.data.elements import Watermark
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import ImmediateJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with opened(request.param) as start:
        yield start


def immediate(left: KeyedStream, right: KeyedStream) -> Any:
    return left.immediate_join(right)


def latest(left: KeyedStream, right: KeyedStream) -> Any:
    return left.immediate_join(right).latest_only()


def outer(left: KeyedStream, right: KeyedStream) -> Any:
    return left.immediate_join(right).right_outer()


def test_a_row_of_the_second_stream_meets_all_rows_of_the_first_that_have_come(run: Run) -> None:
    harness = run(immediate)
    push(harness, 1, 1)
    push(harness, 0, 2, 9)
    push(harness, 0, 3, key="b")
    push(harness, 1, 4)
    push(harness, 0, 5)
    # It leaves at once, with its own time.
    assert results(harness) == [((2, 4), 4), ((9, 4), 4)]
    push(harness, 1, 6)
    assert harness.output == [(2, 4), (9, 4), (2, 6), (9, 6), (5, 6)]


def test_the_latest_row_alone_may_be_kept(run: Run) -> None:
    harness = run(latest)
    push(harness, 1, 1)
    push(harness, 0, 7, 2)
    push(harness, 1, 3)
    assert harness.output == [(2, 3)]


def test_right_outer_keeps_rows_that_meet_none(run: Run) -> None:
    harness = run(outer)
    push(harness, 1, 1)
    push(harness, 0, 2)
    push(harness, 1, 3)
    assert harness.output == [(None, 1), (2, 3)]


def test_rows_need_no_time_and_are_never_late(run: Run) -> None:
    harness = run(immediate)
    harness.push(("a", 1))
    harness.push(("a", 2), input=1)
    assert results(harness) == [((1, 2), None)]
    watermark(harness, 100)
    assert harness.controls() == [Watermark(100)]
    push(harness, 1, 5)
    assert results(harness)[1:] == [((1, 5), 5)]


def test_the_context_tells_the_times_of_both_rows(run: Run) -> None:
    class Times(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp())]

    harness = run(immediate, Times())
    push(harness, 0, 9)
    harness.push(("a", 1))
    push(harness, 1, 5)
    assert harness.output == [(9, 5, 5), (None, 5, 5)]


@pytest.mark.parametrize("only", [False, True])
def test_kept_rows_may_expire(run: Run, only: bool) -> None:
    def join(left: KeyedStream, right: KeyedStream) -> Any:
        ttl = StateTtlConfig.new_builder(Time.seconds(10)).build()
        made = left.immediate_join(right).enable_time_to_live(ttl)
        return made.latest_only() if only else made

    harness = run(join)
    push(harness, 0, 1)
    push(harness, 1, 2)
    harness.clock.advance(11)
    push(harness, 1, 3)
    assert harness.output == [(1, 2)]


def test_an_error_names_operator_key_and_both_rows(run: Run) -> None:
    class Fails(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            raise ValueError("no pair")

    harness = run(immediate, Fails())
    push(harness, 0, 7)
    expected = r"(?s)no pair.*'Immediate Join'.*\('a', 7\) with \('a', 8\) \(key 'a'\)"
    with pytest.raises(FragmentFailedError, match=expected):
        push(harness, 1, 8)


def test_an_immediate_join_becomes_an_operator_of_two_inputs() -> None:
    left = keyed(key_type=Types.STRING(), timed=False)
    joined = left.immediate_join(keyed(left.get_execution_environment(), timed=False))
    operator = operator_of(joined.latest_only().right_outer().process(Pairs(), ROW))
    assert isinstance(operator.spec, ImmediateJoinOperator)
    assert (operator.spec.latest_only, operator.spec.ttl) == (True, None)
    assert operator.spec.kind is JoinKind.RIGHT_OUTER
    assert (operator.name, operator.state_key_type) == ("Immediate Join", Types.STRING())
    with pytest.raises(TypeError, match="enable_time_to_live takes a StateTtlConfig, not 5"):
        joined.enable_time_to_live(5)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- restores

steps_of = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 1), st.sampled_from([1, "two", None])),
        st.tuples(st.integers(0, 1), st.sampled_from([1, "two", None])),
        st.tuples(st.integers(2, 5), st.sampled_from(["hashmap", "rocksdb"])),
    ),
    max_size=20,
)


@pytest.mark.slow
@pytest.mark.parametrize("join", [immediate, latest, outer])
@settings(max_examples=12, deadline=None)
@given(steps=steps_of)
def test_immediate_joins_are_those_of_the_model(join: Join, steps: list[tuple[int, Any]]) -> None:
    def build(first: DataStream, second: DataStream) -> DataStream:
        left, right = (rows.key_by(lambda row: row[0]) for rows in (first, second))
        joined: DataStream = join(left, right).process(Whole()).uid("join")
        return joined

    job = RestartedJob(build, inputs=2)
    job.start(1, "hashmap")
    kept: dict[Any, list[Any]] = defaultdict(list)
    try:
        for number, (what, of) in enumerate(steps):
            if what > 1:
                # The number of subtasks, and their backend.
                job.stop(CANONICAL)
                job.start(what - 1, of)
                continue
            row = (of, number)
            job.push([row], [number], what)
            if what:
                found = kept[of] or ([None] if join is outer else [])
                assert job.take() == [((left, row), number) for left in found]
            elif join is latest:
                kept[of] = [row]
            else:
                kept[of].append(row)
    finally:
        for fragment in job.fragments:
            fragment.close()


class Whole(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right
