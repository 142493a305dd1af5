"""Windows with pre-aggregation over bounded input, where rows pass it by themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.support.window_functions import Numbers
from tests.unit.container.batch.test_joins import SMALL, rows, timed
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time
from yarrow.datastream.window import CumulativeEventTimeWindows, TumblingEventTimeWindows

SIZE = 100


def add(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_key_has_the_windows_of_its_rows(parallelism: int) -> None:
    found, env = rows(1, "a"), environment(parallelism)
    pairs = timed(env, found).map(lambda row: (row[0], 1))
    windows = pairs.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
    made = collect(env, windows.reduce(add, pre_aggregate=True), settings=SMALL, deal=shuffled(1))
    counted = Counter((row[0], row[1] // SIZE) for row in found)
    assert Counter(made) == Counter((key, count) for (key, _), count in counted.items())


def test_a_whole_stream_has_the_windows_of_its_rows() -> None:
    found, env = rows(2, "a"), environment(3)
    step = SIZE // 2
    windows = timed(env, found).window_all(
        CumulativeEventTimeWindows.of(Time.milliseconds(SIZE), Time.milliseconds(step))
    )
    made = collect(env, windows.aggregate(Numbers(), pre_aggregate=True), settings=SMALL, deal=shuffled(2))
    times = [row[1] for row in found]
    expected = [
        tuple(sorted(time for time in times if end - 1 - (end - 1) % SIZE <= time < end))
        for end in range(step, 1001, step)
    ]
    assert Counter(made) == Counter(each for each in expected if each)
