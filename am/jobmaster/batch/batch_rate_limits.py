"""BatchRateLimits: what people see of the rate limits of a bounded job, and how they change them.

Owner: the BatchJobMaster's loop. The limit stands in the spec of its operator, so that each new run begins with it. The
driver divides the limits among running tasks. Must not store limits: the Dispatcher does.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.batch.spark_driver_link import SparkDriverLink
from yarrow.am.jobmaster.encoded_graphs import EncodedGraphs
from yarrow.am.jobmaster.rate_limits import (
    RateLimitRefusedError,
    limited_job,
    limited_operators,
    operator_rate,
)
from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import batch
from yarrow.runtime.graph.batch.batch_sql import decisions
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import RateLimitDetails


class BatchRateLimits:
    """The rate limits of one bounded job."""

    def __init__(self, graph: ExecutionGraph, encoded: EncodedGraphs, driver: SparkDriverLink) -> None:
        self._graph = graph
        self._encoded = encoded
        self._driver = driver

    def details(self) -> RateLimitDetails:
        """Return the limits of all sources and sinks. Running subtasks share a limit."""
        found = []
        for vertex, operator in limited_operators(self._graph.job):
            states = [execution.state for execution in self._graph.vertices[vertex.id].executions]
            living = sum(not state.is_terminal for state in states)
            found.append(operator_rate(vertex, operator, living, states.count(ExecutionState.RUNNING)))
        return RateLimitDetails(job_id=self._graph.job.job_id, operators=tuple(found))

    async def change(self, limits: Mapping[OperatorID, RateLimit]) -> None:
        """Set other limits: of the present run, as soon as its driver can be reached, and of later runs.

        Raises RateLimitRefusedError.
        """
        following = limited_job(self._graph.job, limits)
        in_sql = {
            vertex_id for vertex_id, found in decisions(self._graph.job).items() if not isinstance(found, str)
        }
        for vertex, operator in limited_operators(self._graph.job):
            if operator.id in limits and vertex.id in in_sql:
                raise RateLimitRefusedError(
                    f"Spark SQL reads the files of {operator.name!r} in this job, and keeps no rate limit. Give the"
                    f" source a rate_limit() in the program, or set {batch.SPARK_SQL.key} to false"
                )
        await self._encoded.prepare(following)
        self._graph.replace_specs(following)
        await self._driver.change_rate_limits(
            {operator.id: operator.spec.rate_limit for _, operator in limited_operators(following)}
        )
