"""The root of Yarrow's typed errors.

Owner: none. Every message names the thing, says what was expected and what to do. `YarrowError` is what a
caller may catch to tell our errors from the user's own.
"""

from __future__ import annotations


class YarrowError(Exception):
    """Base of all errors that Yarrow itself raises."""


class InvalidProgramError(YarrowError):
    """The user's program was refused while its graph was built: nothing was started."""


class UnsupportedFeatureError(InvalidProgramError):
    """A thing that this version does not do; the message says what is missing."""


class FencingTokenError(YarrowError):
    """A message bore a stale or foreign fencing token and was refused."""


class JobExecutionError(YarrowError):
    """A job ended otherwise than FINISHED.

    The message begins with the user's own traceback, if there is one.
    """

    def __init__(self, message: str, job_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class UnreadableRowsError(YarrowError):
    """Rows of execute_and_collect that came as what no cluster of this version writes, or of a class that changed."""


class UnprovedRowsError(UnreadableRowsError):
    """Pickled rows of execute_and_collect from a server that has not proved to be the job's cluster."""


class JobCancelledError(JobExecutionError):
    """The job was cancelled."""


class JobSubmissionError(InvalidProgramError):
    """The Dispatcher refused a job: nothing of it was started."""


class DuplicateJobError(JobSubmissionError):
    """A job of that id runs or has run on this cluster."""


class JobNotFoundError(YarrowError):
    """The cluster knows no job of that id (any more)."""


class JobAlreadyEndedError(YarrowError):
    """What was asked for needs a job that still runs."""


class CheckpointFailedError(YarrowError):
    """A checkpoint or savepoint that was asked for was not completed; the job goes on, unless the text says so."""


class RestoreError(JobSubmissionError):
    """A job cannot begin from the savepoint or checkpoint that it names: nothing of it was started."""


class FileSystemError(YarrowError):
    """A path that cannot be used: unknown scheme, unreachable name node, a refused operation."""
