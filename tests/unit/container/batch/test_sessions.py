"""Sessions in one list a key over bounded input: all of them fire at the end of their key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.container.batch.test_joins import SMALL, rows, timed
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time
from yarrow.datastream.functions import AggregateFunction, WindowFunction
from yarrow.datastream.window import EventTimeSessionWindows


class Times(AggregateFunction[Any, Any, Any]):
    """First time, last time and number of the rows of a session."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return self.merge(accumulator, (value[1], value[1], 1))

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        if acc_a is None:
            return acc_b
        return min(acc_a[0], acc_b[0]), max(acc_a[1], acc_b[1]), acc_a[2] + acc_b[2]


class Shown(WindowFunction[Any, Any, Any, Any]):
    """Key and bounds before the result."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        ((first, last, count),) = inputs
        yield key, window.start, window.end, first, last, count


@pytest.mark.parametrize("lateness", [0, 1000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_sessions_are_those_of_a_list_whatever_the_order_of_the_chunks(
    parallelism: int, lateness: int
) -> None:
    for seed in range(2):
        found, env = rows(seed, "a"), environment(parallelism)
        windows = (
            timed(env, found)
            .key_by(lambda row: row[0])
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(12)))
            .allowed_lateness(lateness)
        )
        made = collect(env, windows.aggregate(Times(), Shown()), settings=SMALL, deal=shuffled(seed))
        expected: list[list[int]] = []
        for key, time, _ in sorted(found):
            if expected and expected[-1][0] == key and time <= expected[-1][2]:
                expected[-1][2] = time + 12
                expected[-1][4] = time
                expected[-1][5] += 1
            else:
                expected.append([key, time, time + 12, time, time, 1])
        assert sorted(made) == sorted(map(tuple, expected))
        assert any(count > 1 for *_, count in expected)
