"""Every metric that dashboards of Flink read is reported by a job that has what it measures, or is listed as absent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source_tree import ROOT
from tests.compat.metrics import names
from tests.support.worker_harness import WorkerHarness
from tests.unit.am.rest.fakes import JOB, job_details
from tests.unit.container.operators.sources.test_source_alignment import Aligning, Pausing
from yarrow.common.job_status import JobStatus
from yarrow.common.serialization import Encoder
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from yarrow.container.supervisor.process_watch import ProcessWatch
from yarrow.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.metrics.job_metrics import job_manager_metrics, job_metrics
from yarrow.runtime.metrics.process_metrics import process_metrics
from yarrow.runtime.metrics.samples import gather_histograms
from yarrow.runtime.rpc.messages import ClusterOverview

_SOURCE, _JOIN, _SINK = "Source__numbers", "join", "files__Writer"


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Join(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Passes both inputs on, with a timer for each number."""

    def process_element1(self, value: int, ctx: Any) -> Iterator[str]:
        ctx.timer_service().register_event_time_timer(value)
        yield str(value)

    def process_element2(self, value: str, ctx: Any) -> Iterator[str]:
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f"at {timestamp}"


@dataclass
class Reported:
    """What the workers of a job have reported, by vertex name for tasks."""

    tasks: dict[str, dict[str, float]]
    #: All names that any report of a task has had.
    ever: set[str]
    process: dict[str, float]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """A job of two sources, a join with timers and a sink, on one worker."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "in.txt").write_text("a\nb\n" * 50)
    with WorkerHarness(1, processes=False, configuration={"metrics.latency.interval": "1 ms"}) as harness:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
        numbers = env.from_source(NumberSequenceSource(1, 20_000), strategy, "numbers")
        source = FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), str(folder / "in.txt")
        ).build()
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        joined = (
            numbers.connect(lines)
            .key_by(lambda number: number % 10, lambda line: 0)
            .process(Join(), Types.STRING())
            .name("join")
        )
        sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
        joined.sink_to(sink).name("files").disable_chaining()
        graph = env.get_job_graph("metrics")
        harness.run(graph)
        by_name = {str(vertex.id): vertex.name for vertex in graph.vertices}
        tasks = {by_name[attempt.split("_")[1]]: values for attempt, values in harness.final_metrics.items()}
        reports = [report for _, report in harness.metrics]
        ever = {name for report in reports for task in report.tasks for name in task.values}
        process = dict(reports[-1].process) if reports else {}
    return Reported(tasks, ever.union(*tasks.values()), process)


def _task(reported: Reported, part: str) -> dict[str, float]:
    (found,) = [values for name, values in reported.tasks.items() if part in name]
    return found


def _plain(values: dict[str, float]) -> set[str]:
    single, histograms = gather_histograms(values)
    return {*single, *histograms}


def test_a_task_reports_its_scope(reported: Reported) -> None:
    for vertex in ("numbers", "join", "files"):
        missing = set(names.names(names.TASK)) - _plain(_task(reported, vertex))
        assert not missing, (vertex, missing)


def test_operators_report_theirs(reported: Reported) -> None:
    values = _task(reported, "join")
    wanted = [*names.names(names.OPERATOR), *names.names(names.TWO_INPUTS)]
    assert [name for name in wanted if f"{_JOIN}.{name}" not in values] == []
    assert any(name.endswith(f".{names.LATENCY}") for name in _plain(values))
    # Every number has set a timer, and the end of event time has fired the last of them.
    assert values["numFiredTimers"] == 20_000
    assert values[f"{_JOIN}.numRecordsOut"] == 40_100
    assert values["initializationTime"] > 0
    assert values["numBytesInLocal"] == values["numBytesIn"] > 0
    assert values["numBytesInRemote"] == 0


def test_sources_report_theirs(reported: Reported) -> None:
    values = _task(reported, "numbers")
    lines = _task(reported, "lines")
    per_reader = {"pendingBytes": lines, "pendingRecords": values}
    for name in names.names(names.SOURCE):
        if name == "watermarkLag":
            continue  # Of a source that has ended there is none: see below.
        scope = "Source__lines" if name == "pendingBytes" else _SOURCE
        assert f"{scope}.{name}" in per_reader.get(name, values), name
    assert values[f"{_SOURCE}.pendingRecords"] == 0
    assert lines["Source__lines.pendingBytes"] == 0
    assert (
        values[f"{_SOURCE}.currentEmitEventTimeLag"] >= values[f"{_SOURCE}.currentFetchEventTimeLag"] > 10**12
    )


def test_aligned_sources_and_their_splits_report_theirs() -> None:
    source = Aligning(Pausing())
    source.add("a")
    source.read(100, split="a")
    source.alignment.take_bound(105)
    values = source.context.environment.metrics.values()
    for name in names.names(names.ALIGNED_SOURCE):
        assert f"numbers.{name}" in values
    for name in names.names(names.SPLIT):
        assert f"numbers.split.a.watermark.{name}" in values


def test_sinks_report_theirs(reported: Reported) -> None:
    values = _task(reported, "files")
    (scope,) = {name.removesuffix(".numRecordsSend") for name in values if name.endswith(".numRecordsSend")}
    assert scope == _SINK
    assert [name for name in names.names(names.SINK) if f"{scope}.{name}" not in values] == []
    assert values[f"{scope}.numRecordsSend"] == 40_100
    assert values[f"{scope}.numRecordsSendErrors"] == 0
    assert values[f"{scope}.numBytesSend"] > 2 * 40_100


def test_process_metrics(reported: Reported) -> None:
    assert set(names.names(names.PROCESS)) <= process_metrics().keys()
    watch = ProcessWatch(1 << 30, SystemClock())
    executor = watch.metrics([reported.process])
    assert set(names.names(names.PROCESS) + names.names(names.TASK_EXECUTOR)) <= executor.keys()


def test_jobs_and_the_control_plane_report_theirs() -> None:
    found = job_metrics(job_details(JOB, JobStatus.RUNNING), 0)
    assert set(names.names(names.JOB)) <= found.keys()
    overview = ClusterOverview(
        task_executors=1, slots_total=1, slots_available=0, jobs_running=1, jobs_finished=0, jobs_cancelled=0,
        jobs_failed=0,
    )  # fmt: skip
    assert set(names.names(names.JOB_MANAGER)) == job_manager_metrics(overview).keys()


def test_what_is_absent_is_reported_nowhere_and_explained(reported: Reported) -> None:
    last = {name.rpartition(".")[2] for name in reported.ever}
    assert not [name for name in names.ABSENT if name in last or name in reported.process]
    text = (Path(ROOT) / "docs" / "metrics.md").read_text()
    assert not [name for name, why in names.ABSENT.items() if f"`{name}`" not in text or why not in text]
