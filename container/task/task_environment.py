"""TaskEnvironment of a subtask: made alike for every task, whoever runs it. And its outputs' partitions.

Owner: the task thread that will run the task. Must not open channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from yarrow.container.metrics.metric_registry import MetricRegistry
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.operators.base import (
    NOTHING_RESTORED,
    CollectMessage,
    ReaderProgress,
    RestoredState,
    TaskEnvironment,
)
from yarrow.container.operators.loop_ends import LoopAccess, NoLoops
from yarrow.datastream.functions.iteration_functions import IterationRuntimeContext
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID
from yarrow.runtime.config.options import pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobEdge, JobGraph
from yarrow.runtime.graph.operator_spec import StreamKind

if TYPE_CHECKING:
    from yarrow.container.network.columnar_partition import ColumnarResultPartition


class TaskServices(msgspec.Struct, frozen=True):
    """Callbacks that a task gives to its operators; TaskEnvironment describes each."""

    wake: Callable[[], None]
    post: Callable[[Callable[[], None]], None]
    write_output: Callable[[str], None]
    send_operator_event: Callable[[str, int, int, bytes], None]
    push_collected: Callable[[CollectMessage], None]
    result_key: bytes = b""
    loops: LoopAccess = NoLoops()
    report_watermark: Callable[[ReaderProgress], None] | None = None


class TaskAttempt(NamedTuple):
    """Names one attempt of one subtask, and says from what it begins."""

    attempt_id: ExecutionAttemptID
    vertex_id: JobVertexID
    subtask: int
    number: int
    #: A folder for files that end with the task; made on demand.
    local_directory: str
    restored: RestoredState = NOTHING_RESTORED
    latest_savepoint_id: int = -1
    #: See TaskEnvironment.
    bounded: bool = False
    superstep: IterationRuntimeContext | None = None


def task_environment(
    graph: JobGraph, attempt: TaskAttempt, settings: Settings, clock: Clock, services: TaskServices
) -> TaskEnvironment:
    """The facts and services of a task for its operators."""
    vertex = graph.vertex(attempt.vertex_id)
    return TaskEnvironment(
        job_id=graph.job_id,
        job_name=graph.name,
        attempt_id=attempt.attempt_id,
        task_name=vertex.name,
        subtask=attempt.subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        attempt_number=attempt.number,
        configuration=graph.configuration,
        clock=clock,
        metrics=MetricRegistry(clock),
        accumulators={},
        object_reuse=settings.get(pipeline.OBJECT_REUSE),
        wake=services.wake,
        post=services.post,
        write_output=services.write_output,
        send_operator_event=services.send_operator_event,
        push_collected=services.push_collected,
        settings=settings,
        local_directory=attempt.local_directory,
        restored=attempt.restored,
        result_key=services.result_key,
        latest_savepoint_id=attempt.latest_savepoint_id,
        bounded=attempt.bounded,
        superstep=attempt.superstep,
        cached_files={file.name: file.local_path for file in graph.user_code.files if file.local_path},
        loops=services.loops,
        report_watermark=services.report_watermark,
    )


class BatchBounds(NamedTuple):
    """Most rows and bytes of a batch."""

    rows: int
    bytes: int
    #: Rows of columns that wait for a batch of their channel; None = as many as suits channels between workers.
    columns: int | None = None


def partition_over(
    graph: JobGraph, edge: JobEdge, channels: Sequence[OutputChannel], bounds: BatchBounds
) -> ResultPartition | ColumnarResultPartition:
    """The output for one edge over its opened channels; and the bounds of its batches."""
    if edge.stream_kind is StreamKind.COLUMNAR:
        from yarrow.container.network.columnar_partition import COALESCE_ROWS, ColumnarResultPartition

        most = graph.vertex(edge.target).max_parallelism
        return ColumnarResultPartition(edge, channels, most, bounds.columns or COALESCE_ROWS)
    return ResultPartition(edge, channels, bounds.rows, bounds.bytes)
