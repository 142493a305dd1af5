"""CollectBuffer: rows of one collect operator between its subtasks and the client of execute_and_collect.

Owner: the JobMaster's loop. Holds what the client has not confirmed, and hands it out again when asked again. The
operator holds the same until it hears that it was confirmed, so that nothing is lost with this buffer. Bounded: a push
waits while the client is behind, which holds the operator up. Tells a subtask that has sent its last rows when it may
end. Must not look into the rows.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.messages import COLLECT_START, CollectConfirmation, CollectPosition, CollectRows

#: Payload of one answer at most, unless a single message is longer: answers have a size limit.
_FETCH_BYTES = 4 << 20
#: Payload that waits for the client at most, but for a message of each subtask: operators keep as much in their state.
_MAX_BYTES = 2 << 20


class _Attempt:
    """The present attempt of one subtask."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Of the message taken last: one that is sent twice counts once.
        self.sequence = -1
        #: Positions that the client has, by stream.
        self.confirmed: dict[str, int] = {}
        #: Its messages that the client has not confirmed.
        self.waiting = 0
        #: Streams whose last rows no checkpoint covers.
        self.uncovered: set[str] = set()
        #: It has sent its last rows.
        self.ended = False
        #: The subtask starts again; what comes from this one is late.
        self.is_over = False


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
        #: By subtask: a message of a former attempt that comes late does not count.
        self._attempts: dict[int, _Attempt] = {}
        #: All that the job waits for is its client.
        self._released = False
        #: Number of the first attempts at the present parallelism.
        self._oldest_attempt = 0
        self._exactly_once = exactly_once
        #: The job has ended.
        self._closed = False
        #: It goes on under another master.
        self._abandoned = False
        self._complete = False
        self._changed = asyncio.Condition()
        self._begin_anew(checkpoint_id)

    async def push(self, rows: CollectRows) -> CollectConfirmation:
        """Returns when there is room for the next, with what the client has; at once after the end of the job."""
        async with self._changed:
            attempt = self._attempt(rows)
            if attempt is None:
                return CollectConfirmation()
            if rows.sequence > attempt.sequence:
                attempt.sequence = rows.sequence
                self._take(rows, attempt)
                self._changed.notify_all()
            await self._changed.wait_for(self._has_room)
            return CollectConfirmation(positions=dict(attempt.confirmed))

    def _attempt(self, rows: CollectRows) -> _Attempt | None:
        """The attempt that sends; None for a former one."""
        present = self._attempts.get(rows.subtask)
        if rows.attempt_number < self._oldest_attempt or (present and rows.attempt_number < present.number):
            return None
        if present is None or rows.attempt_number > present.number:
            if present is not None and present.ended:
                self._open += 1
            present = self._attempts[rows.subtask] = _Attempt(rows.attempt_number)
            if self._exactly_once:
                self._drop_former(rows.subtask)
        return present

    def _take(self, rows: CollectRows, attempt: _Attempt) -> None:
        if rows.row_count or rows.continued or self._exactly_once:
            self._put(rows)
            attempt.waiting += 1
        if self._exactly_once and rows.confirmed < rows.first + rows.row_count:
            attempt.uncovered.add(rows.stream)
        else:
            attempt.uncovered.discard(rows.stream)
        if rows.last and not attempt.ended and not attempt.is_over:
            attempt.ended = True
            self._open -= 1

    async def settle(self, rows: CollectRows) -> CollectConfirmation:
        """Returns when the subtask that has sent its last rows may end: checkpoints behind its end do not hold them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.may_end(rows))
        return CollectConfirmation()

    def may_end(self, rows: CollectRows) -> bool:
        """Whether nothing is lost with the attempt that asks.

        Either the client has its rows and knows that they are covered, or the job waits for nothing else.
        """
        if self._released or self._closed:
            return True
        attempt = self._attempt(rows)
        return attempt is None or (attempt.ended and not attempt.waiting and not attempt.uncovered)

    def release(self) -> None:
        """The job waits for its client alone: it ends, and its last rows wait here. To be followed by `wake`."""
        self._released = True

    async def wake(self) -> None:
        """Who waits for what has changed looks again."""
        async with self._changed:
            self._changed.notify_all()

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
        """Prepares for the rows of a new attempt; waiting rows of former attempts are dropped.

        They are in the state of the new attempt or come again. Otherwise a job that fails again and again
        would fill this buffer while nobody fetches.
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
        has_room = self._rows < self._max_rows and self._bytes < _MAX_BYTES
        return has_room or self._open <= 0 or self._released

    async def fetch(
        self, max_rows: int, position: CollectPosition = COLLECT_START
    ) -> tuple[CollectRows, ...]:
        """The messages behind that position, at least one, with about `max_rows` rows; waits until there are some.

        What comes before it is confirmed; a position of another buffer confirms nothing. When the job has ended comes
        a message without rows and with `last` set, again and again: until then a subtask that had sent all its rows
        may start again. Raises EndpointStoppedError where the job goes on under another master, which is to be asked.
        """
        async with self._changed:
            self._confirm(position)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: bool(self._waiting) or self._closed or self._abandoned)
            if self._abandoned:
                raise EndpointStoppedError(
                    f"the job {self._job_id} goes on under another master: ask that one"
                )
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
            attempt = self._attempts.get(rows.subtask)
            # Behind the state with which another attempt began rows may be others.
            if attempt is None or rows.attempt_number != attempt.number:
                continue
            attempt.waiting -= 1
            if rows.row_count:
                attempt.confirmed[rows.stream] = rows.first + rows.row_count

    def restarts(self, subtask: int) -> None:
        """The subtask starts again: its rows have not ended. What it has sent since its checkpoint comes again."""
        self._released = False
        attempt = self._attempts.get(subtask)
        if attempt is not None:
            attempt.is_over = True
            if attempt.ended:
                attempt.ended = False
                self._open += 1

    def replaced(self, subtasks: int, attempt_number: int, checkpoint_id: int) -> None:
        """The operator goes on with another number of subtasks.

        All of them begin anew, with attempts of that number, from that checkpoint.
        """
        self._released = False
        self._attempts.clear()
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

    async def abandon(self) -> None:
        """The job has not ended, and this master does not lead it any more: to a client that is no end of the rows."""
        async with self._changed:
            self._abandoned = not self._closed
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
