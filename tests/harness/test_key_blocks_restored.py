"""Windows of slices whose keys fire in blocks, against the model, with restarts at other parallelisms and backends.

The results cannot change and no window function runs. So most keys stand in blocks on the heap, and RocksDB has tables.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.test_windows_restored import LATENESS, Model, compare_with_the_model, windowing
from tests.support.kept_windows import keeps_nothing
from tests.support.restarted_job import CANONICAL, OWN, RestartedJob
from yarrow.common.typeinfo import Types
from yarrow.container.operators.sliced_window import key_blocks
from yarrow.container.operators.sliced_window.windows_of_slices import WindowsOfSlices
from yarrow.datastream import DataStream
from yarrow.datastream.functions import AggregateFunction
from yarrow.datastream.window import SlidingEventTimeWindows
from yarrow.runtime.data.checkpoint_options import CheckpointOptions

SIZE, SLIDE = 6, 2
KEYS = list(range(7))


class NumbersOfKey(AggregateFunction[Any, str, str]):
    """The key and the numbers of its rows in a text, which nothing changes."""

    def create_accumulator(self) -> str:
        return ""

    def add(self, value: Any, accumulator: str) -> str:
        return f"{accumulator}{value[0]}:{value[1]},"

    def merge(self, acc_a: str, acc_b: str) -> str:
        return acc_a + acc_b

    def get_result(self, accumulator: str) -> str:
        return accumulator


class BlocksModel(Model):
    """The model of sliding windows whose slide is one slice."""

    def __init__(self, lateness: int) -> None:
        super().__init__("blocks", lateness)

    def windows_of(self, time: int) -> list[tuple[int, int]]:
        return [(start, start + SIZE) for start in range(time - time % SLIDE, time - SIZE, -SLIDE)]


class BlocksJob(RestartedJob):
    """A job whose results are shown as those of the model."""

    def __init__(self, lateness: int) -> None:
        def build(rows: DataStream) -> DataStream:
            windows = rows.key_by(lambda row: row[0]).window(SlidingEventTimeWindows(SIZE, SLIDE, 0))
            windows = windows.allowed_lateness(lateness)
            text = Types.STRING()
            return windows.aggregate(NumbersOfKey(), accumulator_type=text, output_type=text).uid("windows")

        super().__init__(build)

    def start(self, parallelism: int, backend: str) -> None:
        super().start(parallelism, backend)
        for operator in self.operators:
            assert isinstance(operator, WindowsOfSlices)
            assert (operator._blocks is not None) is (backend == "hashmap")

    @property
    def keys_in_blocks(self) -> int:
        """The keys that stand in blocks."""
        operators: list[Any] = self.operators
        return sum(operator._blocks.entries for operator in operators)

    def take(self) -> list[tuple[Any, int | None]]:
        return [(_shown(text, time), time) for text, time in super().take()]


def _shown(text: str, time: Any) -> Any:
    """A result as the model has it: (key, start of the window, its end, numbers)."""
    pairs = [each.split(":") for each in text.rstrip(",").split(",")]
    (key,) = {key for key, _ in pairs}
    return int(key), time + 1 - SIZE, time + 1, tuple(sorted(int(number) for _, number in pairs))


@pytest.fixture(params=["small", "sparse", "divided", "as they are"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of blocks: few keys make blocks with fronts, turn apart, or all blocks are too sparse for fronts."""
    if request.param == "divided":
        turn_few_keys_at_once(monkeypatch)
    if request.param != "as they are":
        monkeypatch.setattr(key_blocks, "_MOST_KEYS", 5 if request.param == "divided" else 3)
        monkeypatch.setattr(key_blocks, "_LEAST_KEYS", 1)
        monkeypatch.setattr(key_blocks, "_PLACES_A_VALUE", 0 if request.param == "sparse" else 100)


def turn_few_keys_at_once(monkeypatch: pytest.MonkeyPatch, keys: int = 2, least: int = 1) -> None:
    """Blocks of more than `keys` are divided before they turn, and `least` keys make a block."""
    monkeypatch.setattr(key_blocks, "_LEAST_KEYS", least)
    monkeypatch.setattr(key_blocks, "_PLACES_A_VALUE", 100)
    monkeypatch.setattr(key_blocks, "_LOOKUPS_A_TURN", keys * SIZE // SLIDE)


rows_of = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-10, 45)), min_size=1, max_size=12)
steps_of = st.lists(
    st.one_of(
        rows_of.map(lambda rows: ("rows", rows)),
        st.integers(0, 45).map(lambda time: ("watermark", time)),
        st.tuples(
            st.integers(1, 3), st.sampled_from(["hashmap", "rocksdb"]), st.sampled_from([CANONICAL, OWN])
        ).map(lambda how: ("restart", how)),
    ),
    min_size=4,
    max_size=20,
)


