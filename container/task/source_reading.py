"""SourceReading: polls the source at the head of a chain, and runs its records chunk by chunk.

Owner: the task thread. A poll may give more rows than a chunk has, and the others wait here. A cut either
runs them before its barrier, or leaves them to the source's state. A source without records is polled again
only when its time has come or the task was woken. It must not know splits. The task, not this class, looks at
credit before a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from yarrow.container.chain.batch_flow import never
from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.operators.sources.source_head import SourceHead
from yarrow.container.sizing.slice_sizer import MIN_POLL_ROWS, PollSizer, SliceSizer
from yarrow.container.task.latency import LatencyTracker
from yarrow.container.task.task_life import TaskLife, TaskStage
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.container.task.task_slices import TaskSlices
from yarrow.container.task.waiting_records import WaitingRecords, copy_with, part_of
from yarrow.datastream.connectors.base import NothingAvailable, SourceRecords
from yarrow.runtime.data.elements import ArrowBatch, is_record_batch, stamps_column

#: More rows than any source gives at once.
_ALL = 1 << 62
#: Stands for the records of a poll once their rows wait elsewhere.
_MORE = SourceRecords(())
#: Polls that give few rows are gathered for this time, in seconds: a chunk of few rows costs much each.
_GATHERING_SECONDS = 0.001


class SourceReading:
    """Reads the source of one task."""

    def __init__(
        self,
        life: TaskLife,
        chain: OperatorChain,
        outputs: TaskOutputs,
        slices: TaskSlices,
        latency: LatencyTracker,
        *,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called when the source has ended."""
        self._life = life
        self._chain = chain
        #: A task without a source reads nothing.
        self._source = cast(SourceHead, chain.source)
        #: Names the source in exceptions.
        self._attributed = chain.attributed(0)
        self._outputs = outputs
        self._slices = slices
        self._latency = latency
        self._ended = ended
        #: Something for which the source may have waited has changed; set by any thread.
        self.woken = True
        #: When that was (perf_counter); infinity = before the first step.
        self._woken_at = float("inf")
        #: When the source is to be polled next (perf_counter), as far as the last step knew.
        self._due_at = float("inf")
        #: Time of the next poll (perf_counter); infinity = when woken; None = at once.
        self.poll_at: float | None = None
        #: Processed rows of the source.
        self.records_in = 0
        #: Number of rows of a poll.
        self._polls = PollSizer(slices.length, blocking=chain.blocking)
        #: Number of rows of a record batch that run at once.
        self._batches = SliceSizer.of_batches(slices.length)
        #: The source's last records were a record batch.
        self._in_columns = False
        self._waiting = WaitingRecords()
        #: The present chunk as the source gave it, the number of its processed rows, and its remaining parts.
        self._chunk = SourceRecords(())
        self._run = 0
        self._parts: Iterator[SourceRecords] | None = None
        #: The rest of the present part after a mail has cut it: (rows, timestamps).
        self._part: tuple[Sequence[Any], Sequence[int | None] | None] | None = None
        #: Rows of a record batch on its way through the chain, and the seconds that it took so far.
        self._measured = 0, 0.0
        #: End of the present slice (perf_counter).
        self._deadline = 0.0
        #: The source knows that it is not polled.
        self._told_to_wait = False
        #: The source has said that no rows follow.
        self._at_end = False
        #: A poll has failed with this error while rows waited, which run before it is raised.
        self._failure: BaseException | None = None

    @property
    def _sizer(self) -> SliceSizer:
        """The sizer for the kind of rows that the source gave last."""
        return self._batches if self._in_columns else self._slices.sizer

    @property
    def _has_rows(self) -> bool:
        return self._parts is not None or self._chain.flowing or bool(self._waiting)

    # ------------------------------------------------------------------ slices

    def wake(self) -> None:
        """Takes note that something for which the source may have waited has changed. Any thread."""
        if not self.woken:
            self._woken_at = self._slices.seconds()
            self.woken = True

    def task_is_back(self, now: float) -> None:
        """Tells the source at `now` (perf_counter) how long it was due, while other tasks had the thread.

        A slow consumer on the same thread makes no split idle by that.
        """
        due = min(self._due_at, self._woken_at) if self.woken else self._due_at
        if now > due:
            self._source.not_read_for(round(1000 * (now - due)))
        self._due_at = now

    def recover(self) -> None:
        """Begins with the restored rows that the source had read and the chain had not run."""
        for records in self._source.take_carried():
            self._in_columns = self._in_columns or is_record_batch(records.rows)
            self._waiting.put(records)
        self.tell_source()

    def tell_source(self) -> None:
        """Tells the source whether it is polled.

        It is not while rows wait, credit is missing, a sink of the chain waits for permits, or the task is suspended.
        """
        waits = (
            self._has_rows
            or self._slices.blocked
            or self._life.stage is TaskStage.SUSPENDED
            or self._chain.permitted_rows == 0
        )
        if self._told_to_wait is not waits:
            self._told_to_wait = waits
            self._source.rows_wait(waits)

    def take(self, now: float, deadline: float) -> bool:
        """Reads from `now` to `deadline` (perf_counter), until a mail waits or no record is left; True if it worked."""
        slices, worked = self._slices, False
        marker = self._latency.due()
        if marker is not None:
            self._outputs.forward_marker(marker)
        if not self._has_rows and not self.woken and self.poll_at is not None and now < self.poll_at:
            self._due_at = self.poll_at
            return False
        if self._wait_for_permits():
            return False
        self.woken = False
        self.poll_at = None
        self._deadline = deadline
        found: SourceRecords | NothingAvailable | None = _MORE
        while True:
            if not self._has_rows:
                if isinstance(found, SourceRecords):
                    found = self._gather()
                    if isinstance(found, SourceRecords):
                        # The rows belong to `_waiting` alone: held here, they would live through the next poll, which
                        # would then make its rows in memory that is in no cache.
                        found = _MORE
                if not self._has_rows:
                    break
            worked = True
            if not slices.mailbox:
                self._run_chunk()
            if slices.over(deadline):
                self.wake()
                self._due_at = slices.seconds()
                return True
            if self._wait_for_permits():
                return True
        if found is None:
            self._chain.time.end()
            self._ended()
            return True
        assert isinstance(found, NothingAvailable), "records that were gathered wait"
        if found.wait_seconds is not None:
            self.poll_at = slices.seconds() + found.wait_seconds
        else:
            self.poll_at = float("inf")
        self._due_at = self.poll_at
        return worked

    def _wait_for_permits(self) -> bool:
        """Whether a sink of the chain waits for permits of its rate limit. It makes the task look again in time."""
        if self._chain.permitted_rows != 0:
            if self._told_to_wait and not self._has_rows:
                self.tell_source()
            return False
        # Timers, mails and barriers go on meanwhile.
        self.poll_at = None
        self.wake()
        self.tell_source()
        return True

    def _gather(self) -> SourceRecords | NothingAvailable | None:
        """Polls until there are rows for a chunk, and gives the answer to the last poll."""
        if self._failure is not None:
            raise self._failure
        if self._at_end:
            return None
        source, end, rows = self._source, self._slices.seconds() + _GATHERING_SECONDS, 0
        while isinstance(found := self._poll(), SourceRecords):
            rows += len(found.rows)
            if rows >= MIN_POLL_ROWS or self._in_columns or self._chain.blocking or self._slices.over(end):
                break
            if not (source.reads_ahead and source.gives_fixed_rows):
                break
        self._at_end = found is None
        return found

    def _poll(self) -> SourceRecords | NothingAvailable | None:
        source, sizer, seconds = self._source, self._sizer, self._slices.seconds
        asked = self._polls.rows if source.reads_ahead else sizer.rows
        if self._in_columns:
            asked = max(asked, min(sizer.rows, self._polls.batch_rows))
        started = seconds()
        try:
            with self._attributed:
                found = source.poll(asked)
        except Exception as error:
            if not self._waiting:
                raise
            self._failure = error
            return NothingAvailable(0.0)
        if isinstance(found, SourceRecords):
            spent = seconds() - started
            if len(found.rows):
                self._in_columns = is_record_batch(found.rows)
            self._polls.measured(len(found.rows), spent, self._sizer)
            self._waiting.put(found)
        else:
            assert found is None or isinstance(found, NothingAvailable)
        return found

    def _run_chunk(self) -> None:
        slices, source, chain = self._slices, self._source, self._chain
        started, sizer = slices.seconds(), self._sizer
        if chain.flowing:
            chain.flow_on(self._is_over)
        else:
            self._measured = 0, 0.0
        rows, seconds = self._measured
        if not chain.flowing:
            most = sizer.rows if source.reads_ahead else _ALL
            permitted = chain.permitted_rows if source.reads_ahead else None
            if permitted is not None:
                most = max(1, min(most, permitted))
            rows += self._run_rows(most, self._is_over)
        self._measured = rows, seconds + slices.seconds() - started
        if not chain.flowing:
            sizer.measured(*self._measured)
        self.tell_source()

    def _is_over(self) -> bool:
        return self._slices.over(self._deadline)

    def _run_rows(self, max_rows: int, is_over: Callable[[], bool]) -> int:
        """Runs the present chunk, or the next one, to its end or its cut; returns the number of processed rows.

        A record batch may still be on its way through the chain then.
        """
        source, chain, chunk = self._source, self._chain, self._slices.chunk
        if self._parts is None:
            self._chunk, self._run = self._waiting.take(max_rows), 0
            # The source replaces the given timestamps by its own.
            self._parts = iter(source.timed(copy_with(self._chunk, self._chunk.rows, self._chunk.timestamps)))
        before = self._run
        while True:
            if self._part is None:
                # The source sends a watermark between two parts.
                with self._attributed:
                    part = next(self._parts, None)
                if part is None:
                    done = self._run - before
                    self._chunk, self._run, self._parts = SourceRecords(()), 0, None
                    return done
                chain.run_source_side(part.side)
                if part.side is not None:
                    # A cut before the first row must not include the side outputs once more.
                    self._chunk = replace(self._chunk, side=None)
                rows, stamps = part.rows, part.timestamps
            else:
                (rows, stamps), self._part = self._part, None
            if not len(rows):
                # It only told of ended splits, or of rows that nobody can read.
                continue
            if isinstance(rows, Sequence):
                chain.run_source_rows(chunk.begin(rows), stamps)
                left = chunk.end()
            else:
                chain.run_source_batch(ArrowBatch(rows, stamps_column(stamps)), is_over)
                left = 0
            done = len(rows) - left
            self._run += done
            self.records_in += done
            source.records_in += done
            if left:
                self._part = (list(rows)[done:], None if stamps is None else stamps[done:])
            if left or chain.flowing:
                return self._run - before

    # ------------------------------------------------------------------ cuts

    def before_cut(self, *, drains: bool) -> None:
        """Runs the waiting rows before the barrier, or leaves them to the source's state if that takes too long.

        `drains`: the job will not continue after the cut.
        """
        source = self._source
        if self._has_rows and (drains or self._is_soon_run() or not source.carry(self.rest())):
            self._run_out()
        with self._attributed:
            for records in source.before_cut():
                self._waiting.put(records)
                self._run_out()
        self.tell_source()

    def _is_soon_run(self) -> bool:
        """Whether all waiting rows may run now and will fit into a slice."""
        cost = self._sizer.cost
        rows = self._waiting.rows + len(self._chunk.rows) - self._run
        permitted = self._chain.permitted_rows
        return (
            (permitted is None or rows <= permitted)
            and (not rows or cost.row is not None)
            and cost.fixed + (cost.row or 0.0) * rows <= self._slices.length
            and self._outputs.have_credit()
            and self._chain.is_available
        )

    def _run_out(self) -> None:
        self._chain.flow_out()
        while self._has_rows:
            self._run_rows(_ALL, never)

    def rest(self) -> list[SourceRecords]:
        """The records that were read and not run, as the source gave them, in order."""
        at_hand = [] if self._parts is None else [part_of(self._chunk, self._run)]
        return at_hand + self._waiting.rest()

    # ------------------------------------------------------------------ waiting

    def seconds_until_due(self, now: float) -> list[float]:
        """Seconds until the next poll and until the next latency marker, as far as they are known."""
        due: list[float] = []
        if self.poll_at is not None and self.poll_at != float("inf"):
            due.append(self.poll_at - now)
        marker = self._latency.seconds_until_due() if self._chain.source is not None else None
        if marker is not None:
            due.append(marker)
        return due
