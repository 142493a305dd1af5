"""As-of joins in a program: rules by name on both backends, and refusals at the line that asks for it."""

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
from yarrow.datastream import AsOfJoin, DataStream, KeyedStream, OutputTag, ProcessJoinFunction
from yarrow.datastream.data_stream import operator_of
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import RowBatch, Watermark
from yarrow.runtime.graph.data_set_spec import JoinKind
from yarrow.runtime.graph.join_spec import AsOfDirection, AsOfJoinOperator
from yarrow.testing.operator_harness import FragmentFailedError


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with opened(request.param) as start:
        yield start


def span_of(tolerance: int | None) -> Time | None:
    return None if tolerance is None else Time.milliseconds(tolerance)


def backward(tolerance: int | None = None) -> Join:
    def join(left: KeyedStream, right: KeyedStream) -> Any:
        return left.as_of_join(right).backward(span_of(tolerance))

    return join


def forward(tolerance: int | None = None) -> Join:
    def join(left: KeyedStream, right: KeyedStream) -> Any:
        return left.as_of_join(right).forward(span_of(tolerance))

    return join


def nearest(tolerance: int) -> Join:
    return lambda left, right: left.as_of_join(right).nearest(Time.milliseconds(tolerance))


def outer(join: Join) -> Join:
    return lambda left, right: join(left, right).left_outer()


def kept_rows(harness: Any) -> list[int]:
    """The times of all kept rows of the second stream."""
    rows = operator_of_join(harness)._rows
    return sorted(time for key in rows.all_keys() for time, _ in rows.of(key).sides[1])


# ---------------------------------------------------------------------- which row is met


def test_backward_meets_the_last_row_up_to_its_own_time(run: Run) -> None:
    harness = run(backward())
    push(harness, 1, 10, 20, 30)
    push(harness, 0, 19, 20, 9)
    watermark(harness, 40)
    # A row at the same time counts; the one at 9 meets none.
    assert results(harness) == [((19, 10), 19), ((20, 20), 20)]


def test_forward_meets_the_first_row_from_its_own_time_on(run: Run) -> None:
    harness = run(forward())
    push(harness, 0, 19, 20, 31)
    push(harness, 1, 10, 20, 30)
    watermark(harness, 40)
    # The result bears the later time of both.
    assert results(harness) == [((19, 20), 20), ((20, 20), 20)]


def test_nearest_meets_the_earlier_one_of_two_that_are_equally_near(run: Run) -> None:
    harness = run(nearest(100))
    push(harness, 1, 10, 20)
    push(harness, 0, 14, 15, 16)
    watermark(harness, 40)
    assert results(harness) == [((14, 10), 14), ((15, 10), 15), ((16, 20), 20)]


@pytest.mark.parametrize(
    ("join", "expected"),
    [(backward(5), [(15, 10)]), (forward(5), [(5, 10)]), (nearest(5), [(5, 10), (15, 10)])],
)
def test_the_tolerance_belongs_to_what_is_met(run: Run, join: Join, expected: list[Any]) -> None:
    harness = run(join)
    push(harness, 1, 10)
    push(harness, 0, 4, 5, 15, 16)
    watermark(harness, MAX)
    assert harness.output == expected


def test_of_rows_with_one_time_the_last_that_comes_holds(run: Run) -> None:
    harness = run(backward())
    harness.push(("a", "first"), ("a", "later"), ("a", "second"), input=1, timestamps=[5, 8, 5])
    push(harness, 0, 6)
    watermark(harness, 6)
    assert harness.output == [(6, "second")]


def test_rows_of_other_keys_do_not_meet(run: Run) -> None:
    harness = run(backward())
    push(harness, 1, 1, key="b")
    push(harness, 0, 2)
    watermark(harness, 10)
    assert harness.output == []


def test_left_outer_keeps_a_row_that_meets_none_once(run: Run) -> None:
    harness = run(outer(backward(3)))
    push(harness, 1, 10)
    push(harness, 0, 9, 13, 14)
    watermark(harness, 20)
    watermark(harness, MAX)
    assert results(harness) == [((9, None), 9), ((13, 10), 13), ((14, None), 14)]


