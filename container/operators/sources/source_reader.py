"""ReadingSource: a task's head that polls the SourceReader of a Source.

Owner: the task thread. The enumerator lives in source_coordinator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, cast

from yarrow.common.values.kept_schema import KEPT_SCHEMA
from yarrow.common.values.rate_limit import RateLimit
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import OperatorContext, TaskEnvironment, declared_type
from yarrow.container.operators.event_time import HandedWatermark
from yarrow.container.operators.registry import runs
from yarrow.container.operators.sources.carried_records import (
    CARRIED,
    can_be_carried,
    decode_carried,
    encode_carried,
)
from yarrow.container.operators.sources.kept_schema import with_kept_schemas
from yarrow.container.operators.sources.source_alignment import ALIGNMENT_BOUND, SourceAlignment
from yarrow.container.operators.sources.source_head import SourceHead
from yarrow.container.operators.sources.source_metrics import register_reader
from yarrow.container.operators.subtask_context import SubtaskContext
from yarrow.container.sources.source_events import (
    UNNUMBERED,
    Message,
    Progress,
    ReaderInbox,
    encode_to_coordinator,
)
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import checkpointing
from yarrow.runtime.data.elements import is_record_batch
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.rpc.messages import COORDINATOR_SUBTASK
from yarrow.runtime.snapshot.handles import OperatorStateMode

if TYPE_CHECKING:
    from yarrow.container.operators.error_bounds import ErrorBounds
    from yarrow.container.operators.limited_rate import LimitedRate

#: The most rows that an aligned source reads between two looks at its bound.
ALIGNED_POLL_ROWS = 256
#: Names of operator states; part of the format of savepoints.
SPLITS = "source-splits"
#: The id of the only snapshot of a job that reads history.
HISTORY_CHECKPOINT = 1
PROGRESS = "source-progress"
#: The hand-over watermark of each subtask that has read a history: the stream begins with the least of them.
HANDED_WATERMARK = "source-watermark"


class ReaderContext(SubtaskContext):
    """The SourceReaderContext of one subtask."""

    def __init__(self, context: OperatorContext, inbox: ReaderInbox) -> None:
        super().__init__(context)
        self._context = context
        self._inbox = inbox
        self._numbers = itertools.count()

    def request_split(self) -> None:
        """Asks the enumerator for a split."""
        self.send("request")

    def send_event_to_enumerator(self, event: Any) -> None:
        """Sends a picklable event."""
        self.send("event", event)

    def send(self, *message: Any) -> None:
        """Sends a message to the coordinator."""
        self._environment.send_operator_event(
            self._context.descriptor.id,
            COORDINATOR_SUBTASK,
            self._environment.subtask,
            encode_to_coordinator(self._inbox.taken, next(self._numbers), message),
        )

    def wake_up(self) -> None:
        """Makes the task poll soon. Any thread."""
        self._environment.wake()


@runs(SourceOperator)
class ReadingSource(SourceHead):
    """Polls the reader of a Source.

    Its state has three parts: the splits with their positions, the number of the enumerator's last event, and
    unprocessed records. That of a history has the watermark with which the stream begins too. A source that has asked
    for a schema keeps that as well.
    """

    reads_ahead = True
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {
        SPLITS: OperatorStateMode.SPLIT,
        PROGRESS: OperatorStateMode.UNION,
        CARRIED: OperatorStateMode.UNION,
        HANDED_WATERMARK: OperatorStateMode.UNION,
        ALIGNMENT_BOUND: OperatorStateMode.UNION,
        KEPT_SCHEMA: OperatorStateMode.UNION,
    }

    def __init__(self, name: str, spec: SourceOperator) -> None:
        super().__init__(name)
        self._blob = spec.source
        self._strategy_blob = spec.watermark_strategy
        self._wanted = spec.wanted
        #: More may come behind the history that it reads.
        self.goes_on = spec.history is not None
        self._reader: SourceReader[Any, SourceSplit] | None = None
        self._coordinator_complete = False
        self._no_more_splits = False
        #: At its end it waits for the first checkpoint after that, because the reader commits by
        #: notifications.
        self._commits = False
        self._ended = False
        #: It was skipped, and the enumerator beside it still runs.
        self._serves = False
        self._last_cut: int | None = None
        self._errors = 0
        #: None = the program sets no bound.
        self._error_bounds: ErrorBounds | None = None
        self._gives_fixed_rows = False
        self._source: Source[Any, SourceSplit]
        #: True when `hand_over` has set the state: the reader is not asked.
        self._handed_over = False
        #: None = it waits for no other source.
        self._alignment: SourceAlignment | None = None
        #: The chain has rows to run first, or takes none.
        self._chain_waits = False
        #: The reader waits for permits of its rate limit.
        self._is_limited = False
        #: None = the source has never had a limit.
        self._rate: LimitedRate | None = None
        #: The reader knows which splits cannot be reached, and there was one at the last poll.
        self._tells_outages = False
        self._has_outage = False
        #: The last records were a record batch.
        self._in_columns = False
        #: Records for the present cut, besides the splits; at first the restored ones.
        self._carries: list[SourceRecords] = []
        self._carried: list[SourceRecords] = []

    def strategy(self) -> WatermarkStrategy | None:
        blob = self._strategy_blob
        return None if blob is None else cast(WatermarkStrategy, load_function(blob, self.name))

    def open(self) -> None:
        environment = self.context.environment
        declared = declared_type(self.context.descriptor.output_type)
        self._gives_fixed_rows = declared is not None and declared.is_immutable
        loaded: Source[Any, SourceSplit] = load_function(self._blob, self.name)
        source = with_kept_schemas(loaded, self.name, self.context)
        if self._wanted:
            source = source.narrowed(self._wanted)
        self._source = source
        self.emits_new_rows = source.makes_new_rows
        self.emits_named_rows = source.makes_named_rows
        if source.errors.is_bounded:
            # Imported late: most programs set no bound.
            from yarrow.container.operators.error_bounds import ErrorBounds

            self._error_bounds = ErrorBounds(f"source '{self.name}' could not read", source.errors)
        state = self.context.operator_state
        self._splits_state = state.get_list_state(ListStateDescriptor(SPLITS))
        self._progress_state = state.get_union_list_state(ListStateDescriptor(PROGRESS))
        self._carried_state = state.get_union_list_state(ListStateDescriptor(CARRIED))
        self._handed = HandedWatermark(self.context, HANDED_WATERMARK)
        restored: list[SourceSplit] = list(self._splits_state.get())
        progress = [tuple(entry) for entry in self._progress_state.get()]
        own = (environment.subtask, environment.parallelism)
        ids = {split.split_id for split in restored}
        self._carried = decode_carried(list(self._carried_state.get()), *own, ids)
        self._carried_state.clear()
        mine = next((entry for entry in progress if entry[:2] == own), None)
        self._inbox = ReaderInbox(environment.restored.checkpoint_id, -1 if mine is None else mine[2])
        context = self._reader_context = ReaderContext(self.context, self._inbox)
        if self.context.descriptor.spec.rate_limit.limits_something:
            self._limited()
        self.context.metric_group.gauge("numRecordsInErrors", lambda: self._errors)
        self._reader = source.create_reader(context)
        self._tells_outages = type(self._reader).unreachable_splits is not SourceReader.unreachable_splits
        self._align(self._reader)
        register_reader(self.context.metric_group, self._reader)
        self._commits = (
            type(self._reader).notify_checkpoint_complete is not SourceReader.notify_checkpoint_complete
            and environment.settings.get(checkpointing.INTERVAL) is not None
            and environment.settings.get(checkpointing.AFTER_TASKS_FINISH)
        )
        context.send("register", "", progress, environment.restored.checkpoint_id)
        if restored:
            self._add_splits(restored)
        if mine is not None and mine[3]:
            self._take([("no_more",)])
        self._reader.start()

    def _align(self, reader: SourceReader[Any, SourceSplit]) -> None:
        rule, report = self.alignment_rule, self.context.environment.report_watermark
        if rule is not None and report is not None:
            self._alignment = SourceAlignment(self.name, rule, self.context, self._time, report)
            self._alignment.read_by(reader)

    @property
    def gives_fixed_rows(self) -> bool:
        # The bound is looked at before each poll, so the polls of an aligned source are not gathered.
        return self._gives_fixed_rows and self._alignment is None

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        assert self._reader is not None
        if self._alignment is not None:
            if not self._alignment.may_poll():
                return NothingAvailable()
            if not (self._source.blocking or self._in_columns):
                # A source runs ahead of its bound by the rows of a poll.
                max_rows = min(max_rows, ALIGNED_POLL_ROWS)
        rate = self._rate
        if rate is None or not rate.limits_something:
            if self._is_limited:
                self._limit(False)
            return self._taken(self._reader.poll(max_rows))
        permitted = rate.permitted_rows
        self._limit(permitted == 0)
        if permitted == 0:
            seconds = rate.seconds_to_wait
            return NothingAvailable(seconds if seconds < inf else None)
        most = max_rows if permitted is None else min(max_rows, permitted)
        return self._poll_limited(rate, self._reader, most)

    def _limited(self) -> LimitedRate:
        """The rate of this subtask, from its first limit on."""
        if self._rate is None:
            # Imported late: most jobs have no limit.
            from yarrow.container.operators.limited_rate import LimitedRate

            self._rate = LimitedRate(self.context)
        return self._rate

    def _poll_limited(
        self, rate: LimitedRate, reader: SourceReader[Any, SourceSplit], max_rows: int
    ) -> SourceRecords | NothingAvailable | None:
        counts = rate.counts_bytes
        before = reader.bytes_read() if counts else 0
        found = self._taken(reader.poll(max_rows))
        if isinstance(found, SourceRecords):
            # A record that cannot be read was read, too. Of a block that was left out, nobody has read the rows.
            rate.use(
                len(found.rows) + min(found.num_errors, max_rows),
                reader.bytes_read() - before if counts else 0,
            )
        return found

    def _limit(self, limited: bool) -> None:
        """Notes whether the rate limit holds the reader back: no split becomes idle by that."""
        if limited is not self._is_limited:
            self._is_limited = limited
            self._time.rows_wait(self._chain_waits or limited)

    def rows_wait(self, waiting: bool) -> None:
        self._chain_waits = waiting
        self._time.rows_wait(waiting or self._is_limited)

    def take_share(self, share: RateLimit) -> None:
        if self._reader is not None:
            self._limited().take_share(share)

    def _taken(
        self, records: SourceRecords | NothingAvailable | None
    ) -> SourceRecords | NothingAvailable | None:
        """Counts what a poll has given, and looks at its bounds."""
        assert self._reader is not None
        if self._tells_outages:
            self._note_outages(self._reader)
        if isinstance(records, SourceRecords):
            number = len(records.rows)
            if number:
                self._in_columns = is_record_batch(records.rows)
            self._errors += records.num_errors
            if self._error_bounds is not None:
                self._error_bounds.count(
                    number, records.num_errors, self.context.environment.clock.monotonic()
                )
            if records.side:
                records.side = self._addressed(records.side)
            self.measured.fetched()
        elif records is not None:
            self.measured.nothing_there()
        elif self._error_bounds is not None:
            self._error_bounds.end()
        return records

    def _addressed(self, side: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Values for side outputs. Dead letters bear their time, and the uid of this source or of whom they name."""
        descriptor = self.context.descriptor
        uid = descriptor.uid or descriptor.id
        now = self.context.environment.clock.epoch_ms()
        return [
            (tag, _addressed(value, uid, now) if isinstance(value, DeadLetter) else value)
            for tag, value in side
        ]

    def _note_outages(self, reader: SourceReader[Any, SourceSplit]) -> None:
        unreachable = reader.unreachable_splits()
        if unreachable or self._has_outage:
            self._has_outage = bool(unreachable)
            self._time.unreachable(unreachable)

    def timed(self, records: SourceRecords) -> Iterator[SourceRecords]:
        yield from super().timed(records)
        if self._alignment is not None:
            self._alignment.rows_ran()

    def take_bound(self, bound_ms: int) -> None:
        if self._alignment is not None:
            self._alignment.take_bound(bound_ms)

    def next_timer(self) -> int | None:
        emission = super().next_timer()
        report = None if self._alignment is None else self._alignment.next_report()
        look = None if self._rate is None else self._rate.seconds_to_look
        if look is not None:
            # A millisecond later, since the clock of timers is coarser than that of permits.
            look = self.context.environment.clock.epoch_ms() + 1 + int(1000 * look)
        return min((time for time in (emission, report, look) if time is not None), default=None)

    def fire_timers(self, now: int, deadline: float) -> Iterator[tuple[Any, int | None]]:
        yield from super().fire_timers(now, deadline)
        if self._alignment is not None:
            self._alignment.report_if_due(now)
        if self._rate is not None:
            self._rate.look()

    def begin_time(self) -> None:
        if self._alignment is not None:
            self._alignment.begin()
        # The timers of a history have fired up to there: no row of this task comes before that time.
        self.watermarks_to.emit_watermark(self._handed.first)

    def take_carried(self) -> list[SourceRecords]:
        carried, self._carried = self._carried, []
        # A split that had ended counts until its records have run: other splits must not advance past them.
        self._time.add_splits([records.split_id for records in carried if records.split_id is not None])
        return carried

    def carry(self, records: list[SourceRecords]) -> bool:
        # Another program may go on from the snapshot, and want the columns that these records lack.
        if self._wanted.columns is not None or not can_be_carried(records, self.name):
            return False
        self._carries = records
        return True

    def handle_event(self, payload: bytes) -> None:
        if self._reader is not None:
            self._take(self._inbox.receive(payload))
        elif self._serves:
            self._coordinator_complete |= ("complete",) in ReaderInbox(UNNUMBERED, UNNUMBERED).receive(
                payload
            )

    def _take(self, messages: Iterable[Message]) -> None:
        reader = self._reader
        assert reader is not None
        for message in messages:
            if message[0] == "complete":
                self._coordinator_complete = True
            elif message[0] == "splits":
                self._add_splits(message[1])
            elif message[0] == "no_more":
                self._no_more_splits = True
                reader.notify_no_more_splits()
            elif message[0] == "event":
                reader.handle_source_event(message[1])

    def _add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Adds assigned or restored splits, which count for the watermark from now on."""
        assert self._reader is not None
        self._time.add_splits([split.split_id for split in splits])
        self._reader.add_splits(splits)
        if self._alignment is not None:
            self._alignment.splits_added()

    # The history of a stream: splits are read one by one, each by a reader of its own.

    def begin_alone(self, split: SourceSplit) -> None:
        """Goes on with a reader that has this split alone."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._source.create_reader(self._reader_context)
        self._reader.add_splits([split])
        self._reader.notify_no_more_splits()
        self._reader.start()

    def positions(self) -> list[SourceSplit]:
        """The splits of the present reader that go on, each at the position of the next record."""
        assert self._reader is not None
        return self._reader.snapshot_state(HISTORY_CHECKPOINT)

    def hand_over(
        self, splits: Sequence[SourceSplit], records: Sequence[SourceRecords], watermark: int | None
    ) -> None:
        """Sets the state from which the stream goes on: splits, and records that lie before their positions.

        `watermark`: that at the end of history; None = nothing holds it back here.
        """
        environment = self.context.environment
        ids = {split.split_id for split in splits}
        self._splits_state.update(list(splits))
        self._carried_state.update(encode_carried(records, environment.subtask, environment.parallelism, ids))
        self._progress_state.clear()
        self._handed.leave(watermark)
        self._handed_over = True

    def snapshot_state(self, checkpoint_id: int) -> None:
        if self._handed_over:
            return
        assert self._reader is not None
        environment = self.context.environment
        splits = self._reader.snapshot_state(checkpoint_id)
        self._splits_state.update(splits)
        ids = {split.split_id for split in splits}
        self._carried_state.update(
            encode_carried(self._carries, environment.subtask, environment.parallelism, ids)
        )
        progress: Progress = (
            environment.subtask, environment.parallelism, self._inbox.taken, self._no_more_splits,
        )  # fmt: skip
        self._progress_state.update([progress])
        if self._alignment is not None:
            self._alignment.snapshot()
        if self._ended and self._last_cut is None:
            self._last_cut = checkpoint_id

    def after_cut(self, checkpoint_id: int) -> None:
        self._carries = []
        if self._reader is not None:
            self._reader_context.send("cut", checkpoint_id)
            self._take(self._inbox.cut(checkpoint_id))
            self.context.environment.wake()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._reader is not None
        self._reader.notify_checkpoint_complete(checkpoint_id)
        if self._last_cut is not None and checkpoint_id >= self._last_cut:
            self._commits = False

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._take(self._inbox.give_up(checkpoint_id))
        self.context.environment.wake()

    def skipped(
        self, environment: TaskEnvironment, operator_id: OperatorID, *, beside_enumerator: bool
    ) -> None:
        self._serves = beside_enumerator
        # The coordinator lives with subtask 0, which ends last: without it there is nobody to tell.
        if environment.subtask != 0 or beside_enumerator:
            payload = encode_to_coordinator(UNNUMBERED, 0, ("finished",))
            environment.send_operator_event(operator_id, COORDINATOR_SUBTASK, environment.subtask, payload)

    @property
    def awaits_readers(self) -> bool:
        return self._serves and not self._coordinator_complete

    def finish(self) -> None:
        self._ended = True
        if self._rate is not None:
            self._rate.ended()
        if self._alignment is not None:
            self._alignment.end()
        self._reader_context.send("finished")

    def stopped(self) -> None:
        super().stopped()
        self._coordinator_complete = True
        self._commits = False

    @property
    def is_drained(self) -> bool:
        # The coordinator lives with subtask 0 and must outlive the other readers.
        return not self._commits and (self.context.environment.subtask != 0 or self._coordinator_complete)

    def close(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()


def _addressed(letter: DeadLetter, uid: str, now: int) -> DeadLetter:
    failed_at = now if letter.failed_at is None else letter.failed_at
    return letter._replace(operator=letter.operator or uid, failed_at=failed_at)
