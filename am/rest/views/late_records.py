"""Late records of a job for REST. Owner: none (pure)."""

from __future__ import annotations

from yarrow.am.rest.models.late_records import JobLateRecords, OperatorLateRecords
from yarrow.runtime.common.late_records import KEPT_PERCENT, LatePlace, LateRecords
from yarrow.runtime.rpc.messages import ExecutionGraphDetails


def late_records(details: ExecutionGraphDetails) -> JobLateRecords:
    """The late records of each operator that has some, in order of the vertices."""
    return JobLateRecords(
        operators=[
            _of_operator(vertex.vertex_id, found)
            for vertex in details.vertices
            for found in vertex.late_records
        ]
    )


def _of_operator(vertex_id: str, found: LateRecords) -> OperatorLateRecords:
    return OperatorLateRecords.of(
        found,
        vertex=vertex_id,
        dropped=found.places.get(LatePlace.DROPPED, 0),
        side_output=found.places.get(LatePlace.SIDE_OUTPUT, 0),
        function=found.places.get(LatePlace.FUNCTION, 0),
        ahead_of_time=found.ahead,
        longest_delay=found.longest_ms,
        lateness_for99_percent=found.lateness_for(KEPT_PERCENT),
        last_ahead_of_time=found.last_ahead,
        sentences=found.sentences(),
    )
