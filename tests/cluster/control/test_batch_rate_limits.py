"""Rate limits of bounded jobs: told to the present driver, and part of every later run and leadership."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_batch_jobs import RESTARTING, started
from tests.unit.am.jobmaster.test_rate_limits import with_source
from tests.unit.runtime.rpc.loops import run
from yarrow.am.jobmaster.rate_limits import RateLimitRefusedError
from yarrow.common import WatermarkStrategy
from yarrow.common.job_status import JobStatus
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState, JobType
from yarrow.runtime.rpc.messages import RateLimitRequest

SEVEN = RateLimit(rows_per_second=7)
THREE = RateLimit(rows_per_second=3)


def bounded() -> tuple[JobGraph, OperatorID]:
    job, source = with_source()
    return msgspec.structs.replace(job, job_type=JobType.BATCH), source


def limit_in(graph: JobGraph, operator: OperatorID) -> RateLimit:
    (found,) = (each for vertex in graph.vertices for each in vertex.operators if each.id == operator)
    return found.spec.rate_limit


def test_a_change_reaches_the_present_driver_and_later_ones(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            graph, source = bounded()
            job_id, first = await started(cluster, graph)
            await first.report(ExecutionState.RUNNING)
            (told,) = (await cluster.dispatcher.request_rate_limits(job_id)).operators
            assert (told.limit, told.subtasks, told.sharing_subtasks) == (UNLIMITED, 2, 2)
            changed = await cluster.dispatcher.change_rate_limits(
                job_id, RateLimitRequest(limits={source: SEVEN})
            )
            assert changed.operators[0].limit == SEVEN
            assert first.rate_limits == [{source: SEVEN}]
            await cluster.spark_drivers.crash(first)
            await cluster.until_status(job_id, JobStatus.RESTARTING)
            await cluster.pass_time(2)
            second = await cluster.next_spark_driver(2)
            # Between two runs, and before the driver has the job.
            await cluster.dispatcher.change_rate_limits(job_id, RateLimitRequest(limits={source: THREE}))
            assert second.rate_limits == []
            await second.begin()
            await eventually(lambda: bool(second.rate_limits))
            assert limit_in(second.graph, source) == THREE and second.rate_limits == [{source: THREE}]

    run(body())


def test_a_driver_that_does_not_answer_hears_of_the_change_behind_a_heartbeat(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            graph, source = bounded()
            job_id, driver = await started(cluster, graph)
            driver.answers_heartbeats = False
            await cluster.dispatcher.change_rate_limits(job_id, RateLimitRequest(limits={source: SEVEN}))
            assert driver.rate_limits == []
            driver.answers_heartbeats = True
            await cluster.pass_time(11)
            await eventually(lambda: driver.rate_limits == [{source: SEVEN}])

    run(body())


def test_an_operator_that_takes_no_limit_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            graph, _ = bounded()
            job_id, driver = await started(cluster, graph)
            other = graph.vertices[1].head.id
            with pytest.raises(RateLimitRefusedError, match="has no source or sink"):
                await cluster.dispatcher.change_rate_limits(job_id, RateLimitRequest(limits={other: SEVEN}))
            assert driver.rate_limits == []

    run(body())


def test_files_that_spark_sql_reads_take_no_limit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [1, 2], "value": [3, 4]}), tmp_path / "in.parquet")
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(), str(tmp_path / "in.parquet")
    ).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.key_by("key").sum("value").print()
    graph = msgspec.structs.replace(env.get_job_graph(), job_type=JobType.BATCH)
    (operator,) = (each for each in graph.vertices[0].operators if each.uid == "rows")

    async def body() -> None:
        async with control_cluster(tmp_path) as cluster:
            job_id, driver = await started(cluster, graph)
            request = RateLimitRequest(limits={operator.id: SEVEN})
            with pytest.raises(RateLimitRefusedError, match="Spark SQL reads the files of 'Source: rows'"):
                await cluster.dispatcher.change_rate_limits(job_id, request)
            assert driver.rate_limits == []

    run(body())
