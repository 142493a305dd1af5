"""Messages about the stages of a pipeline: their start, what they are certain to leave, and their end.

Owner: none (frozen values). The BatchJobMaster starts single stages in the SparkDriver of a run. It counts the attempts
of each stage, and each report names its attempt.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.common.ids import JobID, JobVertexID
from yarrow.runtime.rpc.messages.base import Message
from yarrow.runtime.rpc.messages.tasks import FailureCause


class OutputMove(Message, frozen=True, kw_only=True):
    """A complete output: the folder in which it was written, and the one under which everybody finds it."""

    source: str
    target: str
    #: A folder `target` is removed first; else it must not exist.
    replaces: bool = False
    #: Removed when the pipeline has ended.
    is_temporary: bool = False


class StageSubmission(Message, frozen=True, kw_only=True):
    """BatchJobMaster -> SparkDriver: an attempt of a stage."""

    job_id: JobID
    run: int
    vertex_id: JobVertexID
    #: Counted from 0 by the master, over all runs.
    attempt: int
    #: A former attempt has written these: they are moved, and its function does not run. None = the function runs.
    moves: tuple[OutputMove, ...] | None = None
    #: Outputs of the stage may be there from an earlier attempt of this job, whose temporary ones were lost.
    is_repeated: bool = False


class StageCommit(Message, frozen=True, kw_only=True):
    """SparkDriver -> BatchJobMaster: all outputs of a stage are written; they are moved once this is stored."""

    job_id: JobID
    run: int
    vertex_id: JobVertexID
    attempt: int
    moves: tuple[OutputMove, ...]


class StageEnd(Message, frozen=True, kw_only=True):
    """SparkDriver -> BatchJobMaster: an attempt of a stage has ended, and its outputs are in place unless it failed."""

    job_id: JobID
    run: int
    vertex_id: JobVertexID
    attempt: int
    #: None = it has finished.
    cause: FailureCause | None = None
    #: Stages whose temporary outputs it could not find: they run again, then this one.
    lost_inputs: tuple[JobVertexID, ...] = ()
    #: Under Flink's names, as numRecordsOut.
    metrics: dict[str, float] = msgspec.field(default_factory=dict)


class StoredStages(Message, frozen=True, kw_only=True):
    """What all stages of a pipeline are certain to leave, as the master keeps it; in the order in which they ended."""

    job_id: JobID
    commits: tuple[StageCommit, ...]
