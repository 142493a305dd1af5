"""Bodies about late records, by operator.

Owner: none (declarations). Times are epoch milliseconds, delays milliseconds.
"""

from __future__ import annotations

from pydantic import Field

from yarrow.am.rest.models.base import CamelModel


class LateRecordBody(CamelModel):
    """A late record, or one that was ahead of time."""

    #: Its key as text, or the record where there are no keys; empty for one ahead of time.
    key: str
    timestamp: int
    watermark: int
    #: The lateness that would have kept it; how far it was beyond the bound on jumps, if it was ahead of time.
    delay: int = Field(validation_alias="delay_ms")
    #: Its last window as text; empty if it had none.
    window: str


class OperatorLateRecords(CamelModel):
    """The late records of an operator, summed up over its subtasks, since each was started."""

    operator: str
    vertex: str
    #: Dropped because they were late.
    dropped: int
    side_output: int
    #: Given to a process function all the same.
    function: int
    #: Dropped because no window contains them.
    of_no_window: int
    #: Further ahead of time than the bound on jumps of event time.
    ahead_of_time: int
    longest_delay: int
    #: The lateness that would have kept 99 % of them; null if none was late.
    lateness_for99_percent: int | None
    #: Number of late records by the longest delay of their class; a class is at most a sixteenth wide.
    delays: dict[int, int]
    #: The last ones.
    last: list[LateRecordBody]
    last_ahead_of_time: list[LateRecordBody]
    #: What the end of the job tells.
    sentences: list[str]


class JobLateRecords(CamelModel):
    """The late records of a job."""

    operators: list[OperatorLateRecords]
