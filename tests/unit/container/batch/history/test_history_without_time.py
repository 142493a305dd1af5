"""The history of a program without timestamps: no watermark is handed over, and no timer fires before the stream."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import BatchRun, collecting_graph, run_batch, shuffled
from tests.support.history_program import JOB, Case, Everything, cases, keyed, of_keys
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.container.batch.history_splits import HistoryEndError
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream import KeyedProcessFunction
from yarrow.runtime.config.options import batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.graph.batch.history import history_job
from yarrow.state_processor import SavepointEnvironment, SavepointReader


def history_of_rows(
    case: Case, rows: list[Any], path: str, *, waits: bool, until: str = "NOW", **options: Any
) -> BatchRun:
    """Runs the history of rows that bear no time; those of a key stand in one split."""
    env = environment(case.parallelism, {batch.HISTORY_UNTIL.key: until})
    env.set_max_parallelism(16)
    splits: list[list[Any]] = [[] for _ in range(case.splits)]
    for row in rows:
        splits[ord(row[0]) % case.splits].append((row, None))
    source = env.from_source(SplitRows(splits, waits=waits), WatermarkStrategy.no_watermarks(), "rows")
    graph = collecting_graph(env, keyed(source.uid("rows"), case.function))
    return run_batch(history_job(graph, JOB, path, graph.configuration, drops_rows=False), **options)


def streamed(case: Case, rows: list[Any], savepoint: str | None) -> list[Any]:
    """The results of the stream over rows, which ends behind them."""
    with SavepointEnvironment(
        lambda stream: keyed(stream, case.function), savepoint, max_parallelism=16
    ) as running:
        assert running.take() == [], "a savepoint without a watermark lets no timer fire"
        running.push(rows)
        running.watermark(MAX_TIMESTAMP)
        return running.take()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    case=cases(),
    first=st.integers(0, 25),
    waits=st.booleans(),
    backend=st.sampled_from(["hashmap", "rocksdb"]),
)
def test_history_and_stream_equal_the_stream(case: Case, first: int, waits: bool, backend: str) -> None:
    """Event-time timers wait for the end of the stream, as they do in a stream without watermarks."""
    case = case._replace(function=Everything(case.function.early, case.function.late, 0))
    begin, rest = case.rows[:first], case.rows[first:]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        settings = {"state.backend.type": backend}
        run = history_of_rows(case, begin, path, waits=waits, settings=settings, deal=shuffled(case.seed))
        found = run.rows()
        assert {result[2] for result in found} <= {MIN_TIMESTAMP}
        assert sorted(result[1] for result in found) == [time for _, _, time in begin], "no timer has fired"
        results = found + streamed(case, rest, path)
        assert of_keys(results) == of_keys(streamed(case, case.rows, None))


def test_the_savepoint_holds_all_timers(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    case = Case([("a", 4, 5), ("b", 1, 9)], 2, 2, 0, 0, Everything(3, 2, 0), 0)
    history_of_rows(case, case.rows, path, waits=True)
    with SavepointReader.read(path) as reader:
        timers = reader.read_timers("everything").to_pylist()
    assert sorted((row["key"], row["timestamp"], row["domain"]) for row in timers) == [
        ("a", 2, "EVENT_TIME"),
        ("a", 7, "EVENT_TIME"),
        ("a", 10**15 + 4, "PROCESSING_TIME"),
        ("b", 6, "EVENT_TIME"),
        ("b", 11, "EVENT_TIME"),
    ]


def test_a_given_end_needs_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    case = Case([("a", 4, 5)], 1, 1, 0, 0, Everything(0, 0, 0), 0)
    with pytest.raises(OperatorFailure) as failed:
        history_of_rows(case, case.rows, str(path), waits=False, until="2013-12-01")
    assert isinstance(failed.value.cause, HistoryEndError)
    assert re.search(r"has no time.*timestamp assigner, or set .*until to NOW", str(failed.value.cause))
    assert not path.exists()


class OneTimer(KeyedProcessFunction[str, Any, Any]):
    """Sets a timer behind each record, and tells when it fires."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[2] + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


@pytest.mark.parametrize("waits", [True, False])
def test_an_input_without_time_holds_back_timers_unless_it_has_ended(tmp_path: Path, waits: bool) -> None:
    """As in a stream, whose watermark is the least of all inputs; one that has ended holds nothing back."""
    path = str(tmp_path / "savepoint")
    env = environment(2, {batch.HISTORY_UNTIL.key: "NOW"})
    timed = [(("a", 0, 10), 10), (("a", 0, 20), 20)]
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    first = env.from_source(SplitRows([timed], waits=True), monotonous, "timed")
    untimed = SplitRows([[(("b", 0, 5), None)]], waits=waits)
    second = env.from_source(untimed, WatermarkStrategy.no_watermarks(), "untimed")
    both = first.union(second).key_by(lambda row: row[0]).process(OneTimer()).uid("timers")
    graph = collecting_graph(env, both)
    run = run_batch(history_job(graph, JOB, path, graph.configuration, drops_rows=False))
    with SavepointReader.read(path) as reader:
        kept = sorted((row["key"], row["timestamp"]) for row in reader.read_timers("timers").to_pylist())
    fired = [] if waits else [("a", 11), ("b", 6)]
    assert sorted(run.rows()) == fired
    assert sorted(kept + fired) == [("a", 11), ("a", 21), ("b", 6)]
