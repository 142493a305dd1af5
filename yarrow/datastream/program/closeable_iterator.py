"""CloseableIterator: the records of a running job, fetched as the caller asks for them.

Owner: the thread that iterates. What is not asked for stays in the job, whose bounded buffers hold it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from yarrow.common.job_client import JobClient
from yarrow.datastream.program.job_waiting import cancel_and_wait, wait_for_job
from yarrow.runtime.common.errors import UnsupportedFeatureError, YarrowError
from yarrow.runtime.graph.executor import CollectingJobClient

__all__ = ["CloseableIterator"]

#: Rows asked for at a time: enough to make a round trip cheap, few enough to be held in memory.
_ROWS_PER_FETCH = 1000


class CloseableIterator(Iterator[Any]):
    """Iterates over a job's records once; closing it, or leaving its `with` block, cancels the job."""

    def __init__(self, client: JobClient, collect_id: str, limit: int | None = None) -> None:
        if not isinstance(client, CollectingJobClient):
            cancel_and_wait(client)
            raise UnsupportedFeatureError(
                f"execute_and_collect needs a cluster that hands results back, which {type(client).__name__}"
                " does not:"
                " use a sink."
            )
        self._client = client
        self._fetcher: CollectingJobClient = client
        self._collect_id = collect_id
        self._left = limit
        self._fetched: deque[Any] = deque()
        self._closed = False

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        if self._left == 0:
            self.close()
            raise StopIteration
        if not self._fetched:
            try:
                self._fetch()
            except YarrowError as error:
                # The message says it all.
                raise error.with_traceback(None) from None
        if self._left is not None:
            self._left -= 1
        return self._fetched.popleft()

    def get_job_client(self) -> JobClient:
        """Return the handle on the job."""
        return self._client

    def close(self) -> None:
        """Cancel the job if it still runs, wait for its end, and drop the rows fetched so far. May be repeated."""
        if not self._closed:
            self._closed = True
            self._fetched.clear()
            cancel_and_wait(self._client)

    def _fetch(self) -> None:
        wanted = _ROWS_PER_FETCH if self._left is None else min(self._left, _ROWS_PER_FETCH)
        try:
            while not self._fetched:
                rows = self._fetcher.fetch_collected(self._collect_id, wanted)
                if rows is None:
                    self._closed = True
                    wait_for_job(self._client)
                    raise StopIteration
                self._fetched.extend(rows)
        except KeyboardInterrupt:
            self.close()
            raise

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