@pytest.mark.slow
@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("lateness", LATENESS)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=steps_of)
def test_blocks_are_the_model(lateness: int, steps: list[Any]) -> None:
    compare_with_the_model(BlocksModel(lateness), BlocksJob(lateness), steps, "hashmap")


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("lateness", LATENESS)
@pytest.mark.parametrize("gap", [1, 3, 5, 7])
def test_rows_at_each_slice_and_behind_windows_are_the_model(gap: int, lateness: int) -> None:
    steps: list[Any] = []
    for time in range(0, 60, 2):
        # Keys come and go. One row of each second watermark comes behind windows of its slice.
        steps.append(("rows", [(key, time + key % 2) for key in KEYS if (time // 2 + key) % gap == 0]))
        steps.append(("watermark", time + 1))
        if time % 4:
            steps.append(("rows", [(time % 7, time)]))
        if time % 12 == 10:
            steps.append(("restart", (time % 3 + 1, "hashmap", OWN if time % 24 else CANONICAL)))
    compare_with_the_model(BlocksModel(lateness), BlocksJob(lateness), steps, "hashmap")


@pytest.mark.parametrize(("keys", "least", "parts"), [(2, 1, [2, 2, 2, 1]), (3, 2, [3, 2, 2])])
def test_few_keys_turn_at_once_and_stand_in_one_block_again(
    keys: int, least: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_few_keys_at_once(monkeypatch, keys, least)
    job = BlocksJob(0)
    job.start(1, "hashmap")
    (operator,) = windowing(job)
    sizes: list[int] = []
    for time in range(0, 40, SLIDE):
        job.push([(key, time) for key in KEYS], [time] * len(KEYS))
        operator.on_watermark(time + 1)
        while operator.event_timers_due:
            # A deadline that has passed: one block fires in each piece of work.
            sizes += [len(results) for results, _ in operator.fire_event_timers(0.0)]
    # A new front has two slices behind its first window. One window more has the back alone, and then keys turn.
    expected = [7, 7, 7, *[*parts, 7, 7, 7] * 2]
    assert sizes[: len(expected)] == expected
    assert len({id(block) for block in operator._blocks._by_key.values()}) == 1


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("options", [CANONICAL, OWN], ids=["canonical", "native"])
def test_a_cut_between_any_two_blocks_of_windows_that_fire_loses_and_doubles_nothing(
    options: CheckpointOptions, divided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_blocks, "_MOST_KEYS", 5 if divided else 2)
    monkeypatch.setattr(key_blocks, "_LEAST_KEYS", 1)
    if divided:
        turn_few_keys_at_once(monkeypatch)
    model, job = BlocksModel(0), BlocksJob(0)
    job.start(1, "hashmap")
    found: Counter[Any] = Counter()
    most = cuts = number = 0
    for watermark in range(3, 60, 8):
        rows = []
        for key in KEYS:
            for time in range(watermark - 8, watermark, 2):
                number += 1
                rows.append((key, number, time))
                model.row(key, number, time)
        job.push([row[:2] for row in rows], [time for *_, time in rows])
        model.rise(watermark)
        due = True
        while due:
            due = False
            for operator in windowing(job):
                # A deadline that has passed: one block fires in each piece of work.
                operator.on_watermark(watermark)
                if operator.event_timers_due:
                    due = True
                    for results, times in operator.fire_event_timers(0.0):
                        found.update(map(_shown, results, times))
            most = max(most, job.keys_in_blocks)
            cuts += 1
            if cuts % 3 == 0:
                job.stop(options)
                job.start(cuts // 3 % 3 + 1, "hashmap")
        assert found == model.fired
    assert most == len(KEYS)
    job.watermark(1000)
    assert all(map(keeps_nothing, windowing(job)))
    assert all(not subtask.keyed for subtask in job.stop(CANONICAL).subtasks.values())
