"""Delayed joins in a program: rules by name on both backends, and refusals at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.unit.datastream.keyed_join_harness import (
    LATE,
    MAX,
    ROW,
    Join,
    Pairs,
    Run,
    keyed,
    opened,
    operator_of_join,
    push,
    results,
    watermark,
)
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import ProcessJoinFunction
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import DelayedJoinOperator


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with opened(request.param) as start:
        yield start


def after(delay: int, behind: Callable[[Any], Any] = lambda joined: joined) -> Join:
    return lambda left, right: behind(left.delayed_join(right).after(Time.milliseconds(delay)))


def is_empty(harness: Any) -> bool:
    return not list(operator_of_join(harness)._rows.all_keys())


def test_rows_of_a_key_are_joined_a_delay_behind_the_first_one(run: Run) -> None:
    harness = run(after(10))
    push(harness, 0, 100, 105)
    push(harness, 1, 109, 103)
    push(harness, 1, 104, key="b")
    watermark(harness, 108)
    assert harness.output == []
    watermark(harness, 109)
    # Each pair once, by time; results bear the last time of the batch.
    assert results(harness) == [((left, right), 109) for left in (100, 105) for right in (103, 109)]
    watermark(harness, 113)
    assert is_empty(harness)


def test_a_row_behind_the_delay_begins_the_next_batch(run: Run) -> None:
    harness = run(after(10))
    push(harness, 0, 100, 110)
    push(harness, 1, 110, 119, 120)
    watermark(harness, 119)
    assert results(harness) == [((110, 110), 119), ((110, 119), 119)]
    assert not is_empty(harness)
    watermark(harness, 129)
    assert is_empty(harness)


def test_a_row_that_comes_out_of_order_begins_the_batch_earlier(run: Run) -> None:
    harness = run(after(10))
    push(harness, 0, 105)
    push(harness, 1, 112)
    push(harness, 1, 101)
    watermark(harness, 110)
    # The batch is that from 101 to 110.
    assert results(harness) == [((105, 101), 110)]
    watermark(harness, 120)
    assert len(results(harness)) == 1
    assert not is_empty(harness)


def test_one_watermark_may_end_many_batches(run: Run) -> None:
    harness = run(after(10))
    push(harness, 0, *range(100, 200, 10))
    push(harness, 1, *range(105, 200, 10))
    watermark(harness, MAX)
    assert results(harness) == [((time, time + 5), time + 9) for time in range(100, 200, 10)]
    assert is_empty(harness)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("left_outer", [(1, None)]),
        ("right_outer", [(None, 21)]),
        ("full_outer", [(1, None), (None, 21)]),
    ],
)
def test_rows_of_a_batch_without_the_other_side(run: Run, call: str, expected: list[Any]) -> None:
    harness = run(after(10, lambda joined: getattr(joined, call)()))
    push(harness, 0, 1, 11)
    push(harness, 1, 12, 21)
    watermark(harness, MAX)
    assert sorted(harness.output, key=str) == sorted([*expected, (11, 12)], key=str)


def test_a_row_at_or_below_the_watermark_is_late(run: Run) -> None:
    harness = run(after(10, lambda joined: joined.side_output_left_late_data(LATE)))
    watermark(harness, 10)
    push(harness, 0, 10, 11)
    push(harness, 1, 10, 12)
    watermark(harness, 50)
    assert harness.output == [(11, 12)]
    assert results(harness, 1) == [(("a", 10), 10)]
    assert operator_of_join(harness).late_dropped == 1


def test_the_context_tells_the_times_of_the_pair_and_of_the_batch(run: Run) -> None:
    class Times(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp())]

    harness = run(after(10), Times())
    push(harness, 0, 3)
    push(harness, 1, 5)
    watermark(harness, 30)
    assert harness.output == [(3, 5, 12)]


def test_a_delayed_join_becomes_an_operator_of_two_inputs() -> None:
    left = keyed(key_type=Types.STRING())
    joined = left.delayed_join(keyed(left.get_execution_environment())).after(Time.seconds(2))
    operator = operator_of(joined.full_outer().side_output_right_late_data(LATE).process(Pairs(), ROW))
    assert isinstance(operator.spec, DelayedJoinOperator)
    assert (operator.spec.delay_ms, operator.spec.kind) == (2000, JoinKind.FULL_OUTER)
    assert operator.spec.late_tags == (None, "late")
    assert (operator.name, operator.state_key_type) == ("Delayed Join", Types.STRING())


def test_a_delay_that_is_none_is_refused() -> None:
    left = keyed()
    joined = left.delayed_join(keyed(left.get_execution_environment()))
    for refused in (0, -5, 1 << 63):
        with pytest.raises(InvalidProgramError, match=f"a delay of {refused} ms is refused"):
            joined.after(Time.milliseconds(refused))
    with pytest.raises(TypeError, match=r"delay must be a Time, .*of_millis\(5\), not 5"):
        joined.after(5)  # type: ignore[arg-type]
