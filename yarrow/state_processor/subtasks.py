"""One operator outside of a job: a fragment that never runs, of a graph with that operator alone.

Owner: the calling thread. For functions that are called directly; whole operators run in a SavepointEnvironment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from yarrow.container.fragment import Fragment, FragmentSubtask
from yarrow.container.operators.base import OperatorContext, RestoredState
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.graph.connector_spec import PrintOperator
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor, UserCode
from yarrow.runtime.snapshot.handles import (
    InlineStateHandle,
    KeyedStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateHandle,
)

#: The state of operators goes on from no checkpoint: functions begin as in a new job, with state that is there.
_NO_CHECKPOINT = -1


def read_inline(handle: StateHandle) -> bytes:
    """The bytes of a handle that holds them itself; none of another."""
    return handle.data if isinstance(handle, InlineStateHandle) else b""


def state_without_checkpoint(
    operator_id: OperatorID,
    *,
    keyed: Sequence[KeyedStateHandle] = (),
    operator: Sequence[OperatorStateHandle] = (),
    read: Callable[[StateHandle], bytes] = read_inline,
    trusted: bool = True,
) -> RestoredState:
    """State of one operator; `trusted`: pickled values in it may be read."""
    state = OperatorSubtaskState(keyed=tuple(keyed), operator=tuple(operator))
    return RestoredState(_NO_CHECKPOINT, {operator_id: state}, read, trusted=trusted)


class LoneOperator:
    """The only subtask of an operator that is a job by itself. Use it as a context manager."""

    def __init__(
        self,
        descriptor: OperatorDescriptor,
        job_id: JobID,
        *,
        max_parallelism: int,
        restored: RestoredState | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        """`configuration` is the one that functions see; the state is on the heap whatever it says."""
        self.subtask = FragmentSubtask(JobVertexID(descriptor.id))
        vertex = JobVertex(
            id=self.subtask.vertex_id,
            name=descriptor.name,
            operators=(descriptor,),
            chained_edges=(),
            parallelism=1,
            max_parallelism=max_parallelism,
            slot_sharing_group="default",
            buffer_timeout_ms=0,
        )
        graph = JobGraph(
            job_id=job_id,
            name="state processor",
            vertices=(vertex,),
            edges=(),
            user_code=UserCode(),
            configuration=dict(configuration or {}),
        )
        self.fragment = Fragment(
            graph,
            Settings({}),
            SystemClock(),
            restored={} if restored is None else {self.subtask: restored},
        )

    def __enter__(self) -> LoneOperator:
        return self

    def __exit__(self, *raised: object) -> None:
        self.fragment.close()


@contextmanager
def operator_context(
    operator_id: OperatorID,
    name: str,
    job_id: JobID,
    *,
    max_parallelism: int,
    restored: RestoredState | None = None,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[OperatorContext]:
    """The context of an operator for functions that are called directly; without `key_groups` with all of them."""
    descriptor = OperatorDescriptor(id=operator_id, name=name, spec=PrintOperator())
    with LoneOperator(descriptor, job_id, max_parallelism=max_parallelism, restored=restored) as lone:
        context = lone.fragment.context(lone.subtask, key_groups=key_groups)
        try:
            yield context
        finally:
            context.state.dispose()
