"""Errors of the control plane's endpoints, as callers and users meet them.

Values; usable from any thread. Each message names what it is about and what to do; what a state machine or a transport
raises is not here.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.errors import qualified_name
from yarrow.runtime.rpc.messages import FailureCause


class TaskExecutorLostError(YarrowError):
    """A TaskExecutor that ran tasks of the job is gone."""


class NoResourceAvailableError(YarrowError):
    """The job did not get its slots within slot.request.timeout."""


class UnknownTaskExecutorError(YarrowError):
    """A TaskExecutor sent a message to an endpoint with which it is not registered: it must register first."""


class UnknownCollectError(YarrowError):
    """The job has no collect operator of that id."""


def failure_of(kind: type[BaseException], message: str) -> FailureCause:
    """A FailureCause for what the control plane itself found out: the message is all there is to say."""
    return FailureCause(exception_name=qualified_name(kind), message=message, stacktrace=message)
