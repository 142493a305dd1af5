"""Rows in event-time order of bounded streams: sorted by key group, or by subtask without keys, whatever the chunks."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.watermark_strategy import TimestampAssigner
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from yarrow.runtime.data.key_groups import key_group_of

#: Few rows in memory, so that some are sorted on disk.
SMALL = {"execution.batch.max-rows": "20", "execution.sorted-inputs.memory": "2 kb"}


class SecondField(TimestampAssigner):
    """The time is the second field of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def rows(seed: int) -> list[Any]:
    """(key, time, number), out of order."""
    chosen = random.Random(seed)
    return [(chosen.randrange(9), chosen.randrange(400), number) for number in range(500)]


def timed(env: StreamExecutionEnvironment, found: list[Any]) -> DataStream:
    stream = env.from_collection(found, Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    return stream.assign_timestamps_and_watermarks(strategy)


class Same(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


def time(row: Any) -> int:
    return int(row[1])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_keyed_rows_are_sorted(parallelism: int) -> None:
    for seed in range(3):
        env = environment(parallelism)
        ordered = timed(env, rows(seed)).key_by(lambda row: row[0], Types.LONG()).in_event_time_order()
        found = collect(env, ordered, settings=SMALL, deal=shuffled(seed))
        assert sorted(found) == sorted(rows(seed))
        for key in range(9) if parallelism == 1 else ():
            # Rows of one time leave as they came.
            expected = sorted((row for row in rows(seed) if row[0] == key), key=time)
            assert [row for row in found if row[0] == key] == expected
        groups = {key_group_of(row[0], 128) for row in found}
        for group in groups:
            times = [time(row) for row in found if key_group_of(row[0], 128) == group]
            assert times == sorted(times)


def test_rows_without_keys_are_sorted() -> None:
    for seed in range(3):
        env = environment(1)
        ordered = timed(env, rows(seed)).in_event_time_order()
        found = collect(env, ordered, settings=SMALL, deal=shuffled(seed))
        assert found == sorted(rows(seed), key=time)


def test_rows_of_several_subtasks_without_keys_are_sorted_in_each() -> None:
    env = environment(3)
    ordered = timed(env, rows(1)).rebalance().in_event_time_order()
    found = collect(env, ordered, settings=SMALL, deal=shuffled(1))
    assert sorted(found) == sorted(rows(1))
    falls = sum(time(first) > time(second) for first, second in pairwise(found))
    assert falls == 2


def test_a_row_without_timestamp_is_refused() -> None:
    env = environment(1)
    # A process function might give times, so the program is not refused.
    stream = env.from_collection([("lost", 1)]).process(Same())
    ordered = stream.key_by(lambda row: row[0]).in_event_time_order()
    with pytest.raises(OperatorFailure, match="Event Time Order") as failed:
        collect(env, ordered)
    assert "a record has no timestamp" in str(failed.value.cause)
