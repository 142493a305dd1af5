"""CollectBuffer: rows of one collect operator between its subtasks and the client of execute_and_collect.

Owner: the JobMaster's loop. Holds what the client has not confirmed, and hands it out again when asked again; the
operator holds the same until it hears that it was confirmed, so that nothing is lost with this buffer. Bounded: a push
waits while the client is behind, which holds the operator up. Must not look into the rows.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.messages import COLLECT_START, CollectConfirmation, CollectPosition, CollectRows

#: Payload of one answer at most, unless a single message is longer: answers have a size limit.
_FETCH_BYTES = 4 << 20
#: Payload that waits for the client at most, but for a message of each subtask: operators keep as much in their state.
_MAX_BYTES = 2 << 20


class CollectBuffer:
    """Rows in the order in which they arrived; of each subtask in its own order."""

    def __init__(
        self,
        job_id: JobID,
        collect_id: str,
        subtasks: int,
        max_rows: int,
        *,
        version: str = "",
        exactly_once: bool = False,
        checkpoint_id: int = -1,
    ) -> None:
        """`exactly_once`: the client keeps rows until a checkpoint covers them, and hears of each attempt.
        `checkpoint_id`: from which all tasks begin, -1 = none.
        """
        self._job_id = job_id
        self._collect_id = collect_id
        self._version = version
        self._open = subtasks
        self._max_rows = max_rows
        #: What the client has not confirmed, numbered one after the other.
        self._waiting: deque[CollectRows] = deque()
        self._last_number = -1
        self._rows = 0
        self._bytes = 0
        #: (attempt, sequence) last taken of each subtask: a message sent twice counts once, one of a former attempt
        #: that comes late not at all.
        self._taken: dict[int, tuple[int, int]] = {}
        #: Of each subtask's present attempt: positions that the client has, by stream.
        self._confirmed: dict[int, dict[str, int]] = {}
        #: Subtasks that have sent their last rows.
        self._ended: set[int] = set()
        #: Number of the first attempts at the present parallelism.
        self._oldest_attempt = 0
        self._exactly_once = exactly_once
        #: The job has ended.
        self._closed = False
        self._complete = False
        self._changed = asyncio.Condition()
        self._begin_anew(checkpoint_id)

    async def push(self, rows: CollectRows) -> CollectConfirmation:
        """Returns when there is room for the next, with what the client has; at once after the end of the job."""
        async with self._changed:
            if rows.attempt_number < self._oldest_attempt:
                return CollectConfirmation()
            attempt, sequence = self._taken.get(rows.subtask, (-1, -1))
            if (rows.attempt_number, rows.sequence) > (attempt, sequence):
                if rows.attempt_number != attempt:
                    self._confirmed[rows.subtask] = {}
                    if self._exactly_once:
                        self._drop_former(rows.subtask)
                self._taken[rows.subtask] = (rows.attempt_number, rows.sequence)
                if rows.row_count or rows.continued or self._exactly_once:
                    self._put(rows)
                if rows.last and rows.subtask not in self._ended:
                    self._ended.add(rows.subtask)
                    self._open -= 1
                self._changed.notify_all()
            await self._changed.wait_for(self._has_room)
            if self._taken[rows.subtask][0] != rows.attempt_number:
                return CollectConfirmation()
            return CollectConfirmation(positions=dict(self._confirmed[rows.subtask]))

    def _put(self, rows: CollectRows) -> None:
        self._last_number += 1
        self._waiting.append(
            msgspec.structs.replace(
                rows,
                last=False,
                exactly_once=self._exactly_once,
                version=self._version,
                delivery=self._last_number,
            )
        )
        self._rows += rows.row_count
        self._bytes += len(rows.payload)

    def _drop_former(self, subtask: int) -> None:
        """A new attempt of it sends: what waits of former ones is in its state or comes again. Without that a job that
        fails again and again would fill this buffer while nobody fetches.
        """
        kept = deque[CollectRows]()
        for rows in self._waiting:
            if rows.subtask != subtask or rows.attempt_number < self._oldest_attempt:
                kept.append(rows)
            else:
                self._rows -= rows.row_count
                self._bytes -= len(rows.payload)
        self._waiting = kept

    def _has_room(self) -> bool:
        return (self._rows < self._max_rows and self._bytes < _MAX_BYTES) or self._open <= 0

    async def fetch(
        self, max_rows: int, position: CollectPosition = COLLECT_START
    ) -> tuple[CollectRows, ...]:
        """The messages behind that position, at least one, with about `max_rows` rows; waits until there are some.

        What comes before it is confirmed; a position of another buffer confirms nothing. When the job has ended comes
        a message without rows and with `last` set, again and again: until then a subtask that had sent all its rows
        may start again.
        """
        async with self._changed:
            self._confirm(position)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            if not self._waiting:
                return (self._end(),)
            found: list[CollectRows] = []
            count = size = 0
            for rows in self._waiting:
                count += rows.row_count
                size += len(rows.payload)
                if found and (count > max_rows or size > _FETCH_BYTES):
                    break
                found.append(rows)
            return tuple(found)

    def _confirm(self, position: CollectPosition) -> None:
        if position.version != self._version:
            return
        while self._waiting and self._waiting[0].delivery <= position.delivery:
            rows = self._waiting.popleft()
            self._rows -= rows.row_count
            self._bytes -= len(rows.payload)
            # Behind the state with which another attempt began rows may be others.
            if rows.row_count and rows.attempt_number == self._taken[rows.subtask][0]:
                self._confirmed[rows.subtask][rows.stream] = rows.first + rows.row_count

    def restarts(self, subtask: int) -> None:
        """The subtask starts again: its rows have not ended. What it has sent since its checkpoint comes again."""
        if subtask in self._ended:
            self._ended.remove(subtask)
            self._open += 1

    def replaced(self, subtasks: int, attempt_number: int, checkpoint_id: int) -> None:
        """The operator goes on with so many subtasks, all of which begin anew: with attempts of that number, from that
        checkpoint.
        """
        self._ended.clear()
        self._open = subtasks
        self._oldest_attempt = attempt_number
        self._begin_anew(checkpoint_id)

    def _begin_anew(self, checkpoint_id: int) -> None:
        """With a stream that is not in the checkpoint nobody may go on: what the client keeps of it is void."""
        if self._exactly_once:
            self._put(
                CollectRows(
                    job_id=self._job_id,
                    collect_id=self._collect_id,
                    subtask=-1,
                    sequence=-1,
                    payload=b"",
                    row_count=0,
                    restored=checkpoint_id,
                )
            )

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
