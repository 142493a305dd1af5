"""A program that makes watermarks behind its source: its history, the stream behind that, and that over all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.batch_runner import collecting_graph
from tests.support.history_program import JOB, strategy
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.common import TimestampAssigner, WatermarkStrategy
from yarrow.datastream import DataStream, KeyedProcessFunction
from yarrow.runtime.config.options import batch
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.batch.history import history_job
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.state_processor import SavepointEnvironment

#: (key, time)
Row = tuple[str, int]
#: The time of an interval after which a stream asks for watermarks, in seconds.
INTERVAL = 0.2


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Lateness(KeyedProcessFunction[str, Row, Any]):
    """Tells the watermark that a row sees, and drops the timer of a row that comes behind it."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers, time = ctx.timer_service(), value[1]
        if time > timers.current_watermark():
            timers.register_event_time_timer(time + 3)
        yield value[0], time, timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp


def timed_program(stream: DataStream, delay: int) -> DataStream:
    timed = strategy(delay).with_timestamp_assigner(SecondField())
    rows = stream.assign_timestamps_and_watermarks(timed).uid("times")
    return rows.key_by(lambda row: row[0]).process(Lateness()).uid("lateness")


def timed_history(
    splits: Sequence[Sequence[Row]],
    delay: int,
    path: str,
    *,
    waits: bool = True,
    parallelism: int = 1,
    configuration: Mapping[str, str] | None = None,
) -> JobGraph:
    """The job of a history that reads all rows of the splits, and leaves its savepoint at `path`."""
    env = environment(parallelism, {batch.HISTORY_UNTIL.key: "NOW", **(configuration or {})})
    env.set_max_parallelism(16)
    source = SplitRows([[(row, None) for row in split] for split in splits], waits=waits)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    graph = collecting_graph(env, timed_program(rows, delay))
    return history_job(graph, JOB, path, graph.configuration, drops_rows=False)


def streamed(
    delay: int, path: str | None, configuration: Mapping[str, str] | None = None
) -> SavepointEnvironment:
    """The program as a stream that begins with the savepoint; without one it begins empty."""
    return SavepointEnvironment(
        lambda stream: timed_program(stream, delay), path, max_parallelism=16, configuration=configuration
    )


def steps(running: SavepointEnvironment, batches: Sequence[Sequence[Row]]) -> list[list[Any]]:
    """The results of each batch of rows and of the watermark behind it, then those of the end of event time."""
    found = []
    for rows in batches:
        running.push(rows)
        running.advance(INTERVAL)
        found.append(sorted(running.take(), key=str))
    running.watermark(MAX_TIMESTAMP)
    return [*found, sorted(running.take(), key=str)]


def late_records(running: SavepointEnvironment) -> float:
    """The number of rows that were late where their watermarks are made."""
    metrics = running._running.fragment.tasks[0].environment.metrics.values()
    (found,) = [value for name, value in metrics.items() if name.endswith("numLateRecords")]
    return found
