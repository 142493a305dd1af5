"""Refusals of the REST API, and the HTTP status of each error of the cluster.

Owner: none (pure). A client's mistake is a 4xx that says what to do; a failure of the cluster is a 5xx.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from yarrow.runtime.common.errors import (
    DuplicateJobError,
    InvalidProgramError,
    JobAlreadyEndedError,
    JobNotFoundError,
    ScheduleNotFoundError,
    YarrowError,
)
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.rpc.errors import (
    AnswerTooLargeError,
    MessageTooLargeError,
    RpcTimeoutError,
    RpcUnavailableError,
)


class RestServerError(YarrowError):
    """The server cannot listen as configured, or would admit others; the message names host and ports."""


class RequestRefusedError(YarrowError):
    """A request is refused with this status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = int(status)
        #: Headers of the answer.
        self.headers = dict(headers or {})


class BadRequestError(RequestRefusedError):
    """The request itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, message)


class NotFoundError(RequestRefusedError):
    """There is no such thing."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, message)


class UnauthorizedError(RequestRefusedError):
    """The client has not proved that it may enter; the server closes its connection."""

    def __init__(self, message: str) -> None:
        super().__init__(
            HTTPStatus.UNAUTHORIZED, message, {"www-authenticate": "Bearer", "connection": "close"}
        )


class ForbiddenError(RequestRefusedError):
    """The request is understood and not allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.FORBIDDEN, message)


class ConflictError(RequestRefusedError):
    """The thing is not in a state in which this can be done."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.CONFLICT, message)


class UploadedProgramFailedError(RequestRefusedError):
    """The main of an uploaded program failed, ended early or took too long; the message ends with its output."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.UNPROCESSABLE_ENTITY, message)


_STATUS: tuple[tuple[type[YarrowError], HTTPStatus], ...] = (
    (JobNotFoundError, HTTPStatus.NOT_FOUND),
    (ScheduleNotFoundError, HTTPStatus.NOT_FOUND),
    (JobAlreadyEndedError, HTTPStatus.CONFLICT),
    (DuplicateJobError, HTTPStatus.CONFLICT),
    (InvalidProgramError, HTTPStatus.BAD_REQUEST),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (AnswerTooLargeError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (MessageTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (RpcTimeoutError, HTTPStatus.GATEWAY_TIMEOUT),
    (RpcUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)

#: Errors known by name alone: their classes belong to modules that are not loaded here.
_STATUS_BY_NAME = {
    "AccumulatorMergeError": HTTPStatus.CONFLICT,
    "UnknownCollectError": HTTPStatus.NOT_FOUND,
    "UnknownLogFileError": HTTPStatus.NOT_FOUND,
    "NoSparkPagesError": HTTPStatus.NOT_FOUND,
    "BlobNotFoundError": HTTPStatus.NOT_FOUND,
    "InvalidSavepointPathError": HTTPStatus.BAD_REQUEST,
    "RateLimitRefusedError": HTTPStatus.BAD_REQUEST,
    "RateLimitsNotStoredError": HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: YarrowError) -> int:
    """The HTTP status of the answer to an error."""
    if isinstance(error, RequestRefusedError):
        return error.status
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return _STATUS_BY_NAME.get(type(error).__name__, HTTPStatus.INTERNAL_SERVER_ERROR)
