"""Joins by window against a model in plain Python: rows out of order and late, watermarks, other parallelisms.

A restart cuts all subtasks and begins anew from the snapshot, on either backend. The output must be that of a run
without restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.job_steps import job_steps
from tests.support.restarted_job import CANONICAL, RestartedJob
from yarrow.common.time import Time
from yarrow.container.operators.window.window_operator import WindowingOperator
from yarrow.datastream import DataStream
from yarrow.datastream.joined_streams import JoinedStreams
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.data_set_spec import JoinKind

KEYS = [1, "two", None]
SIZE = 10


class Model:
    """Tumbling windows by key in a dict, each with the rows of both streams."""

    def __init__(self, kind: JoinKind, lateness: int) -> None:
        self.kind, self.lateness, self.watermark = kind, lateness, MIN_TIMESTAMP
        self.content: dict[tuple[Any, int], tuple[list[Any], list[Any]]] = {}
        self.fired: Counter[Any] = Counter()
        self.dropped = 0

    def row(self, side: int, row: Any, time: int) -> None:
        window = row[0], time - time % SIZE + SIZE - 1
        if window[1] + self.lateness <= self.watermark:
            self.dropped += 1
            return
        self.content.setdefault(window, ([], []))[side].append(row)
        if window[1] <= self.watermark:
            self.fire(window)

    def fire(self, window: Any) -> None:
        first, second = self.content[window]
        firsts = first or ([None] if self.kind.keeps_second else [])
        seconds = second or ([None] if self.kind.keeps_first else [])
        self.fired.update(((one, other), window[1]) for one in firsts for other in seconds)

    def rise(self, watermark: int) -> None:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        for window in list(self.content):
            if before < window[1] <= self.watermark:
                self.fire(window)
            if window[1] + self.lateness <= self.watermark:
                del self.content[window]


rows_of = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.integers(0, 35)), min_size=1, max_size=8
)
steps_of = job_steps(rows_of, st.integers(0, 40), most=12, mostly_rows=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "lateness"), [(JoinKind.INNER, 0), (JoinKind.INNER, 7), *((kind, 0) for kind in JoinKind)]
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_joins_by_window_are_those_of_the_model(
    kind: JoinKind, lateness: int, steps: list[Any], backend: str
) -> None:
    def build(first: DataStream, second: DataStream) -> DataStream:
        by_key = JoinedStreams(first, second, kind).where(lambda row: row[0]).equal_to(lambda row: row[0])
        windows = by_key.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
        return windows.allowed_lateness(lateness).apply(lambda one, other: (one, other)).uid("join")

    model = Model(kind, lateness)
    # Rows reach the operator tagged: (number of the stream, row of the first one, row of the second one).
    job = RestartedJob(build, inputs=2, key_of=lambda row: row[1 + row[0]][0])
    job.start(1, backend)
    found: Counter[Any] = Counter()
    dropped = number = 0
    try:
        for step, what in [*steps, ("watermark", 1000)]:
            if step == "rows":
                for side, key, time in what:
                    number += 1
                    row = key, number
                    model.row(side, row, time)
                    job.push([(side, None, row) if side else (side, row, None)], [time], side)
            elif step == "watermark":
                model.rise(what)
                job.watermark(what)
            else:
                dropped += sum(operator.late_dropped for operator in windowing(job))
                job.restart(*what)
            found.update(job.take())
            assert found == model.fired
        assert dropped + sum(operator.late_dropped for operator in windowing(job)) == model.dropped
        assert not model.content
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


def windowing(job: RestartedJob) -> Iterator[WindowingOperator]:
    for operator in job.operators:
        assert isinstance(operator, WindowingOperator)
        yield operator
