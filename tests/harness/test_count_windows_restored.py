"""Count windows with a counter a key against a model: restarts at any row, on both backends, at parallelism 1 to 4."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.datastream.window import CountEvictor, CountTrigger, PurgingTrigger
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.testing.operator_harness import FragmentFailedError

KEYS = [1, 2, "three", None, 4.5]
SIZE = 3
PAIR = Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), Types.LONG()])


class OwnTrigger(PurgingTrigger[Any, Any]):
    """Takes the general way."""


def counted(rows: DataStream) -> DataStream:
    windows = rows.key_by(lambda row: row[0]).count_window(SIZE)
    return windows.reduce(lambda a, b: (a[0], a[1] * 100 + b[1])).uid("windows")


def declared(rows: DataStream) -> DataStream:
    return counted(rows.map(lambda row: row, PAIR))


def general(rows: DataStream) -> DataStream:
    windows = rows.key_by(lambda row: row[0]).count_window(SIZE).trigger(OwnTrigger(CountTrigger.of(SIZE)))
    return windows.reduce(lambda a, b: (a[0], a[1] * 100 + b[1])).uid("windows")


def evicting(rows: DataStream) -> DataStream:
    windows = rows.key_by(lambda row: row[0]).count_window(SIZE).evictor(CountEvictor.of(2))
    return windows.reduce(lambda a, b: a).uid("windows")


class Model:
    """The numbers of each key's open window."""

    def __init__(self) -> None:
        self.open: dict[Any, int] = {}
        self.counts: Counter[Any] = Counter()
        self.fired: Counter[Any] = Counter()

    def row(self, key: Any, number: int) -> None:
        self.counts[key] += 1
        self.open[key] = self.open[key] * 100 + number if key in self.open else number
        if self.counts[key] % SIZE == 0:
            self.fired[key, self.open.pop(key)] += 1


steps_of = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 9)), min_size=1, max_size=8),
        st.tuples(
            st.integers(1, 4), st.sampled_from(["hashmap", "rocksdb"]), st.sampled_from([CANONICAL, OWN])
        ),
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.slow
@pytest.mark.parametrize("build", [counted, declared])
@settings(max_examples=7, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps_of, backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_windows_are_those_of_the_model(build: Any, steps: list[Any], backend: str) -> None:
    model, job, found = Model(), RestartedJob(build), Counter[Any]()
    job.start(1, backend)
    try:
        for step in steps:
            if isinstance(step, list):
                for key, number in step:
                    model.row(key, number)
                job.push(step)
            else:
                job.restart(*step)
            found.update(row for row, _ in job.take())
            assert found == model.fired
        for key in list(model.open):
            while key in model.open:
                model.row(key, 7)
                job.push([(key, 7)])
        found.update(row for row, _ in job.take())
        assert found == model.fired
        # Full windows leave nothing.
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()


@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("first", "second", "was", "now"),
    [
        (
            counted,
            general,
            "count windows with one counter a key",
            "windows without an evictor, of which none is made of slices",
        ),
        (
            general,
            counted,
            "windows without an evictor, of which none is made of slices",
            "count windows with one counter a key",
        ),
        (counted, evicting, "count windows with one counter a key", "windows with an evictor"),
        (evicting, counted, "windows with an evictor", "count windows with one counter a key"),
    ],
)
def test_open_windows_of_another_way_are_refused_by_name(
    backend: str, options: CheckpointOptions, first: Any, second: Any, was: str, now: str
) -> None:
    job = RestartedJob(first)
    job.start(2, backend)
    job.push([(key, 1) for key in KEYS])
    job.stop(options)
    job._build = second
    with pytest.raises(FragmentFailedError, match=f"the snapshot holds {was}, the program declares {now}"):
        job.start(2, backend)
    for fragment in job.fragments:
        fragment.close()
