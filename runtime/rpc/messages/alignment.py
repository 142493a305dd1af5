"""Messages of the alignment of watermarks: what readers have reached, and how far they may go.

Owner: none (frozen values). Only the latest message of a reader counts, so a lost or repeated one does no harm.
"""

from __future__ import annotations

from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.rpc.messages.base import Message


class WatermarkReport(Message, frozen=True, kw_only=True):
    """Reader -> JobMaster: the event time that a reader has reached, in ms, and the rule by which it waits."""

    job_id: JobID
    attempt_id: ExecutionAttemptID
    group: str
    #: None = the reader holds nobody back: its splits are idle, or it has none.
    reached: int | None
    max_drift_ms: int
    interval_ms: int
    #: The reader has no bound yet, and reads no further before it has one.
    needs_bound: bool = False


class WatermarkBounds(Message, frozen=True, kw_only=True):
    """JobMaster -> readers of one TaskExecutor: the event time in ms behind which each of them must wait."""

    job_id: JobID
    bounds: dict[ExecutionAttemptID, int]
