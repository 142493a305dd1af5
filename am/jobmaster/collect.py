"""CollectBuffer: rows of one collect operator between its subtasks and the client of execute_and_collect.

Owner: the JobMaster's loop. Bounded: a push waits while the client is behind, which holds the operator up.
Must not look into the rows.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import CollectRows

#: Payload of one answer at most, unless a single message is longer: answers have a size limit.
_FETCH_BYTES = 4 << 20


class CollectBuffer:
    """Rows in the order in which they arrived; of each subtask in its own order."""

    def __init__(
        self, job_id: JobID, collect_id: str, subtasks: int, max_rows: int, *, exactly_once: bool = False
    ) -> None:
        """`exactly_once`: the client keeps rows until a checkpoint covers them, and hears of each attempt."""
        self._job_id = job_id
        self._collect_id = collect_id
        self._open = subtasks
        self._max_rows = max_rows
        self._queue: deque[CollectRows] = deque()
        self._rows = 0
        #: (attempt, sequence) last taken of each subtask: a message sent twice counts once, one of a former attempt
        #: that comes late not at all.
        self._taken: dict[int, tuple[int, int]] = {}
        #: Subtasks that have sent their last rows.
        self._ended: set[int] = set()
        self._exactly_once = exactly_once
        #: The job has ended.
        self._closed = False
        self._complete = False
        self._changed = asyncio.Condition()

    async def push(self, rows: CollectRows) -> None:
        """Returns when there is room for the next; at once after the end of the job."""
        async with self._changed:
            position = (rows.attempt_number, rows.sequence)
            if position > self._taken.get(rows.subtask, (0, -1)):
                self._taken[rows.subtask] = position
                if rows.row_count or rows.continued or self._exactly_once:
                    self._queue.append(rows)
                    self._rows += rows.row_count
                if rows.last and rows.subtask not in self._ended:
                    self._ended.add(rows.subtask)
                    self._open -= 1
                self._changed.notify_all()
            await self._changed.wait_for(lambda: self._rows < self._max_rows or self._open <= 0)

    async def fetch(self, max_rows: int) -> tuple[CollectRows, ...]:
        """The next messages, at least one, with about `max_rows` rows; waits until there are some.

        When the job has ended comes one without any and with `last` set, again and again: until then a subtask that
        had sent all its rows may start again.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._queue) or self._closed)
            if not self._queue:
                return (self._end(),)
            found: list[CollectRows] = []
            count = size = 0
            while self._queue and (
                not found
                or (
                    count + self._queue[0].row_count <= max_rows
                    and size + len(self._queue[0].payload) <= _FETCH_BYTES
                )
            ):
                rows = self._queue.popleft()
                count += rows.row_count
                size += len(rows.payload)
                found.append(msgspec.structs.replace(rows, last=False, exactly_once=self._exactly_once))
            self._rows -= count
            self._changed.notify_all()
            return tuple(found)

    def restarts(self, subtask: int) -> None:
        """The subtask starts again: its rows have not ended. What it has sent since its checkpoint comes again."""
        if subtask in self._ended:
            self._ended.remove(subtask)
            self._open += 1

    def replaced(self, subtasks: int) -> None:
        """The operator goes on with so many subtasks, all of which begin anew."""
        self._ended.clear()
        self._open = subtasks

    async def close(self, complete: bool) -> None:
        """The job has ended: what is there can still be fetched, no more comes. `complete`: it has finished."""
        async with self._changed:
            if not self._closed:
                self._closed, self._complete = True, complete
            self._open = 0
            self._changed.notify_all()

    def _end(self) -> CollectRows:
        return CollectRows(
            job_id=self._job_id,
            collect_id=self._collect_id,
            subtask=-1,
            sequence=-1,
            payload=b"",
            row_count=0,
            last=True,
            complete=self._complete,
        )
