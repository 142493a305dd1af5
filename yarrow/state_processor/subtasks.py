"""The context of one operator's subtask outside of a job: a real backend of state, and nothing to send anything to.

Owner: the calling thread. For functions that are called directly; whole operators run in a SavepointEnvironment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup, metric_scope
from yarrow.container.operators.base import OperatorContext, TaskEnvironment
from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.heap_keyed_state import HeapKeyedStateBackend
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import PrintOperator
from yarrow.runtime.snapshot.handles import (
    InlineStateHandle,
    KeyedStateHandle,
    OperatorStateHandle,
    StateHandle,
)


def subtask_context(
    operator_id: OperatorID,
    name: str,
    job_id: JobID,
    *,
    max_parallelism: int,
    key_groups: KeyGroupRange,
    keyed: Sequence[KeyedStateHandle] = (),
    operator: Sequence[OperatorStateHandle] = (),
    read: Callable[[StateHandle], bytes] = lambda handle: (
        handle.data if isinstance(handle, InlineStateHandle) else b""
    ),
    trusted: bool = True,
    configuration: Mapping[str, str] | None = None,
) -> OperatorContext:
    """The context of a subtask with these key groups, restored from these handles; without `read` from inline ones."""
    clock = SystemClock()
    settings = Settings({})
    registry = MetricRegistry(clock)
    environment = TaskEnvironment(
        job_id=job_id,
        job_name="state processor",
        attempt_id=ExecutionAttemptID("state processor"),
        task_name=name,
        subtask=0,
        parallelism=1,
        max_parallelism=max_parallelism,
        attempt_number=0,
        configuration=dict(configuration or {}),
        clock=clock,
        metrics=registry,
        accumulators={},
        object_reuse=False,
        wake=lambda: None,
        post=lambda action: action(),
        write_output=print,
        send_operator_event=lambda *event: None,
        push_collected=lambda message: None,
        settings=settings,
        local_directory="",
    )
    descriptor = OperatorDescriptor(id=operator_id, name=name, spec=PrintOperator())
    metrics = OperatorMetricGroup(registry, (metric_scope(name),))
    backend = HeapKeyedStateBackend(
        KeyedBackendContext(
            operator_name=name,
            operator_id=operator_id,
            job_id=job_id,
            subtask=0,
            max_parallelism=max_parallelism,
            key_groups=key_groups,
            object_reuse=False,
            clock=clock,
            settings=settings,
            local_directory="",
            metrics=metrics,
            post=environment.post,
            restored=keyed,
            read=read,
            trusted=trusted,
        )
    )
    states = OperatorStateBackend(name, operator, read, trusted=trusted)
    return OperatorContext(environment, descriptor, backend, metrics, states)
