"""Errors of the cluster for tests: each says what was tried and what to do.

Owner: none. They reach the command line as one sentence and exit status 1.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class HadoopError(YarrowError):
    """The cluster could not be built, started, found or stopped."""


class MissingProgramError(HadoopError):
    """A program of the system is absent and cannot be installed from here."""


class NotReadyError(HadoopError):
    """A daemon ended, or did not serve in time; the message ends with the last lines of its log."""
