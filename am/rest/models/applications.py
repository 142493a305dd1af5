"""Bodies about applications: the start page of Flink's dashboard.

Owner: none (declarations). Times are epoch milliseconds, durations milliseconds; -1 = not yet.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import AliasPath, Field

from yarrow.am.rest.models.base import CamelModel, HyphenModel, RestModel
from yarrow.am.rest.models.jobs import JobSummary


class ApplicationStatus(StrEnum):
    """State of an application."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    CANCELING = "CANCELING"
    FAILED = "FAILED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"


class ApplicationSummary(HyphenModel):
    """An application in a list."""

    id: str
    name: str
    start_time: int
    end_time: int
    duration: int
    status: ApplicationStatus
    #: Numbers of its jobs by their state.
    jobs: dict[str, int]


class ApplicationsOverview(RestModel):
    """All running and remembered applications."""

    applications: list[ApplicationSummary]


class ApplicationDetails(HyphenModel):
    """An application with its jobs."""

    id: str
    name: str
    status: ApplicationStatus
    start_time: int
    end_time: int
    duration: int
    #: When each state was entered, 0 = never.
    timestamps: dict[ApplicationStatus, int]
    jobs: list[JobSummary]


class ApplicationException(CamelModel):
    """The failure that ended a job of an application."""

    exception_name: str = Field(validation_alias=AliasPath("cause", "exception_name"))
    stacktrace: str = Field(validation_alias=AliasPath("cause", "stacktrace"))
    timestamp: int = Field(validation_alias="timestamp_ms")
    job_id: str


class ApplicationExceptionHistory(RestModel):
    """Failures, the newest first."""

    entries: list[ApplicationException]


class ApplicationExceptions(CamelModel):
    """The failures of an application's jobs."""

    exception_history: ApplicationExceptionHistory


class ApplicationStart(RestModel):
    """The server has begun the application."""

    applicationid: str = Field(description="Its id.")
