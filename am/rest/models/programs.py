"""Bodies about uploaded programs, which Flink's API calls jars.

Owner: none (declarations).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from yarrow.am.rest.models.base import CamelModel, RestModel


class ProgramEntry(RestModel):
    """A part of a program that the server can run."""

    name: str
    description: str | None = None


class ProgramFile(RestModel):
    """An uploaded program: epoch milliseconds of the upload."""

    id: str
    name: str
    uploaded: int
    entry: list[ProgramEntry]


class ProgramList(RestModel):
    """The programs that the server can run, the newest first."""

    address: str
    files: list[ProgramFile]


class ProgramUpload(RestModel):
    """The program was stored; its id is the last part of `filename`."""

    filename: str
    status: Literal["success"] = "success"


class ProgramArguments(CamelModel):
    """The request to run a program's main."""

    #: A module of the archive, or `module:function`.
    entry_class: str | None = None
    #: The arguments as one text, split as a shell does (Flink 1.x).
    program_args: str | None = None
    program_args_list: list[str] | None = None
    parallelism: int | None = Field(default=None, ge=1, le=32768)
    job_id: str | None = Field(default=None, pattern="^[0-9a-fA-F]{32}$")
    flink_configuration: dict[str, str] | None = None


class ProgramRun(ProgramArguments):
    """The request to run a program."""

    allow_non_restored_state: bool | None = None
    savepoint_path: str | None = None
    claim_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = None
    restore_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = None


class ProgramApplication(ProgramRun):
    """The request to run a program as an application."""

    #: The id that the application is to have; in a session it is that of the program's first job.
    application_id: str | None = Field(default=None, pattern="^[0-9a-fA-F]{32}$")


class ProgramRunResult(RestModel):
    """The jobs of the program were submitted; `jobid` is the first."""

    jobid: str
    application_id: str = Field(serialization_alias="applicationId")
    #: Yarrow's: all of them, in the order in which the program executed them.
    jobids: list[str]
