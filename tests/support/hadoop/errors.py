"""Errors of the Hadoop for tests: each says what was tried and what to do.

Owner: none. They reach the command line as one sentence and exit status 1.
"""

from __future__ import annotations

from tests.support.services.errors import ServiceError


class HadoopError(ServiceError):
    """The cluster could not be built, started, found or stopped."""
