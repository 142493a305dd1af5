"""The body about the event time of a job.

Owner: none; pure.
"""

from __future__ import annotations

from yarrow.am.rest.models.event_time import JobEventTime, OperatorEventTimeBody, TimeHolderBody
from yarrow.common.watermark_strategy import MAX_TIMESTAMP
from yarrow.runtime.rpc.messages import EventTimeDetails


def job_event_time(details: EventTimeDetails) -> JobEventTime:
    """The details as REST shows them."""
    return JobEventTime.of(
        details,
        now=details.now_ms,
        operators=[
            OperatorEventTimeBody.of(operator, has_ended=operator.least == MAX_TIMESTAMP)
            for operator in details.operators
        ],
        holders=[
            TimeHolderBody.of(holder, split=holder.split_id or None, age=holder.age_ms)
            for holder in details.holders
        ],
    )
