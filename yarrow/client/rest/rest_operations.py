"""Operations of REST that take time: one request begins them, others ask until they have ended.

Owner: the thread that asks, which blocks. It has few imports, because every client that follows a job imports
it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.common.backoff import Backoff

#: Seconds between two questions about an operation: few at first, for small jobs.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0


class OperationFailedError(CommandError):
    """The cluster accepted the request, and its operation failed."""


def run_operation(rest: RestClient, path: str, body: Mapping[str, Any], poll: str) -> Any:
    """Begins an operation and waits for its end; returns the answer's `operation`.

    Raises OperationFailedError with the cause.
    """
    # The server that began an operation alone knows it, and another thread may find the next leader meanwhile.
    begun_at = rest.apart()
    return await_operation(begun_at, f"{poll}/{begun_at.json('POST', path, body)['request-id']}")


def await_operation(rest: RestClient, path: str) -> Any:
    """Waits for a begun operation."""
    pause, backoff = threading.Event(), Backoff(_FIRST_PAUSE, _LAST_PAUSE, factor=1.5)
    while True:
        answer = rest.get(path)
        if answer["status"]["id"] == "COMPLETED":
            operation = answer.get("operation") or {}
            if (cause := operation.get("failure-cause")) is not None:
                raise OperationFailedError(cause["stack-trace"])
            return operation
        pause.wait(backoff.next_seconds())
