"""CollectBuffer: rows of one collect operator on their way from its subtasks to the client of execute_and_collect.

Owner: the JobMaster's loop. Holds the rows that the client has not confirmed, and returns them again on
request. The operator keeps the same rows until it hears of the confirmation, so losing this buffer loses no
row. Bounded: a push waits while the client is behind, which blocks the operator. Tells a subtask that has
sent its last rows when it may end. Must not look into the rows.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.errors import EndpointStoppedError
from yarrow.runtime.rpc.messages import COLLECT_START, CollectConfirmation, CollectPosition, CollectRows

#: Most payload bytes of one answer, unless a single message is longer: answers have a size limit.
_FETCH_BYTES = 4 << 20
#: Most payload bytes that wait for the client, beyond one message of each subtask; operators keep as much in
#: their state.
_MAX_BYTES = 2 << 20


class _Attempt:
    """The present attempt of one subtask."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Sequence number of the last message; a message that is sent twice counts once.
        self.sequence = -1
        #: Positions that the client has confirmed, by stream.
        self.confirmed: dict[str, int] = {}
        #: Number of the attempt's messages that the client has not confirmed.
        self.waiting = 0
        #: Streams whose last rows are in no completed checkpoint.
        self.uncovered: set[str] = set()
        #: The attempt has sent its last rows.
        self.ended = False
        #: The subtask starts again; later messages of this attempt are dropped.
        self.is_over = False


class CollectBuffer:
    """Rows of all subtasks in order of arrival, which keeps the order of each subtask."""

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
        """`exactly_once`: the client holds rows back until a checkpoint covers them, and hears of each attempt.

        `checkpoint_id`: the checkpoint from which all tasks begin, -1 = none.
        """
        self._job_id = job_id
        self._collect_id = collect_id
        self._version = version
        self._open = subtasks
        self._max_rows = max_rows
        #: Messages that the client has not confirmed, numbered consecutively.
        self._waiting: deque[CollectRows] = deque()
        self._last_number = -1
        self._rows = 0
        self._bytes = 0
        #: The present attempt of each subtask; late messages of former attempts do not count.
        self._attempts: dict[int, _Attempt] = {}
        #: The job only waits for its client.
        self._released = False
        #: Number of the first attempts at the present parallelism.
        self._oldest_attempt = 0
        self._exactly_once = exactly_once
        #: The job has ended.
        self._closed = False
        #: The job continues under another master.
        self._abandoned = False
        self._complete = False
        self._changed = asyncio.Condition()
        self._begin_anew(checkpoint_id)

    async def push(self, rows: CollectRows) -> CollectConfirmation:
        """Takes rows and returns, once there is room for more, the confirmed position.

        After the end of the job it returns at once.
        """
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
        """Returns when a subtask that has sent its last rows may end.

        Checkpoints after its end do not hold these rows.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self.may_end(rows))
        return CollectConfirmation()

    def may_end(self, rows: CollectRows) -> bool:
        """Whether the attempt may end without losing rows.

        Either the client has the attempt's rows and knows that a checkpoint covers them, or the job only
        waits for its client.
        """
        if self._released or self._closed:
            return True
        attempt = self._attempt(rows)
        return attempt is None or (attempt.ended and not attempt.waiting and not attempt.uncovered)

    def release(self) -> None:
        """Lets the job end: it only waits for its client, and the last rows stay in this buffer.

        Call `wake` afterwards.
        """
        self._released = True

    async def wake(self) -> None:
        """Wakes all waiting calls, so that they look at the new state."""
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
        """Prepares for the rows of a new attempt; drops waiting rows of former attempts.

        The dropped rows are in the state of the new attempt or are sent again. Otherwise a job that fails
        repeatedly would fill this buffer while no client fetches.
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
        """The messages from `position` on, at least one, with about `max_rows` rows; waits until there are some.

        The call confirms the messages before `position`; a position of another buffer confirms nothing.

        After the job has ended, every call returns a message without rows and with `last` set. Before that
        end a subtask that had sent all its rows may still restart. Raises EndpointStoppedError if the job
        continues under another master, which the client should ask.
        """
        async with self._changed:
            self._confirm(position)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: bool(self._waiting) or self._closed or self._abandoned)
            if self._abandoned:
                raise EndpointStoppedError(
                    f"the job {self._job_id} goes on under another master: fetch its rows from that master"
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
            # Another attempt may send other rows after the state with which it began.
            if attempt is None or rows.attempt_number != attempt.number:
                continue
            attempt.waiting -= 1
            if rows.row_count:
                attempt.confirmed[rows.stream] = rows.first + rows.row_count

    def restarts(self, subtask: int) -> None:
        """Notes that the subtask restarts: its rows have not ended, and those since its checkpoint are sent again."""
        self._released = False
        attempt = self._attempts.get(subtask)
        if attempt is not None:
            attempt.is_over = True
            if attempt.ended:
                attempt.ended = False
                self._open += 1

    def replaced(self, subtasks: int, attempt_number: int, checkpoint_id: int) -> None:
        """Notes that the operator continues with another number of subtasks.

        All subtasks begin anew from that checkpoint, with attempts of that number.
        """
        self._released = False
        self._attempts.clear()
        self._open = subtasks
        self._oldest_attempt = attempt_number
        self._begin_anew(checkpoint_id)

    def _begin_anew(self, checkpoint_id: int) -> None:
        """Tells the client to drop what it holds of streams that the checkpoint does not contain."""
        if self._exactly_once:
            self._put(msgspec.structs.replace(self._no_rows(), restored=checkpoint_id))

    async def close(self, complete: bool) -> None:
        """Takes no more rows, since the job has ended; the client can still fetch the rest.

        `complete`: the job has FINISHED.
        """
        async with self._changed:
            if not self._closed:
                self._closed, self._complete = True, complete
            self._open = 0
            self._changed.notify_all()

    async def abandon(self) -> None:
        """Ends fetches because this master does not lead the job any more.

        The client must not take this for the end of the rows.
        """
        async with self._changed:
            self._abandoned = not self._closed
            self._changed.notify_all()

    def _end(self) -> CollectRows:
        return msgspec.structs.replace(self._no_rows(), last=True, complete=self._complete)

    def _no_rows(self) -> CollectRows:
        """A message of the JobMaster itself."""
        return CollectRows(
            job_id=self._job_id,
            collect_id=self._collect_id,
            subtask=-1,
            sequence=-1,
            payload=b"",
            row_count=0,
        )
