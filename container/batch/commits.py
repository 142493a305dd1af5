"""Commits of a batch job's sinks: what its tasks have prepared becomes visible together, when all have finished.

Owner: the calling thread, in a process that may run user code. The caller stores the committables before the first
commit, and calls `commit` again after a crash: committers repeat. Must not know where committables are stored.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from yarrow.container.codegen.attribution import Attribution
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.sinks.sink_committing import END_OF_INPUT, PendingCommits, RetrySettings
from yarrow.container.operators.sinks.writer_context import WriterContext, WriterTimers
from yarrow.container.task.task_environment import TaskAttempt, TaskServices, task_environment
from yarrow.datastream.connectors.base import Committer, Sink
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import JobVertexID, execution_attempt_id
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.job_graph import JobGraph, OperatorDescriptor
from yarrow.runtime.snapshot.plain_values import dump_plain, load_plain

#: `latest_savepoint_id` of writers that must not end transactions of other attempts: each began before it.
KEEPS_TRANSACTIONS: Final = 1 << 62


class BatchSink(NamedTuple):
    """A sink of a job: the operator at `operator` in the chain of a vertex."""

    vertex_id: JobVertexID
    operator: int


def sinks_of(graph: JobGraph) -> list[BatchSink]:
    """The operators of a job whose writers may prepare commits, in the order of their commits."""
    sinks = [
        BatchSink(vertex.id, index)
        for vertex in graph.vertices
        for index, descriptor in enumerate(vertex.operators)
        if descriptor.spec.writes_for_sink
    ]
    return sorted(
        sinks, key=lambda sink: cast(SinkWriterOperator, _descriptor(graph, sink).spec).commits_last
    )


def encode_committables(committables: Sequence[Any]) -> bytes:
    """Committables as a COMMITTABLES chunk has them. Raises UnwritableValueError for one that is no plain data."""
    return dump_plain(committables)


def decode_committables(payload: bytes) -> list[Any]:
    """The committables of a chunk; their classes are imported."""
    return list(load_plain(payload))


def commit(
    graph: JobGraph,
    sink: BatchSink,
    payloads: Iterable[bytes],
    settings: Settings,
    clock: Clock,
    wait: Callable[[float], object] | None = None,
) -> int:
    """Commits what one attempt of each task has prepared, in order of `payloads`; returns the number of committables.

    A failed commit is tried again as `sink.committer.*` says; `wait` waits so many seconds. Raises
    CommitFailedError when no try is left, and OperatorFailure if the sink cannot be opened.
    """
    wait = wait or threading.Event().wait
    descriptor = _descriptor(graph, sink)
    committables = [each for payload in payloads for each in decode_committables(payload)]
    with _Opened(descriptor) as opened:
        if opened.committer is None:
            return 0
        pending = PendingCommits(descriptor.name, 0, opened.committer, clock, RetrySettings.of(settings))
        pending.add(END_OF_INPUT, committables)
        pending.complete(END_OF_INPUT)
        while pending.next_attempt is not None:
            wait(max(0.0, pending.next_attempt - clock.monotonic()))
            pending.attempt()
    return len(committables)


def remove_leftovers(
    graph: JobGraph, sink: BatchSink, settings: Settings, clock: Clock, working_directory: Path
) -> None:
    """Ends what attempts have begun and nobody commits: of failed attempts, and of all if the job has failed.

    Call it behind the commits, when no task of the job runs any more. Raises OperatorFailure.
    """
    descriptor = _descriptor(graph, sink)
    attempt = TaskAttempt(
        execution_attempt_id(graph.job_id, sink.vertex_id, 0, 0), sink.vertex_id, 0, 0, str(working_directory)
    )
    services = TaskServices(
        wake=lambda: None,
        post=lambda mail: None,
        write_output=lambda text: None,
        send_operator_event=lambda operator, target, source, payload: None,
        push_collected=lambda message: None,
    )
    environment = task_environment(graph, attempt, settings, clock, services)
    # The only subtask: all transactions of the sink are its own.
    environment = dataclasses.replace(environment, parallelism=1)
    with _Opened(descriptor) as opened:
        if opened.committer is None:
            return
        context = OperatorContext.of(environment, descriptor)
        try:
            with Attribution(descriptor.name):
                writer_context = WriterContext(context, WriterTimers(), opened.sink)
                opened.sink.create_writer(writer_context).close()
        finally:
            context.state.dispose()


def _descriptor(graph: JobGraph, sink: BatchSink) -> OperatorDescriptor:
    return graph.vertex(sink.vertex_id).operators[sink.operator]


class _Opened:
    """The user's sink and its committer; errors name the operator."""

    def __init__(self, descriptor: OperatorDescriptor) -> None:
        self._descriptor = descriptor
        self.sink: Sink[Any]
        self.committer: Committer | None = None

    def __enter__(self) -> _Opened:
        name = self._descriptor.name
        with Attribution(name):
            self.sink = load_function(cast(SinkWriterOperator, self._descriptor.spec).sink, name)
            self.committer = self.sink.create_committer()
        return self

    def __exit__(self, *ended: object) -> None:
        if self.committer is not None:
            self.committer.close()
