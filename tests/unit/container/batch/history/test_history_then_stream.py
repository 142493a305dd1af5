"""History by BatchTasks, then the stream from its savepoint, equals the stream over the whole input."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import collecting_graph, run_batch, shuffled
from tests.support.history_program import (
    JOB,
    Case,
    Everything,
    cases,
    history_graph,
    of_keys,
    strategy,
    stream_results,
)
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.chunk import Chunk
from yarrow.runtime.config.options import batch
from yarrow.runtime.graph.batch.history import history_job
from yarrow.state_processor import SavepointReader


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(case=cases(), backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_history_and_stream_equal_the_stream(case: Case, backend: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        graph = history_graph(case, path)
        run = run_batch(graph, {"state.backend.type": backend}, deal=shuffled(case.seed))
        before = [row for row in case.rows if row[2] < case.until]
        behind = [row for row in case.rows if row[2] >= case.until]
        results = run.rows() + stream_results(case, behind, path, case.until - case.delay - 1)
        assert of_keys(results) == of_keys(stream_results(case, case.rows, None, None))
        assert sum(result[1] >= 0 for result in run.rows()) >= len(before)
        with SavepointReader.read(path) as reader:
            assert [operator.uid for operator in reader.operators()][:1] == ["rows"]


@settings(max_examples=25, deadline=None)
@given(case=cases(), first=st.integers(0, 25))
def test_a_source_that_goes_on_is_read_to_what_is_there(case: Case, first: int) -> None:
    """With NOW the stream begins behind the present end of each split: here behind the first rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        begin, rest = case.rows[:first], case.rows[first:]
        run_batch(history_graph(case._replace(rows=begin), path, waits=True, until="NOW"))
        with SavepointReader.read(path) as reader:
            table = reader.read_list_state("rows", "source-splits").to_pylist()
            read = {row["value"]["number"]: row["value"]["read"] for row in table}
            assert reader.read_union_state("rows", "source-records").num_rows == 0
        splits = [len(begin[number :: case.splits]) for number in range(case.splits)]
        assert read == dict(enumerate(splits))
        assert len(begin) + len(rest) == len(case.rows)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=cases(), first=st.integers(1, 25))
def test_an_end_that_a_source_which_goes_on_has_not_reached_makes_no_row_late(case: Case, first: int) -> None:
    """The given end lies behind all that is there: the rows that come later are the stream's, and none is late."""
    case = case._replace(splits=1, parallelism=1, until=100)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        begin, rest = case.rows[:first], case.rows[first:]
        run = run_batch(history_graph(case._replace(rows=begin), path, waits=True))
        results = run.rows() + stream_results(case, rest, path, None)
        assert of_keys(results) == of_keys(stream_results(case, case.rows, None, None))


def test_a_split_that_has_not_come_to_the_end_holds_back_timers_of_all(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    case = Case([("a", 1, 20), ("b", 1, 5), ("c", 1, 31)], 2, 2, 30, 0, Everything(0, 9, 0), 0)
    run_batch(history_graph(case, path, waits=True))
    with SavepointReader.read(path) as reader:
        timers = reader.read_timers("everything").to_pylist()
        carried = reader.read_union_state("rows", "source-records").to_pylist()
    # The split of b is read to time 5, the other one to its first record of the stream.
    assert sorted((row["key"], row["timestamp"]) for row in timers) == [
        ("a", 20),
        ("a", 29),
        ("b", 5),
        ("b", 14),
    ]
    assert [row["f1"] for element in carried for row in element["value"]["f4"]] == [1]


def test_a_rolling_aggregate_emits_each_row_and_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    env = environment(2, {batch.HISTORY_UNTIL.key: "1970-01-01T00:00:00.006Z"})
    rows = [((f"k{time % 2}", time), time) for time in range(10)]
    stream = env.from_source(SplitRows([rows]), strategy(0), "rows").uid("rows")
    summed = stream.key_by(lambda row: row[0]).sum(1).uid("sum")
    graph = collecting_graph(env, summed)
    run = run_batch(history_job(graph, JOB, path, graph.configuration, drops_rows=False))
    assert sorted(run.rows()) == [("k0", 0), ("k0", 2), ("k0", 6), ("k1", 1), ("k1", 4), ("k1", 9)]
    with SavepointReader.read(path) as reader:
        table = reader.read_keyed_state("sum", "_aggregation").to_pylist()
        assert {row["key"]: row["value"]["f1"] for row in table} == {"k0": 6, "k1": 9}


def test_the_stream_gets_what_was_read_too_far_then_the_rest_of_the_split(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    env = environment(1, {batch.HISTORY_UNTIL.key: "1970-01-01T00:00:00.300Z"})
    rows = [(("key", time), time) for time in range(2000)]
    stream = env.from_source(SplitRows([rows]), strategy(0), "rows").uid("rows")
    graph = collecting_graph(env, stream.key_by(lambda row: row[0]).max(1).uid("max"))
    history = history_job(graph, JOB, path, graph.configuration, drops_rows=False)
    run = run_batch(history, {"execution.batch.max-rows": "256"})
    assert run.rows() == [("key", time) for time in range(300)]
    with SavepointReader.read(path) as reader:
        (split,) = reader.read_list_state("rows", "source-splits").to_pylist()
        elements = reader.read_union_state("rows", "source-records").to_pylist()
        assert reader.read_union_state("rows", "source-progress").num_rows == 0
    carried = [row["f1"] for element in elements for row in element["value"]["f4"]]
    # Then comes the position: no row is left out, and none comes twice.
    assert carried == list(range(300, split["value"]["read"]))
    assert 512 <= split["value"]["read"] < 600


def test_timers_wait_for_the_stream_and_dropped_rows_are_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    case = Case([("a", 4, 5), ("b", 8, 9)], 1, 1, 7, 0, Everything(0, 1, 0), 0)
    graph = history_graph(case, path)
    dropping = history_job(graph, JOB, path, graph.configuration, drops_rows=True)
    run = run_batch(dropping)
    # The record of a at 5, and its timers at 5 and 6.
    assert run.metric("numRecordsDropped") == 3
    assert not run.collected
    with SavepointReader.read(path) as reader:
        timers = reader.read_timers("everything").to_pylist()
    assert [(row["key"], row["timestamp"], row["domain"]) for row in timers] == [
        ("a", 10**15 + 4, "PROCESSING_TIME")
    ]


def test_an_attempt_that_fails_leaves_no_savepoint(tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    case = Case([("a", 4, 5)], 1, 1, 7, 0, Everything(0, 1, 0), 0)
    graph = history_graph(case, str(path))

    def fail(chunks: list[Chunk]) -> list[Chunk]:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run_batch(graph, deal=fail)
    assert not path.exists()
