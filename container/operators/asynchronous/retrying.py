"""Retrying: whether the outcome of a call of an AsyncFunction leads to another attempt, and after which time.

Owner: the thread of the event loop, on which the predicates of users run. Nothing here waits.
"""

from __future__ import annotations

from typing import Any

from yarrow.datastream.functions import AsyncRetryStrategy


class Retrying:
    """The decisions of one AsyncRetryStrategy, whose predicates are asked for once."""

    def __init__(self, strategy: AsyncRetryStrategy[Any]) -> None:
        predicates = strategy.get_retry_predicate()
        self._strategy = strategy
        self._on_result = predicates.result_predicate()
        self._on_error = predicates.exception_predicate()
        #: False if no outcome leads to another attempt.
        self.is_possible = self._on_result is not None or self._on_error is not None

    def seconds_until_retry(self, attempts: int, returned: Any, error: BaseException | None) -> float | None:
        """Seconds to wait before the next attempt; None = the outcome stands. Raises what a predicate raises."""
        if error is None:
            retries = self._on_result is not None and self._on_result(returned)
        else:
            # SystemExit and the like end the task at once.
            retries = self._on_error is not None and isinstance(error, Exception) and self._on_error(error)
        if not retries or not self._strategy.can_retry(attempts):
            return None
        return max(0, self._strategy.get_backoff_time_millis(attempts)) / 1000
