"""One flag makes two jobs of a program; what has no history is refused by name before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.history_program import strategy
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.job_client import JobClient
from yarrow.common.serialization import Encoder
from yarrow.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from yarrow.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Boundedness
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError, YarrowError
from yarrow.runtime.config.options import batch, execution
from yarrow.runtime.graph.executor import (
    DetachedJobClient,
    LocalFile,
    collect_job_graphs,
    executor_in_place,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles

UNTIL = {batch.HISTORY_UNTIL.key: "2013-12-01", batch.HISTORY_SAVEPOINT_PATH.key: "/data/made"}


class Submissions:
    """An executor that notes what it gets; jobs end at once."""

    def __init__(self) -> None:
        self.graphs: list[JobGraph] = []

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        self.graphs.append(job_graph)
        return DetachedJobClient(job_graph.job_id)


def submitted(env: StreamExecutionEnvironment) -> list[JobGraph]:
    executor = Submissions()
    with executor_in_place(executor):
        env.execute("job")
    return executor.graphs


def rows_of(env: StreamExecutionEnvironment, source: SplitRows | None = None) -> DataStream:
    rows = [((f"k{time}", time), time) for time in range(10)]
    return env.from_source(source or SplitRows([rows]), strategy(5), "rows")


def summed(stream: DataStream) -> DataStream:
    return stream.key_by(lambda row: row[0]).sum(1)


def test_one_flag_makes_the_job_of_history_and_the_stream() -> None:
    env = environment(2, UNTIL)
    summed(rows_of(env)).print()
    history, stream = submitted(env)
    assert (history.name, stream.name) == ("job (history)", "job")
    assert (history.job_type, stream.job_type) == (JobType.BATCH, JobType.STREAMING)
    assert history.job_id != stream.job_id
    operators = [
        [operator.id for vertex in graph.vertices for operator in vertex.operators]
        for graph in (history, stream)
    ]
    assert operators[0] == operators[1], "the stream finds the state of each operator"
    assert stream.configuration[execution.SAVEPOINT_PATH.key] == "/data/made"
    assert batch.HISTORY_UNTIL.key not in stream.configuration
    assert history.configuration[batch.HISTORY_SAVEPOINT_PATH.key] == "/data/made"


def test_without_a_stream_there_is_the_savepoint_alone() -> None:
    env = environment(2, {**UNTIL, batch.HISTORY_START_STREAM.key: "false"})
    summed(rows_of(env)).print()
    assert [graph.job_type for graph in submitted(env)] == [JobType.BATCH]


def test_the_savepoint_gets_a_folder_of_its_own() -> None:
    env = environment(2, {batch.HISTORY_UNTIL.key: "NOW", "execution.checkpointing.savepoint-dir": "/data"})
    summed(rows_of(env)).print()
    _, stream = submitted(env)
    path = Path(stream.configuration[execution.SAVEPOINT_PATH.key])
    assert path.parent == Path("/data") and path.name.startswith(f"savepoint-{stream.job_id[:6]}-")


def test_what_another_job_has_left_in_the_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ForeignFiles.begin(str(tmp_path), "8" * 32)
    env = environment(2, {**UNTIL, batch.HISTORY_SAVEPOINT_PATH.key: str(tmp_path)})
    summed(rows_of(env)).print()
    submitted(env)
    told = capsys.readouterr().err
    assert f"remove {lost.marker} and the files state-{lost.writing}*" in told
    lost.end()
    summed(rows_of(env)).print()
    submitted(env)
    assert "not complete" not in capsys.readouterr().err


def test_a_source_that_goes_on_is_read_by_its_history() -> None:
    env = environment(2, UNTIL)
    summed(rows_of(env, SplitRows([[(("a", 1), 1)]], waits=True))).print()
    history, stream = submitted(env)
    assert history.vertices[0].head.spec.is_bounded
    assert not stream.vertices[0].head.spec.is_bounded


class Counted(MapFunction[Any, Any], CheckpointedFunction):
    def map(self, value: Any) -> Any:
        return value

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass


class OwnGenerator(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class Forever(SplitRows):
    """A source without end that says no positions."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def history(self) -> None:  # type: ignore[override]
        return None


