"""Operations of REST that take their time: begun by one request, asked for by others until they have ended.

Owner: the thread that asks, which blocks. Of light imports: what follows a job needs this, and little else.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.common.backoff import Backoff

#: Seconds between two questions about an operation: short at first, for small jobs.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0


class OperationFailedError(CommandError):
    """The cluster took the request, and what it asked for failed."""


def run_operation(rest: RestClient, path: str, body: Mapping[str, Any], poll: str) -> Any:
    """Begins an operation and waits for its end; the answer's `operation`. OperationFailedError with the cause."""
    return await_operation(rest, f"{poll}/{rest.json('POST', path, body)['request-id']}")


def await_operation(rest: RestClient, path: str) -> Any:
    """Waits for an operation that was begun."""
    pause, backoff = threading.Event(), Backoff(_FIRST_PAUSE, _LAST_PAUSE, factor=1.5)
    while True:
        answer = rest.get(path)
        if answer["status"]["id"] == "COMPLETED":
            operation = answer.get("operation") or {}
            if (cause := operation.get("failure-cause")) is not None:
                raise OperationFailedError(cause["stack-trace"])
            return operation
        pause.wait(backoff.next_seconds())
