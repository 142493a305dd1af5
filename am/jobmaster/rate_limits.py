"""RateLimits: divides the rate limits of a job's sources and sinks among their subtasks, and changes the limits.

Owner: the JobMaster's loop; `limited_job` and `shares` are pure. The limit stands in the spec of its operator, so that
each new attempt begins with an equal share. A subtask gets another share when subtasks end, are idle or come back. An
idle subtask has none while others work: it may read a row in advance, and tells when it has one. So the sum of all
shares is the limit, except while a message is under way. Must not store limits: the Dispatcher does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.am.jobmaster.rescaling import Rescaling
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    JOB_MASTER_SUBTASK,
    OperatorEvent,
    OperatorRate,
    RateDemand,
    RateLimitDetails,
    RateShare,
)

K = TypeVar("K")


class RateLimitRefusedError(YarrowError):
    """A rate limit is impossible for the operator, or there is no such operator; nothing has changed."""


def limited_job(job: JobGraph, limits: Mapping[OperatorID, RateLimit]) -> JobGraph:
    """The job with these limits; operators that are not named keep theirs.

    Raises RateLimitRefusedError, which names the operator.
    """
    known = {operator.id: operator for _, operator in limited_operators(job)}
    for operator_id, limit in limits.items():
        found = known.get(operator_id)
        if found is None:
            raise RateLimitRefusedError(
                f"the job {job.name!r} has no source or sink {operator_id} that takes a rate limit: GET"
                f" /jobs/{job.job_id}/rate-limits lists them"
            )
        if limit.bytes_per_second is not None and not found.spec.counts_bytes:
            raise RateLimitRefusedError(
                f"the connector of {found.name!r} does not count the bytes of records: limit its rows"
            )
    return msgspec.structs.replace(
        job, vertices=tuple(_limited_vertex(vertex, limits) for vertex in job.vertices)
    )


def _limited_vertex(vertex: JobVertex, limits: Mapping[OperatorID, RateLimit]) -> JobVertex:
    if not any(operator.id in limits for operator in vertex.operators):
        return vertex
    operators = tuple(
        msgspec.structs.replace(
            operator, spec=msgspec.structs.replace(operator.spec, limit=limits[operator.id])
        )
        if operator.id in limits
        else operator
        for operator in vertex.operators
    )
    return msgspec.structs.replace(vertex, operators=operators)


def shares(limit: RateLimit, subtasks: Iterable[K], idle: Iterable[K]) -> dict[K, RateLimit]:
    """The share of each subtask: idle ones leave theirs to the others, unless all are idle."""
    all_of_them = list(subtasks)
    resting = set(idle)
    working = [subtask for subtask in all_of_them if subtask not in resting] or all_of_them
    share, nothing = limit.share_of(len(working)), limit.share_of(0)
    counted = set(working)
    return {subtask: share if subtask in counted else nothing for subtask in all_of_them}


def limited_operators(job: JobGraph) -> Iterator[tuple[JobVertex, OperatorDescriptor]]:
    """The sources and sinks that take a rate limit, each with its vertex."""
    for vertex in job.vertices:
        for operator in vertex.operators:
            if operator.spec.takes_rate_limit:
                yield vertex, operator


def operator_rate(
    vertex: JobVertex, operator: OperatorDescriptor, subtasks: int, sharing_subtasks: int
) -> OperatorRate:
    """What people see of the limit of one source or sink, which so many of its living subtasks share."""
    return OperatorRate(
        operator_id=operator.id,
        vertex_id=vertex.id,
        name=operator.name,
        uid=operator.uid or "",
        is_source=operator.spec.is_source,
        counts_bytes=operator.spec.counts_bytes,
        limit=operator.spec.rate_limit,
        subtasks=subtasks,
        sharing_subtasks=sharing_subtasks,
    )


class RateLimits:
    """The rate limits of one job."""

    def __init__(
        self, graph: ExecutionGraph, events: OperatorEvents, encoded: EncodedGraphs, rescaling: Rescaling
    ) -> None:
        self._graph = graph
        self._events = events
        self._encoded = encoded
        self._rescaling = rescaling
        #: Attempts that have no rows for a share, by operator.
        self._idle: dict[OperatorID, set[ExecutionAttemptID]] = {}
        #: The last share that each attempt was told, by operator; an operator without an entry has had no limit.
        self._told: dict[OperatorID, dict[ExecutionAttemptID, RateLimit]] = {}

    @property
    def limits(self) -> dict[OperatorID, RateLimit]:
        """The present limit of each source and sink."""
        return {operator.id: operator.spec.rate_limit for _, operator in limited_operators(self._graph.job)}

    def details(self) -> RateLimitDetails:
        """What people see of the limits."""
        found = []
        for vertex, operator in limited_operators(self._graph.job):
            live = [execution.attempt_id for execution in self._live(vertex)]
            divided = shares(operator.spec.rate_limit, live, self._idle.get(operator.id, ()))
            nothing = operator.spec.rate_limit.share_of(0)
            sharing = sum(share != nothing or not share.limits_something for share in divided.values())
            found.append(operator_rate(vertex, operator, len(live), sharing))
        return RateLimitDetails(job_id=self._graph.job.job_id, operators=tuple(found))

    async def change(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Sets other limits. Tasks hear of them at once, and later attempts find them in their graph.

        Raises RateLimitRefusedError.
        """
        while True:
            await self._rescaling.idle()
            present = self._graph.job
            following = limited_job(present, limits)
            await self._encoded.prepare(following)
            if self._graph.job is present and not self._rescaling.is_under_way:
                break
        self._graph.replace_specs(following)
        self.divide()

    def take(self, event: OperatorEvent) -> None:
        """Takes what a subtask says of its need of a share."""
        demand = msgspec.msgpack.decode(event.payload, type=RateDemand)
        idle = self._idle.setdefault(event.operator_id, set())
        if demand.needs_share:
            idle.discard(event.source_attempt)
        else:
            idle.add(event.source_attempt)
        self.divide()

    def divide(self) -> None:
        """Tells each subtask its share, if it does not know. Call it when tasks have come, ended or changed."""
        for vertex, operator in limited_operators(self._graph.job):
            limit = operator.spec.rate_limit
            if limit.limits_something or operator.id in self._told:
                self._divide(vertex, operator, limit)

    def _divide(self, vertex: JobVertex, operator: OperatorDescriptor, limit: RateLimit) -> None:
        live = {execution.attempt_id: execution for execution in self._live(vertex)}
        idle = self._idle[operator.id] = self._idle.get(operator.id, set()) & live.keys()
        former = self._told.get(operator.id, {})
        divided = shares(limit, live, idle)
        for attempt, share in divided.items():
            if former.get(attempt) != share:
                self._tell(live[attempt], operator.id, share)
        if limit.limits_something:
            self._told[operator.id] = divided
        else:
            self._told.pop(operator.id, None)

    def _live(self, vertex: JobVertex) -> list[Execution]:
        """The present attempts that read or write, or will."""
        present = self._graph.vertices[vertex.id].executions
        return [execution for execution in present if execution.state is not ExecutionState.FINISHED]

    def _tell(self, execution: Execution, operator_id: OperatorID, share: RateLimit) -> None:
        self._events.send(
            OperatorEvent(
                job_id=self._graph.job.job_id,
                vertex_id=execution.vertex.id,
                operator_id=operator_id,
                target_subtask=execution.subtask,
                source_subtask=JOB_MASTER_SUBTASK,
                payload=msgspec.msgpack.encode(RateShare(share=share)),
                target_attempt=execution.attempt_id,
            )
        )