def with_operator_state(env: StreamExecutionEnvironment) -> None:
    summed(rows_of(env).map(Counted()).name("counted")).print()


def with_a_generator(env: StreamExecutionEnvironment) -> None:
    stream = rows_of(env).assign_timestamps_and_watermarks(WatermarkStrategy.for_generator(OwnGenerator))
    summed(stream.name("stamped")).print()


def with_a_source_without_positions(env: StreamExecutionEnvironment) -> None:
    summed(rows_of(env, Forever([[(("a", 1), 1)]]))).print()


def with_a_two_phase_sink(env: StreamExecutionEnvironment) -> None:
    sink = FileSink.for_row_format("/data/out", Encoder.simple_string_encoder()).build()
    summed(rows_of(env)).sink_to(sink).name("files")


@pytest.mark.parametrize(
    ("program", "operator", "remedy"),
    [
        (with_operator_state, "counted", "keep it in keyed state"),
        (with_a_generator, "stamped", "use for_bounded_out_of_orderness"),
        (with_a_source_without_positions, "rows", r"implement `history\(\)` in its Source"),
        (with_a_two_phase_sink, "files", "execution.history.output to DROP"),
    ],
)
def test_what_has_no_history_is_refused_by_name(
    program: Callable[[StreamExecutionEnvironment], None], operator: str, remedy: str
) -> None:
    env, executor = environment(2, UNTIL), Submissions()
    program(env)
    with (
        executor_in_place(executor),
        pytest.raises(
            UnsupportedFeatureError, match=f"refuses operator '(Source: )?{operator}.*': .*; .*{remedy}"
        ),
    ):
        env.execute("job")
    assert executor.graphs == []


def test_collected_rows_are_refused() -> None:
    env, executor = environment(2, UNTIL), Submissions()
    with (
        executor_in_place(executor),
        pytest.raises(UnsupportedFeatureError, match=r"execute_and_collect .*use a sink, or"),
    ):
        summed(rows_of(env)).execute_and_collect()
    assert executor.graphs == []


def test_a_two_phase_sink_may_drop_the_rows_of_history() -> None:
    env = environment(2, {**UNTIL, batch.HISTORY_OUTPUT.key: "DROP"})
    with_a_two_phase_sink(env)
    history, stream = submitted(env)
    sinks = [graph.vertices[-1].operators[-1].spec.writes_for_sink for graph in (history, stream)]
    assert sinks == [False, True]


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({execution.RUNTIME_MODE.key: "BATCH"}, UnsupportedFeatureError, "set it to STREAMING"),
        ({execution.SAVEPOINT_PATH.key: "/data/other"}, UnsupportedFeatureError, "set one of them"),
        ({batch.HISTORY_UNTIL.key: "yesterday"}, Exception, "ISO 8601"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: dict[str, str], error: type[Exception], text: str
) -> None:
    env, executor = environment(2, {**UNTIL, **settings}), Submissions()
    summed(rows_of(env)).print()
    with executor_in_place(executor), pytest.raises(error, match=text):
        env.execute("job")
    assert executor.graphs == []


def test_a_savepoint_needs_a_place() -> None:
    env, executor = environment(2, {batch.HISTORY_UNTIL.key: "NOW"}), Submissions()
    summed(rows_of(env)).print()
    with executor_in_place(executor), pytest.raises(InvalidProgramError, match=r"savepoint-dir.*new folder"):
        env.execute("job")
    assert executor.graphs == []


def test_a_cluster_that_runs_the_program_itself_refuses_it() -> None:
    env, found = environment(2, UNTIL), list[JobGraph]()
    summed(rows_of(env)).print()
    with (
        collect_job_graphs(lambda graph, files: found.append(graph)),
        pytest.raises(YarrowError, match="nobody waits"),
    ):
        env.execute("job")
    assert found == []
