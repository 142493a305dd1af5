"""The root of Yarrow's typed errors.

Owner: none. Every message names the thing, says what was expected and what to do. A caller catches
`YarrowError` to tell our errors from the user's own.
"""

from __future__ import annotations


class YarrowError(Exception):
    """Base of all errors that Yarrow itself raises."""

    #: True = a job that fails by it does not restart, because no attempt can help. Its last checkpoint stays, so that
    #: the user can start it again. A class sets it, or a single error.
    is_final: bool = False
    #: True = only the user can mend the cause, such as a wrong password. A job that waits
    #: for its first checkpoint does not restart: nobody has seen its settings work. The restart strategy decides later,
    #: and in a job that makes no checkpoints.
    needs_user: bool = False


class InvalidProgramError(YarrowError):
    """The user's program was refused while its graph was built: nothing was started."""


class UnsupportedFeatureError(InvalidProgramError):
    """This version lacks a feature; the message names it."""


class FencingTokenError(YarrowError):
    """A message had a stale or foreign fencing token and was refused."""


class JobExecutionError(YarrowError):
    """A job did not end as FINISHED.

    The message begins with the user's own traceback, if there is one.
    """

    def __init__(self, message: str, job_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class UnreadableRowsError(YarrowError):
    """Rows of execute_and_collect have a form that no cluster of this version writes, or a class that changed."""


class UnprovedRowsError(UnreadableRowsError):
    """Pickled rows of execute_and_collect come from a server that has not proved to be the job's cluster."""


class JobCancelledError(JobExecutionError):
    """The job was cancelled."""


class JobSubmissionError(InvalidProgramError):
    """The Dispatcher refused a job: nothing of it was started."""


class DuplicateJobError(JobSubmissionError):
    """A job with that id runs or has run on this cluster."""


class JobNotFoundError(YarrowError):
    """The cluster has no job of that id (any more)."""


class ScheduleNotFoundError(YarrowError):
    """The cluster has no schedule of that id (any more)."""


class JobAlreadyEndedError(YarrowError):
    """The request needs a running job."""


class CheckpointFailedError(YarrowError):
    """A requested checkpoint or savepoint was not completed; the job goes on, unless the text says otherwise."""


class RestoreError(JobSubmissionError):
    """A job cannot begin from the savepoint or checkpoint in its settings: nothing of it was started."""


class FileSystemError(YarrowError):
    """A path cannot be used: unknown scheme, unreachable name node, or a refused operation."""
