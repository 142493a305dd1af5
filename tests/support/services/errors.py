"""Errors of services that tests run: each says what was tried and what to do.

Owner: none. They reach the command line as one sentence and exit status 1.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class ServiceError(YarrowError):
    """A service could not be built, started, found or stopped."""


class MissingProgramError(ServiceError):
    """A program of the system is absent and cannot be installed from here."""


class NotReadyError(ServiceError):
    """A daemon ended, or did not serve in time; the message ends with the last lines of its log."""
