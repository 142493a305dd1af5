"""Errors of the control plane's endpoints, as callers and users see them.

Values; usable from any thread. Each message names its subject and says what to do. Errors of state machines
and transports are defined elsewhere.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.errors import qualified_name
from yarrow.runtime.rpc.messages import FailureCause


class TaskExecutorLostError(YarrowError):
    """A TaskExecutor that ran tasks of the job is gone."""


class NoResourceAvailableError(YarrowError):
    """The job did not get its slots within slot.request.timeout."""


class SparkDriverStartError(YarrowError):
    """A SparkDriver could not be started; the message says why."""


class NoSparkDriversError(SparkDriverStartError):
    """The cluster starts no SparkDrivers; another try would end alike."""


class SparkDriverLostError(YarrowError):
    """The SparkDriver of a job has ended, is silent, or did not start its session in time."""


class UnknownTaskExecutorError(YarrowError):
    """A TaskExecutor sent a message to an endpoint with which it is not registered: it must register first."""


class UnknownCollectError(YarrowError):
    """The job has no collect operator of that id."""


def trace_of(cause: FailureCause) -> str:
    """The stack trace of a cause without its last line end; its name and message if it has none."""
    return cause.stacktrace.rstrip() or f"{cause.exception_name}: {cause.message}"


def failure_of(kind: type[BaseException], message: str) -> FailureCause:
    """A FailureCause for a failure that the control plane itself has found.

    It has a message and no stack trace.
    """
    return FailureCause(exception_name=qualified_name(kind), message=message, stacktrace=message)
