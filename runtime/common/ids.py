"""Identifiers of the runtime: each has its own type and one text form, and an injected IdFactory makes it.

Owner: none (immutable values). No module outside runtime/common may make random identifiers itself.
The text form of all but ResourceID and ExecutionAttemptID is 32 lower-case hexadecimal digits, as in Flink.
"""

from __future__ import annotations

import os
import re
from typing import NewType, Protocol

JobID = NewType("JobID", str)
JobVertexID = NewType("JobVertexID", str)
OperatorID = NewType("OperatorID", str)
#: A job that runs again and again; each run is a job with an id of its own.
ScheduleID = NewType("ScheduleID", str)
AllocationID = NewType("AllocationID", str)
#: Fencing tokens of the leaders; a message with another token than the receiver's is refused.
JobMasterID = NewType("JobMasterID", str)
ResourceManagerID = NewType("ResourceManagerID", str)
DispatcherID = NewType("DispatcherID", str)
#: One TaskExecutor process: `<host>:<port>-<6 hex>` or a name that the driver chose.
ResourceID = NewType("ResourceID", str)
#: One slot worker process: `<resource id>/<number of the fork>`.
WorkerID = NewType("WorkerID", str)
#: `<execution graph>_<vertex>_<subtask>_<attempt>`, see `execution_attempt_id`.
ExecutionAttemptID = NewType("ExecutionAttemptID", str)

_HEX32 = re.compile(r"[0-9a-f]{32}")


def is_hex_id(text: str) -> bool:
    """True when `text` has the 32-digit form."""
    return _HEX32.fullmatch(text) is not None


def execution_attempt_id(graph: str, vertex: JobVertexID, subtask: int, attempt: int) -> ExecutionAttemptID:
    """The id of attempt number `attempt` of subtask `subtask` of `vertex`.

    `graph` distinguishes runs of one job.
    """
    return ExecutionAttemptID(f"{graph}_{vertex}_{subtask}_{attempt}")


def attempt_place(attempt: ExecutionAttemptID) -> tuple[str, int]:
    """The common part of a subtask's attempt ids, and the number of this attempt; 0 for an id of another form."""
    place, _, number = attempt.rpartition("_")
    return (place, int(number)) if place and number.isdigit() else (attempt, 0)


class IdFactory(Protocol):
    """Makes identifiers; tests pass one that counts."""

    def hex_id(self) -> str:
        """A new identifier of 32 hexadecimal digits."""
        ...


class RandomIdFactory:
    """Makes identifiers from the system's random source."""

    def hex_id(self) -> str:
        return os.urandom(16).hex()