def test_the_context_tells_the_times_of_the_pair(run: Run) -> None:
    class Times(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            return [(ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp())]

    harness = run(outer(forward(9)), Times())
    push(harness, 0, 3, 20)
    push(harness, 1, 5)
    watermark(harness, 30)
    assert harness.output == [(3, 5, 5), (20, None, 20)]


# ---------------------------------------------------------------------- when


def test_a_row_waits_until_its_partner_is_known(run: Run) -> None:
    harness = run(backward())
    push(harness, 1, 5)
    push(harness, 0, 10)
    watermark(harness, 9)
    assert harness.output == []
    push(harness, 1, 10)
    watermark(harness, 10)
    assert harness.output == [(10, 10)]


@pytest.mark.parametrize(
    ("before", "known_at"),
    # The tolerance ends at 130; a row at 115 could be nearer than 84; a row at the same time is the nearest.
    [((), 130), ((84,), 115), ((100,), 100)],
)
def test_nearest_waits_while_a_nearer_row_could_come(run: Run, before: Any, known_at: int) -> None:
    harness = run(outer(nearest(30)))
    push(harness, 0, 100)
    for time in before:
        push(harness, 1, time)
    watermark(harness, known_at - 1)
    assert harness.take() == []
    watermark(harness, known_at)
    assert harness.take() == [(100, before[0] if before else None)]


def test_a_row_that_comes_behind_its_partner_in_order_of_time_is_found(run: Run) -> None:
    harness = run(forward(1000))
    push(harness, 0, 100)
    push(harness, 1, 300)
    push(harness, 1, 200)
    watermark(harness, 199)
    assert harness.output == []
    watermark(harness, 200)
    assert results(harness) == [((100, 200), 200)]


@pytest.mark.parametrize("join", [backward(700), forward(700), nearest(700)])
def test_no_result_is_behind_the_watermark(run: Run, join: Join) -> None:
    harness = run(outer(join))
    for time in range(0, 12_000, 100):
        push(harness, (time // 100) % 2, time, key=f"k{time % 7}{time % 3}")
        watermark(harness, time - 50)
    watermark(harness, MAX)
    reached, rows = -MAX, 0
    for element in harness.elements():
        if isinstance(element, Watermark):
            reached = element.timestamp
        elif isinstance(element, RowBatch):
            assert element.timestamps is not None
            rows += len(element.rows)
            assert all(stamp is not None and stamp > reached for stamp in element.timestamps)
    assert reached == MAX
    assert rows == 60


def test_joins_that_wait_for_no_time_hold_no_watermark_back(run: Run) -> None:
    for join in (outer(backward(700)), forward(700)):
        harness = run(join)
        watermark(harness, 5)
        assert harness.controls() == [Watermark(5)]


# ---------------------------------------------------------------------- late rows, state


def test_a_row_at_or_below_the_watermark_is_late(run: Run) -> None:
    harness = run(backward())
    push(harness, 1, 5)
    watermark(harness, 10)
    push(harness, 0, 10)
    push(harness, 1, 9)
    push(harness, 0, 11)
    watermark(harness, 11)
    assert harness.output == [(11, 5)]
    assert operator_of_join(harness).late_dropped == 2


def test_late_rows_go_to_the_side_output_of_their_side(run: Run) -> None:
    harness = run(lambda left, right: backward()(left, right).side_output_right_late_data(LATE))
    watermark(harness, 10)
    push(harness, 0, 10)
    push(harness, 1, 8)
    assert results(harness, 1) == [(("a", 8), 8)]
    assert operator_of_join(harness).late_dropped == 1
    other = run(lambda left, right: backward()(left, right).side_output_left_late_data(LATE))
    watermark(other, 10)
    push(other, 0, 10)
    push(other, 1, 8)
    assert results(other, 1) == [(("a", 10), 10)]


def test_one_version_of_a_key_stays_below_the_watermark(run: Run) -> None:
    harness = run(backward())
    push(harness, 1, *range(0, 5000, 100))
    watermark(harness, 6000)
    assert kept_rows(harness) == [4900]
    push(harness, 0, 1_000_000)
    watermark(harness, 1_000_000)
    assert harness.output == [(1_000_000, 4900)]
    watermark(harness, MAX)
    assert kept_rows(harness) == []


@pytest.mark.parametrize("join", [backward(4000), forward(4000), nearest(4000)])
def test_with_a_tolerance_no_version_stays(run: Run, join: Join) -> None:
    harness = run(join)
    push(harness, 1, *range(0, 5000, 100))
    push(harness, 0, 4950)
    # Versions stay half a tolerance longer at most.
    watermark(harness, 4900 + 4000 + 2000)
    assert kept_rows(harness) == []


def test_a_timer_a_key_is_enough(run: Run) -> None:
    harness = run(backward(4000))
    for time in range(100, 0, -1):
        push(harness, 0, time)
        push(harness, 1, time)
    assert len(operator_of_join(harness)._timers.event_timers) == 1


# ---------------------------------------------------------------------- bad input


def test_a_row_without_timestamp_fails_with_its_record(run: Run) -> None:
    harness = run(backward())
    with pytest.raises(FragmentFailedError, match=r"(?s)a record has no timestamp.*\('a', 7\) \(key 'a'\)"):
        harness.push(("a", 7))


def test_an_error_names_operator_key_and_both_rows(run: Run) -> None:
    class Fails(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            raise ValueError("no pair")

    harness = run(backward(), Fails())
    push(harness, 0, 8)
    push(harness, 1, 7)
    expected = r"(?s)no pair.*'As-Of Join'.*\('a', 8\) with \('a', 7\) \(key 'a'\)"
    with pytest.raises(FragmentFailedError, match=expected):
        watermark(harness, 8)


def joined() -> AsOfJoin[DataStream]:
    left = keyed(key_type=Types.STRING())
    return left.as_of_join(keyed(left.get_execution_environment()))


def test_an_as_of_join_becomes_an_operator_of_two_inputs() -> None:
    made = (
        joined().nearest(Time.seconds(1)).left_outer().side_output_left_late_data(LATE).process(Pairs(), ROW)
    )
    operator = operator_of(made)
    assert isinstance(operator.spec, AsOfJoinOperator)
    assert (operator.spec.direction, operator.spec.tolerance_ms) == (AsOfDirection.NEAREST, 1000)
    assert (operator.spec.kind, operator.spec.late_tags) == (JoinKind.LEFT_OUTER, ("late", None))
    assert (operator.name, operator.parallelism) == ("As-Of Join", 3)
    assert (operator.output_type, operator.state_key_type) == (ROW, Types.STRING())


def test_what_cannot_work_is_refused_by_name() -> None:
    with pytest.raises(InvalidProgramError, match="nearest needs a tolerance"):
        joined().nearest(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="left_outer behind forward needs a tolerance"):
        joined().forward().left_outer()
    for refused in (-1, 1 << 63):
        with pytest.raises(InvalidProgramError, match=f"a tolerance of {refused} ms is refused"):
            joined().backward(Time.milliseconds(refused))
    with pytest.raises(TypeError, match=r"tolerance must be a Time, .*of_millis\(5\), not 5"):
        joined().backward(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="process takes a ProcessJoinFunction, not"):
        joined().backward().process(lambda left, right, ctx: [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="late_data takes an OutputTag, not 'late'"):
        joined().backward().side_output_right_late_data("late")  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["as_of_join", "delayed_join", "immediate_join"])
def test_streams_that_never_meet_are_refused(call: str) -> None:
    left = keyed(key_type=Types.STRING())
    env = left.get_execution_environment()
    join: Callable[[Any], Any] = getattr(left, call)
    with pytest.raises(InvalidProgramError, match=f"{call}: keys of type Long never equal"):
        join(keyed(env, Types.LONG()))
    with pytest.raises(InvalidProgramError, match=f"{call}: the streams belong to two"):
        join(keyed())
    with pytest.raises(TypeError, match=f"{call} takes a KeyedStream, not DataStream"):
        join(left.map(str))
    if call != "immediate_join":
        with pytest.raises(InvalidProgramError, match=f"{call}: nothing gives the records of the second"):
            join(keyed(env, timed=False))
        with pytest.raises(InvalidProgramError, match=f"{call}: nothing gives the records of the first"):
            getattr(keyed(env, timed=False), call)(left)


def test_side_outputs_of_the_function_are_sorted_by_their_tag(run: Run) -> None:
    class Aside(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
            yield OutputTag("late"), right

    harness = run(backward(), Aside())
    push(harness, 1, 5)
    push(harness, 0, 6)
    watermark(harness, 6)
    assert results(harness) == []
    assert results(harness, 1) == [(("a", 5), 6)]
