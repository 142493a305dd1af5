"""The job that reads the history of a stream in batch mode, made of the stream's own JobGraph. Pure.

Owner: any thread. Operators keep their ids, so that the stream restores what they leave. Must not look into user code:
the client has done so before.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.options import batch, execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_plan import History
from yarrow.runtime.graph.connector_spec import DiscardOperator
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.graph.states import JobType

#: Options of the stream that say nothing to the job of its history.
_OF_THE_STREAM = (execution.SAVEPOINT_PATH, execution.CLAIM_MODE, execution.IGNORE_UNCLAIMED_STATE)


def history_of(graph: JobGraph) -> History | None:
    """How a job in batch mode reads history; None = it is an ordinary one."""
    settings = Settings(graph.configuration, "the job")
    end, path = settings.get(batch.HISTORY_UNTIL), settings.get(batch.HISTORY_SAVEPOINT_PATH)
    if end is None or path is None or graph.job_type is not JobType.BATCH:
        return None
    return History(until=end.time_ms, savepoint=path)


def history_job(
    graph: JobGraph, job_id: JobID, path: str, configuration: Mapping[str, str], *, drops_rows: bool
) -> JobGraph:
    """The job that leaves the state of `graph`, a stream, as a savepoint at `path`.

    `configuration`: the program's own. `drops_rows`: the rows for sinks are counted and dropped.
    """
    left_out = {key for each in _OF_THE_STREAM for key in each.names}
    settings = {key: value for key, value in configuration.items() if key not in left_out}
    settings[batch.HISTORY_SAVEPOINT_PATH.key] = path
    settings[execution.RUNTIME_MODE.key] = execution.RuntimeMode.BATCH.value
    return msgspec.structs.replace(
        graph,
        job_id=job_id,
        name=f"{graph.name} (history)",
        job_type=JobType.BATCH,
        configuration=settings,
        vertices=tuple(_reads_history(vertex, drops_rows=drops_rows) for vertex in graph.vertices),
    )


def stream_behind(graph: JobGraph, path: str) -> JobGraph:
    """The stream that starts from the savepoint at `path`."""
    settings = {**graph.configuration, execution.SAVEPOINT_PATH.key: path}
    settings.pop(batch.HISTORY_UNTIL.key, None)
    return msgspec.structs.replace(graph, configuration=settings)


def _reads_history(vertex: JobVertex, *, drops_rows: bool) -> JobVertex:
    operators = tuple(_operator(operator, drops_rows=drops_rows) for operator in vertex.operators)
    return msgspec.structs.replace(vertex, operators=operators)


def _operator(operator: OperatorDescriptor, *, drops_rows: bool) -> OperatorDescriptor:
    spec = operator.spec
    if spec.is_source:
        return msgspec.structs.replace(operator, spec=spec.as_history or spec)
    if spec.is_sink and drops_rows:
        return msgspec.structs.replace(operator, spec=DiscardOperator())
    return operator
