"""Rescales of a job in Flink's shape.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.am.rest.models.checkpoints import StatsSummary
from yarrow.am.rest.models.rescaling import (
    RescaleCounts,
    RescaleDetails,
    SchedulerStateSpan,
    SlotSharingGroupRescale,
    VertexRescale,
)
from yarrow.runtime.metrics.aggregation import percentile
from yarrow.runtime.rpc.messages import ExecutionGraphDetails, RescaleRecord, VertexDetails


def rescale_counts(job: ExecutionGraphDetails) -> RescaleCounts:
    """How many rescales there were, by end."""

    def count(state: str) -> int:
        return sum(record.state == state for record in job.rescales)

    return RescaleCounts(
        in_progress=count("IN_PROGRESS"), completed=count("COMPLETED"), failed=count("FAILED")
    )


def rescale_durations(job: ExecutionGraphDetails, *states: str) -> StatsSummary:
    """How long rescales with these ends took."""
    taken = sorted(record.end_ms - record.start_ms for record in job.rescales if record.state in states)
    if not taken:
        return StatsSummary()
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    percentiles = {name: percentile(taken, share) for name, share in shares.items()}
    return StatsSummary.model_validate(
        {"min": taken[0], "max": taken[-1], "avg": sum(taken) // len(taken), **percentiles}
    )


def rescale_details_of(job: ExecutionGraphDetails, number: int) -> RescaleDetails:
    """The rescale of that number, oldest first."""
    record = job.rescales[number]
    groups = dict.fromkeys(vertex.slot_sharing_group for vertex in job.vertices)
    done = record.state == "COMPLETED"
    ended = record.state != "IN_PROGRESS"
    return RescaleDetails.model_validate(
        {
            "rescale_uuid": record.rescale_id,
            "resource_requirements_uuid": record.rescale_id,
            "rescale_attempt_id": number + 1,
            "vertices": {vertex.vertex_id: _vertex(vertex, record) for vertex in job.vertices},
            "slots": {group: _group(job, group, record) for group in groups},
            "scheduler_states": [_span(record)],
            "start_timestamp_in_millis": record.start_ms,
            "end_timestamp_in_millis": record.end_ms if ended else None,
            "terminal_state": record.state if ended else None,
            "terminated_reason": ("SUCCEEDED" if done else "EXCEPTION_OCCURRED") if ended else None,
            "description": record.trigger_cause,
            "failure_reason": record.reason,
        }
    )


def _span(record: RescaleRecord) -> SchedulerStateSpan:
    ended = record.state != "IN_PROGRESS"
    return SchedulerStateSpan(
        state="Restarting",
        enter_timestamp_in_millis=record.start_ms,
        leave_timestamp_in_millis=record.end_ms if ended else None,
        duration_in_millis=record.end_ms - record.start_ms if ended else None,
        stringified_exception=record.reason or None,
    )


def _vertex(vertex: VertexDetails, record: RescaleRecord) -> VertexRescale:
    before = record.before.get(vertex.vertex_id, vertex.parallelism)
    after = record.after.get(vertex.vertex_id, vertex.parallelism)
    return VertexRescale.of(
        vertex,
        desired_parallelism=after,
        sufficient_parallelism=after,
        pre_rescale_parallelism=before,
        post_rescale_parallelism=_reached(record, before, after),
    )


def _group(job: ExecutionGraphDetails, group: str, record: RescaleRecord) -> SlotSharingGroupRescale:
    def slots(parallelism: Mapping[str, int]) -> int:
        inside = [vertex for vertex in job.vertices if vertex.slot_sharing_group == group]
        return max(parallelism.get(vertex.vertex_id, vertex.parallelism) for vertex in inside)

    before = slots({str(key): value for key, value in record.before.items()})
    after = slots({str(key): value for key, value in record.after.items()})
    return SlotSharingGroupRescale(
        slot_sharing_group_id=group,
        slot_sharing_group_name=group,
        desired_slots=after,
        minimal_required_slots=after,
        pre_rescale_slots=before,
        post_rescale_slots=_reached(record, before, after),
    )


def _reached(record: RescaleRecord, before: int, after: int) -> int | None:
    """The parallelism at the end of the rescale; None while it runs."""
    return {"COMPLETED": after, "FAILED": before}.get(record.state)
