"""Messages about rate limits: the share of each subtask, whether it needs one, and requests for other limits.

Owner: none (frozen values). A share and a demand travel as the payload of an OperatorEvent, whose other end is the
JobMaster. Only the latest one of a subtask counts.
"""

from __future__ import annotations

from yarrow.common.values.rate_limit import RateLimit
from yarrow.runtime.common.ids import JobID, JobVertexID, OperatorID
from yarrow.runtime.rpc.messages.base import Message


class RateDemand(Message, frozen=True, kw_only=True):
    """Subtask -> JobMaster: whether the subtask has rows for a share of the limit."""

    needs_share: bool


class RateShare(Message, frozen=True, kw_only=True):
    """JobMaster -> subtask: its share of the limit."""

    share: RateLimit


class RateLimitRequest(Message, frozen=True, kw_only=True):
    """Other limits for sources and sinks of a running job, by operator; the other operators keep theirs."""

    limits: dict[OperatorID, RateLimit]


class OperatorRate(Message, frozen=True, kw_only=True):
    """One source or sink that can have a limit."""

    operator_id: OperatorID
    vertex_id: JobVertexID
    name: str
    #: "" = the program gives none.
    uid: str
    is_source: bool
    #: A limit in bytes is possible.
    counts_bytes: bool
    limit: RateLimit
    #: Subtasks that have not ended, and those of them that have a share.
    subtasks: int
    sharing_subtasks: int


class RateLimitDetails(Message, frozen=True, kw_only=True):
    """All sources and sinks of a job that can have a limit."""

    job_id: JobID
    operators: tuple[OperatorRate, ...]
