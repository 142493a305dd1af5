"""Tasks of a bounded job keep their shares of rate limits, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collecting_graph
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.container.batch.batch_inputs import piece_of
from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.chunk import Chunk
from yarrow.container.batch.split_assignment import assign
from yarrow.datastream.connectors.base import Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph

NONE: Any = WatermarkStrategy.no_watermarks()
#: Rows a second.
RATE = 20
TICK = 0.1
CLOCK = ManualClock()
#: Seconds and number of rows of each call of the writer.
WRITTEN: list[tuple[float, int]] = []


class NotingWriter(SinkWriter[Any]):
    """Notes when rows come."""

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        WRITTEN.append((CLOCK.monotonic(), len(rows)))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        WRITTEN.append((CLOCK.monotonic(), batch.num_rows))


class NotingSink(Sink[Any]):
    """Keeps nothing."""

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[Any]:
        return NotingWriter()


@pytest.fixture(autouse=True)
def at_zero() -> Iterator[None]:
    global CLOCK
    CLOCK = ManualClock()
    WRITTEN.clear()
    yield


def run_first_stage(
    graph: JobGraph, folder: Path, on_tick: Callable[[BatchTask], None] = lambda task: None
) -> list[Chunk]:
    """Runs the only task of the job's source. Each step takes a tick of the clock, and no real time."""
    stages = plan(graph)
    vertex = graph.vertices[0]
    (splits,) = assign(graph, vertex.id, 1)
    attempt = BatchAttempt(vertex_id=vertex.id, subtask=0, splits=tuple(splits), result_key=b"key")
    task = BatchTask(graph, stages, attempt, Settings(graph.configuration, "the job"), CLOCK, folder)

    def on_step() -> None:
        CLOCK.advance(TICK)
        task.environment.wake()
        on_tick(task)

    return list(task.run((), on_step=on_step))


def require_rate(rows: int) -> None:
    """At each time, no more rows have come than the limit gives, beside the permits of one second that were saved."""
    assert sum(number for _, number in WRITTEN) == rows
    come = 0
    for seconds, number in WRITTEN:
        come += number
        assert come <= RATE * (seconds + 1) + 1, (seconds, come)


def test_rows_without_limits_are_not_copied() -> None:
    rows = [1, 2, 3]
    assert piece_of(rows, slice(0, 3)) is rows
    assert [*piece_of(rows, slice(0, 2)), *piece_of(rows, slice(2, 3))] == rows


def test_a_source_keeps_its_share(tmp_path: Path) -> None:
    env = environment(1)
    numbers = env.from_source(NumberSequenceSource(1, 100), NONE, "numbers").rate_limit(rows_per_second=RATE)
    graph = collecting_graph(env, numbers.map(lambda number: number))
    chunks = run_first_stage(graph, tmp_path)
    assert sum(chunk.rows for chunk in chunks if chunk.edge >= 0 or chunk.edge == -1) >= 100
    assert CLOCK.monotonic() >= 100 / RATE - 1


def test_rows_before_a_sink_wait_for_its_permits(tmp_path: Path) -> None:
    env = environment(1)
    numbers = env.from_source(NumberSequenceSource(1, 200), NONE, "numbers")
    numbers.map(lambda number: number).sink_to(NotingSink()).rate_limit(rows_per_second=RATE)
    run_first_stage(env.get_job_graph(), tmp_path)
    require_rate(200)
    assert CLOCK.monotonic() >= 200 / RATE - 1


def test_another_share_holds_at_once(tmp_path: Path) -> None:
    env = environment(1)
    numbers = env.from_source(NumberSequenceSource(1, 200), NONE, "numbers")
    numbers.sink_to(NotingSink()).uid("out").rate_limit(rows_per_second=0.001)
    graph = env.get_job_graph()
    (sink,) = (operator for operator in graph.vertices[0].operators if operator.uid == "out")

    def at_ten_seconds(task: BatchTask) -> None:
        if CLOCK.monotonic() >= 10:
            task.take_shares({sink.id: UNLIMITED})

    run_first_stage(graph, tmp_path, at_ten_seconds)
    assert sum(number for _, number in WRITTEN) == 200
    assert 10 <= WRITTEN[0][0] < 20


def test_a_share_of_several_tasks_is_a_part_of_the_limit(tmp_path: Path) -> None:
    env = environment(1)
    numbers = env.from_source(NumberSequenceSource(1, 100), NONE, "numbers").uid("in")
    numbers.rate_limit(rows_per_second=1e9)
    numbers.map(lambda number: number).sink_to(NotingSink())
    graph = env.get_job_graph()
    share = RateLimit(rows_per_second=4 * RATE).share_of(4)
    run_first_stage(graph, tmp_path, lambda task: task.take_shares({graph.vertices[0].head.id: share}))
    assert CLOCK.monotonic() >= 100 / RATE - 1
