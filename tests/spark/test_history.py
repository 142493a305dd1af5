"""The history of a stream read by a SparkDriver, and the stream that goes on from its savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.support.history_program import (
    Case,
    Everything,
    history_graph,
    of_keys,
    stream_results,
)
from tests.support.spark_driver import DriverUnderTest
from tests.support.timed_program import steps, streamed, timed_history
from yarrow.datastream import KeyedProcessFunction
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import Acknowledge
from yarrow.state_processor import SavepointReader

#: Timers before and behind records, on both sides of the end of history; the last ones of a key wait for the stream.
CASE = Case(
    [(f"k{time % 7}", time * 5 % 11, 10 * time) for time in range(200)],
    3,
    2,
    1205,
    4,
    Everything(15, 30, 0),
    0,
)


@pytest.mark.spark
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_history_on_spark_and_the_stream_equal_the_stream(
    driver: DriverUnderTest, tmp_path: Path, backend: str
) -> None:
    path = str(tmp_path / "savepoint")
    outcome = driver.run(history_graph(CASE, path, settings={"state.backend.type": backend}))
    assert outcome.failure is None, outcome.failure.stacktrace
    behind = [row for row in CASE.rows if row[2] >= CASE.until]
    results = outcome.collected() + stream_results(CASE, behind, path, CASE.until - CASE.delay - 1)
    assert of_keys(results) == of_keys(stream_results(CASE, CASE.rows, None, None))
    with SavepointReader.read(path) as reader:
        timers = reader.read_timers("everything").to_pylist()
        assert {row["domain"] for row in timers} == {"EVENT_TIME", "PROCESSING_TIME"}
        assert min(row["timestamp"] for row in timers) > CASE.until - CASE.delay - 1
    files = {file.name for file in Path(path).iterdir()}
    assert "_metadata" in files
    assert not any(name.startswith("_tmp-") for name in files), "the marker is gone"


@pytest.mark.spark
def test_watermarks_that_are_made_behind_a_source_go_on(driver: DriverUnderTest, tmp_path: Path) -> None:
    """Rows behind the hand-over are late in the stream as they are in the stream over all rows."""
    path, rows = str(tmp_path / "savepoint"), [(f"k{time % 3}", time) for time in range(0, 100, 7)]
    outcome = driver.run(timed_history([rows], 4, path))
    assert outcome.failure is None, outcome.failure.stacktrace
    behind = [[("k0", 93), ("k1", 94), ("k2", 90), ("k1", 99)], [("k2", 140), ("k0", 95)]]
    with streamed(4, path) as running:
        found = steps(running, behind)
    with streamed(4, None) as running:
        expected = steps(running, [rows, *behind])[1:]
    assert found == expected
    assert ("k2", 90, 93) in found[0] and ("k2", "timer", 93) not in found[-1]


@pytest.mark.spark
def test_a_failure_leaves_no_savepoint(driver: DriverUnderTest, tmp_path: Path) -> None:
    path = tmp_path / "savepoint"
    broken = CASE._replace(function=Broken(0, 0, 0))
    outcome = driver.run(history_graph(broken, str(path)))
    assert outcome.failure is not None
    assert "no history for 600" in outcome.failure.stacktrace
    # A task that writes its state at that moment makes the folder again, and removes it.
    wait_until(lambda: not path.exists())


@pytest.mark.spark
def test_a_run_that_was_given_up_completes_no_savepoint(
    driver: DriverUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(job_id: JobID, run: int) -> Acknowledge:
        raise BatchRunError(f"run {run} of job {job_id} is over")

    monkeypatch.setattr(driver.master, "check_run", refused)
    path = tmp_path / "savepoint"
    outcome = driver.run(history_graph(CASE, str(path)))
    assert outcome.failure is not None and "is over" in outcome.failure.message
    assert not path.exists()


class Broken(Everything):
    """Fails at a timer."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp == 600:
            raise ValueError("no history for 600")
        return super().on_timer(timestamp, ctx)
