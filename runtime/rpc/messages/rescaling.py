"""Messages about another parallelism for a running job: requests and outcomes.

Owner: none (frozen values).
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.rpc.messages.base import Message


class RescaleRequest(Message, frozen=True, kw_only=True):
    """Another parallelism for a running job."""

    #: Parallelism of single vertices; the others keep theirs.
    parallelism: dict[JobVertexID, int] = msgspec.field(default_factory=dict)
    #: Above 0: instead, the parallelism of all vertices that may have another one than 1.
    every: int = 0
    #: The requester, for the history.
    trigger_cause: str = "request"
    #: True: begins after a running rescale; False: is refused during one.
    waits: bool = False


#: Number of a job's rescales that are remembered.
RESCALES_KEPT = 20


class RescaleRecord(Message, frozen=True, kw_only=True):
    """One change of a running job's parallelism."""

    rescale_id: str
    start_ms: int
    #: -1 while it runs.
    end_ms: int = -1
    #: IN_PROGRESS, COMPLETED, or FAILED: the job runs at its former parallelism or has ended.
    state: str = "IN_PROGRESS"
    #: Parallelism by vertex.
    before: dict[JobVertexID, int]
    after: dict[JobVertexID, int]
    trigger_cause: str
    #: Why it failed.
    reason: str = ""
