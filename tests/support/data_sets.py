"""DataSet programs in tests: environments with ids that count, and their rows by BatchTasks in this thread."""

from __future__ import annotations

from typing import Any

from tests.support.batch_runner import BatchRun, run_batch
from tests.support.counting_ids import CountingIdFactory
from yarrow.batch.dataset import DataSet, ExecutionEnvironment
from yarrow.common.configuration import Configuration
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph


def data_set_environment(
    parallelism: int = 2, settings: dict[str, str] | None = None
) -> ExecutionEnvironment:
    """An environment with this parallelism and these settings."""
    values = {"parallelism.default": str(parallelism), "pipeline.max-parallelism": "8", **(settings or {})}
    return ExecutionEnvironment(Configuration.from_dict(values), CountingIdFactory())


def graph_of(*data: DataSet) -> JobGraph:
    """The graph of a program that collects data sets, as `result0` and so on, besides its other sinks."""
    program = data[0].get_execution_environment().program
    builder = program.graph_builder
    for number, each in enumerate(data):
        spec = CollectOperator(collect_id=f"result{number}")
        builder.sink(builder.as_rows(each.transformation), "Collect", spec, parallelism=1)
    return program.get_job_graph()


def run(*data: DataSet, **options: Any) -> BatchRun:
    """The run of such a program; `options` are those of `run_batch`."""
    return run_batch(graph_of(*data), **options)


def rows_of(data: DataSet, **options: Any) -> list[Any]:
    """The rows of a data set."""
    return run(data, **options).rows()
