"""Typed errors of a TaskExecutor and its workers; each message names the thing and says what to do.

Owner: none (values). Their qualified names appear in FailureCause.exception_name, so renaming one changes
what REST shows.
"""

from __future__ import annotations

import sys
from typing import Final, Self

from yarrow.runtime.common.errors import InvalidProgramError, YarrowError

#: How the last line of a process begins that could not import a module.
_IMPORT_ERRORS: Final = ("ImportError", "ModuleNotFoundError")


class FrameError(YarrowError):
    """A control connection carried bytes that are no frame of this protocol, or a frame above the limit."""


class WorkerStartError(YarrowError):
    """A slot's worker process could not be started or did not become ready in time."""


class UnfitInterpreterError(WorkerStartError):
    """Workers cannot run in the interpreter that the job brings: no other slot or start would help."""


class EngineNotImportedError(WorkerStartError):
    """A worker's process cannot import the engine: no other start in this environment would help."""

    def __init__(self, who: str, output: str) -> None:
        """`who` tried it; `output` is the end of what its process has written, with a traceback."""
        last = output.strip().rpartition("\n")[2] or "its output says nothing"
        super().__init__(
            f"{who} cannot import the engine: {last}. Repair the environment of the workers ({sys.executable})"
        )
        self.output = output

    @classmethod
    def told_by(cls, who: str, output: str) -> Self | None:
        """The error of a process whose output ends with a failed import; None = it has ended for another reason."""
        is_import = output.strip().rpartition("\n")[2].startswith(_IMPORT_ERRORS)
        return cls(who, output) if is_import else None


class MissingModuleError(InvalidProgramError):
    """A worker cannot import a module that the code of its job needs: no restart would help."""

    is_final = True

    def __init__(self, who: str, module: str | None) -> None:
        """`who` needs the module: a job, or an operator with its function."""
        super().__init__(
            f"{who} needs module '{module}', which this worker ({sys.executable}) cannot import. Ship the module with"
            " add_python_file (-pyfs), or install it in the environment of the workers"
        )


class WorkerLostError(YarrowError):
    """A slot's worker process ended while it ran tasks."""


class TemplateLostError(WorkerStartError):
    """The template process ended; the next request starts another."""


class SlotNotAvailableError(YarrowError):
    """A requested slot is taken, or does not exist."""


class SlotNotFoundError(YarrowError):
    """A message named an allocation that no slot of this TaskExecutor has."""


class TaskSubmissionError(YarrowError):
    """Tasks could not be handed to a worker; it started none of the deployment."""


class TaskNotFoundError(YarrowError):
    """A message named a subtask that does not run in this TaskExecutor."""


class BlobTransferError(YarrowError):
    """A shipped file did not arrive whole."""


class UnknownLogFileError(YarrowError):
    """The log folder does not list the requested file."""


class RegistrationRefusedError(YarrowError):
    """The other side refused the registration for good."""


class TimerError(YarrowError):
    """A timer was registered for a value that is no timestamp."""


class TimestampError(YarrowError):
    """A record has no timestamp where event time needs one, or one that is no int64."""


class WatermarkAlignmentError(YarrowError):
    """The reader of a source with aligned watermarks cannot pause single splits, and has several."""


class CheckpointRefusedError(YarrowError):
    """A task cannot take part in a checkpoint, or cannot go on after one."""


class NotReadyForCheckpointError(CheckpointRefusedError):
    """A participant has just ended or does not run yet: this is no fault, and the next checkpoint follows."""


class ChannelFailedError(YarrowError):
    """The peer's side of a channel is gone; the task that reads or writes it fails."""

    def __init__(self, message: str, lost_result: str = "") -> None:
        super().__init__(message)
        #: The attempt whose complete result could not be read; "" for a pipelined channel.
        self.lost_result = lost_result
