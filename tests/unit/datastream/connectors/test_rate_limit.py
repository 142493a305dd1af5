"""Permits of a rate limit: portions, debts, bytes, shares that change, and idleness. Times are given, none passes."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from yarrow.common import WatermarkStrategy
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit, checked_limit
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.connectors.rate_limit import IDLE_SECONDS, Permits
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.batch.batch_rules import check


def rows(rate: float) -> RateLimit:
    return RateLimit(rows_per_second=rate)


def read(permits: Permits, seconds: int, *, tick: float = 0.01, size: int = 0) -> int:
    """The rows of a source that always has some."""
    read, now = 0, 0.0
    while now < seconds:
        now += tick
        if most := permits.most_rows(now):
            permits.use(now, most, most * size)
            read += most
    return read


@pytest.mark.parametrize("rate", [0.5, 1, 7, 100, 50_000])
def test_rows_come_at_the_rate(rate: float) -> None:
    assert read(Permits(0.0, rows(rate)), 20) == pytest.approx(20 * rate, abs=max(1.0, rate / 10))


def test_bytes_come_at_the_rate_and_the_first_row_tells_how_large_rows_are() -> None:
    permits = Permits(0.0, RateLimit(bytes_per_second=1000))
    assert permits.most_rows(1.0) == 1
    assert read(permits, 20, size=10) == pytest.approx(2000, abs=200)


def test_the_smaller_of_both_limits_holds() -> None:
    both = RateLimit(rows_per_second=5, bytes_per_second=1000)
    assert read(Permits(0.0, both), 20, size=10) == pytest.approx(100, abs=2)


def test_nothing_is_saved_for_longer_than_a_second() -> None:
    permits = Permits(0.0, rows(10))
    assert permits.most_rows(3600.0) == 10


def test_more_rows_than_permits_are_a_debt_that_later_rows_wait_for() -> None:
    permits = Permits(0.0, rows(10))
    permits.use(0.0, 20)
    assert permits.most_rows(1.0) == 0
    assert permits.seconds_to_wait(1.0) == pytest.approx(1.1)
    assert permits.most_rows(2.1) == 1


def test_a_share_holds_from_its_time_on() -> None:
    permits = Permits(0.0, rows(10))
    permits.use(0.0, 10)
    permits.set_share(0.5, rows(1000))
    assert permits.most_rows(0.504) == 0
    assert permits.most_rows(0.6) == pytest.approx(95, abs=1)
    permits.set_share(1.0, UNLIMITED)
    assert permits.most_rows(1.0) is None
    permits.set_share(1.0, rows(0))
    assert (permits.most_rows(9.0), permits.seconds_to_wait(9.0)) == (0, inf)


def test_who_has_no_rows_is_idle_and_who_waits_for_permits_is_not() -> None:
    permits = Permits(0.0, rows(0.1))
    permits.use(0.0, 1)
    assert not permits.idleness_changed(IDLE_SECONDS + 1)
    assert permits.idleness_changed(20.0) and permits.is_idle
    assert not permits.idleness_changed(21.0)


def test_an_idle_subtask_without_a_share_shows_its_first_row_and_waits_then() -> None:
    permits = Permits(0.0, rows(1))
    assert permits.idleness_changed(5.0)
    permits.set_share(5.0, rows(1).share_of(0))
    assert permits.most_rows(5.0) == 1
    permits.use(5.0, 2)
    assert permits.idleness_changed(5.0) and not permits.is_idle
    assert permits.seconds_to_wait(5.0) == inf
    permits.set_share(5.0, rows(2))
    assert permits.seconds_to_wait(5.0) < inf


@pytest.mark.parametrize("wrong", [0, -1, inf, float("nan"), True, "7"])
def test_a_wrong_number_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match="rows_per_second must be a number above 0"):
        checked_limit(wrong, None)
    with pytest.raises(ValueError, match="bytes_per_second must be a number above 0"):
        checked_limit(None, wrong)


def test_programs_limit_sources_and_sinks_alone_and_bytes_where_they_are_counted() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(1, 10), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.rate_limit(rows_per_second=5)
    with pytest.raises(InvalidProgramError, match="'numbers' does not count the bytes"):
        numbers.rate_limit(bytes_per_second=5)
    mapped = numbers.map(str)
    with pytest.raises(InvalidProgramError, match="is no Source and no Sink"):
        mapped.rate_limit(rows_per_second=5)
    with pytest.raises(InvalidProgramError, match="is no Source and no Sink"):
        mapped.print().rate_limit(rows_per_second=5)


def test_a_bounded_job_keeps_the_limit_in_its_graph() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_sequence(1, 10).rate_limit(rows_per_second=5).print()
    graph = env.get_job_graph()
    check(graph)
    assert next(vertex for vertex in graph.vertices if vertex.is_source).head.spec.rate_limit == rows(5)


def test_bytes_that_come_with_their_last_row_tell_how_large_the_others_are() -> None:
    permits = Permits(0.0, RateLimit(bytes_per_second=1000))
    permits.use(0.0, 99)
    permits.use(0.0, 1, 1000)
    assert permits.most_rows(1.0) == 0
    assert permits.most_rows(2.0) == 100


def test_bytes_that_were_taken_for_too_many_come_back() -> None:
    permits = Permits(0.0, RateLimit(bytes_per_second=1000))
    permits.use(0.0, 10, 5000)
    permits.use(0.0, 1, -4000)
    assert permits.seconds_to_wait(0.0) == pytest.approx(1.05)
    permits.use(0.0, 1, -1_000_000)
    assert permits.most_rows(0.1) == 2
