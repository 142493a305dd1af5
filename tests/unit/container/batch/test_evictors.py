"""Windows with evictors over bounded input: what the evictors' definitions say, whatever the order of the chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.container.batch.test_joins import SMALL, rows, timed
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Time
from yarrow.datastream.functions import AllWindowFunction, WindowFunction
from yarrow.datastream.window import (
    CountEvictor,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)

SIZE = 100


class Rows(WindowFunction[Any, Any, Any, Any]):
    """Key, start and rows of a window."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield key, getattr(window, "start", None), sorted(inputs)


class All(AllWindowFunction[Any, Any, Any]):
    """The times of a window of all rows."""

    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield sorted(row[1] for row in inputs)


def by_window(found: list[Any], size: int | None) -> dict[Any, list[Any]]:
    """The rows of each key and window in the order of their times."""
    windows: dict[Any, list[Any]] = defaultdict(list)
    for row in sorted(found, key=lambda row: row[1]):
        windows[row[0], None if size is None else row[1] // size * size].append(row)
    return windows


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_time_evictor(parallelism: int) -> None:
    for seed in range(2):
        found, env = rows(seed, "a"), environment(parallelism)
        windows = (
            timed(env, found)
            .key_by(lambda row: row[0])
            .window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
        )
        made = collect(
            env, windows.evictor(TimeEvictor.of(20)).apply(Rows()), settings=SMALL, deal=shuffled(seed)
        )
        expected = [
            (key, start, sorted(row for row in content if row[1] > content[-1][1] - 20))
            for (key, start), content in by_window(found, SIZE).items()
        ]
        assert sorted(made) == sorted(expected)


def test_the_end_of_the_stream_is_the_end_of_each_key() -> None:
    found, env = rows(3, "a"), environment(2)
    windows = (
        timed(env, found).key_by(lambda row: row[0]).window(GlobalWindows.create_with_end_of_stream_trigger())
    )
    made = collect(env, windows.apply(Rows()), settings=SMALL, deal=shuffled(3))
    expected = [(key, start, sorted(content)) for (key, start), content in by_window(found, None).items()]
    assert sorted(made) == sorted(expected)


def test_a_reduce_over_what_an_evictor_has_left_of_sessions() -> None:
    found, env = (
        [(key, time, f"{key} {time}") for key in range(4) for time in (50, 3, 1, 40, 45, 2)],
        environment(2),
    )
    windows = (
        timed(env, found)
        .key_by(lambda row: row[0])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(6)))
    )
    latest = windows.evictor(TimeEvictor.of(2)).reduce(lambda a, b: (a[0], a[1] + b[1], "both"))
    made = collect(env, latest, settings=SMALL, deal=shuffled(1))
    assert sorted(made) == sorted(
        [(key, 5, "both") for key in range(4)] + [(key, 50, f"{key} 50") for key in range(4)]
    )


def test_windows_of_a_whole_stream() -> None:
    found, env = rows(5, "a"), environment(2)
    windows = timed(env, found).window_all(GlobalWindows.create_with_end_of_stream_trigger())
    made = collect(env, windows.evictor(TimeEvictor.of(100)).apply(All()), settings=SMALL, deal=shuffled(5))
    times = sorted(row[1] for row in found)
    assert made == [[time for time in times if time > times[-1] - 100]]


def test_a_key_leaves_nothing_to_the_trigger_and_the_evictor_of_the_next_one() -> None:
    def far(old: Any, new: Any) -> float:
        return abs(float(new[1] - old[1]))

    found, env = [(key, time, "") for key in range(3) for time in (0, 5, 20, 23, 40)], environment(1)
    windows = (
        timed(env, found)
        .key_by(lambda row: row[0])
        .window(GlobalWindows.create())
        .trigger(DeltaTrigger.of(10, far))
    )
    near = windows.evictor(DeltaEvictor.of(18, far)).apply(Rows())
    made = collect(env, near, settings=SMALL)
    assert sorted(made) == [
        (key, None, [(key, time, "") for time in times]) for key in range(3) for times in ((5, 20), (23, 40))
    ]
    last = windows.evictor(CountEvictor.of(1, True)).apply(Rows())
    made = collect(env, last, settings=SMALL)
    assert sorted(made) == [
        (key, None, [(key, time, "") for time in times])
        for key in range(3)
        for times in ((0, 5, 20), (20, 23, 40))
    ]
