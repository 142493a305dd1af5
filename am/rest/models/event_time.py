"""Bodies about the event time of a job; all of them are Yarrow's own.

Owner: none (declarations). Times are epoch milliseconds; null = no watermark yet, no row, or the end of event time.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from yarrow.am.rest.models.base import HyphenModel
from yarrow.common.job_status import JobStatus
from yarrow.common.watermark_strategy import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.rpc.messages import HolderReason

#: A watermark; null before the first and at the end of event time, which `has-ended` tells apart.
WatermarkOrNone = Annotated[
    int | None, BeforeValidator(lambda time: None if time in (MIN_TIMESTAMP, MAX_TIMESTAMP) else time)
]


class OperatorEventTimeBody(HyphenModel):
    """Event time behind one operator, over its subtasks."""

    name: str
    least: WatermarkOrNone = Field(description="The least watermark of the active subtasks.")
    has_ended: bool = Field(description="The least watermark is the end of event time.")
    subtask: int = Field(description="The subtask with the least watermark, from 0.")
    greatest: WatermarkOrNone = Field(description="The greatest watermark of all subtasks.")
    idle: bool = Field(description="All subtasks are idle.")


class TimeHolderBody(HyphenModel):
    """Who holds event time back, why, and what to do."""

    operator: str
    subtask: int = Field(description="From 0.")
    split: str | None = Field(description="Id of the split; null = the holder is an operator.")
    watermark: WatermarkOrNone
    last_timestamp: int | None = Field(description="Event time of the last row.")
    age: int | None = Field(description="Milliseconds since the last row.")
    idle: bool
    reason: HolderReason
    explanation: str
    remedy: str
    path: list[str] = Field(description="Operators from the end whose event time waits, up to the holder.")


class JobEventTime(HyphenModel):
    """Event time of a job, operator by operator, and who holds it back."""

    status: JobStatus
    now: int
    operators: list[OperatorEventTimeBody]
    holders: list[TimeHolderBody]
    silent: list[str] = Field(description="Subtasks that have not answered.")
