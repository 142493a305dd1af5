"""The source and sink interfaces: splits, enumerator, reader and offsets; writer, committables and committer.

Layer 1 (vocabulary): what users subclass and the engine calls. It follows FLIP-27 (sources) and FLIP-143/191
(sinks) in Python form, with batches as the unit: readers return, and writers take, many rows a call. Readers
and writers are called on their task's thread only. An enumerator is called on its own thread, in the worker
of the source's first subtask, one call at a time.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from yarrow.common.values.delivery import DeliveryGuarantee as DeliveryGuarantee
from yarrow.common.values.delivery import KeptBy as KeptBy
from yarrow.common.values.delivery import Replay as Replay
from yarrow.common.values.delivery import SinkDelivery
from yarrow.common.values.error_handling import FAILING, ErrorHandling

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.typeinfo import TypeInformation
    from yarrow.common.values.conditions import WantedColumns
    from yarrow.common.values.kept_schema import KeptSchema
    from yarrow.common.watermark_strategy import WatermarkStrategy
    from yarrow.datastream.connectors.dead_letters import DeadLetter

T = TypeVar("T")
SplitT = TypeVar("SplitT", bound="SourceSplit")
SplitT_contra = TypeVar("SplitT_contra", bound="SourceSplit", contravariant=True)


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "bounded"
    CONTINUOUS_UNBOUNDED = "continuous_unbounded"


class SourceSplit(ABC):
    """A part of a source that one reader reads, with the position reached in it.

    Splits are plain picklable values: they travel from enumerator to reader, and into checkpoints.
    """

    @property
    @abstractmethod
    def split_id(self) -> str:
        """Unique within the source, the same for all positions of the split."""


@dataclass(slots=True)
class SourceRecords:
    """The result of one `poll`: rows (any sequence, a range included) or one record batch, and their timestamps.

    `timestamps` (int64 ms UTC, None for a row without) is None or has the length of the rows. A reader may find
    only what it cannot read: then `rows` is empty and the other fields say so.
    """

    rows: Sequence[Any] | pa.RecordBatch
    timestamps: Sequence[int | None] | None = None
    split_id: str | None = None
    #: Values for side outputs: (id of the OutputTag, value), emitted before the rows; None = none.
    side: list[tuple[str, Any]] | None = None
    #: Records that could not be read and were skipped or sent to a side output: counted as numRecordsInErrors.
    num_errors: int = 0
    #: Ids of splits that have ended before these records: they hold back no watermark any more.
    finished_before: tuple[str, ...] = ()
    #: The reader knows that timestamps are None or int64, so the engine does not look at each.
    has_checked_timestamps: bool = False


@dataclass(slots=True, frozen=True)
class NothingAvailable:
    """`poll` found nothing: it is called again after `wait_seconds`, or earlier when `wake_up` was called."""

    wait_seconds: float | None = None


class SourceReaderContext(Protocol):
    """The engine as a source reader sees it."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def configuration(self) -> Mapping[str, str]:
        """The job's configuration."""
        ...

    def request_split(self) -> None:
        """Asks the enumerator for a split; the answer comes by `add_splits` or `notify_no_more_splits`."""
        ...

    def send_event_to_enumerator(self, event: Any) -> None:
        """Sends a picklable event."""
        ...

    def wake_up(self) -> None:
        """Any thread may call it: the reader is polled soon."""
        ...


class SourceReader(ABC, Generic[T, SplitT]):
    """Reads splits on the task's thread; must not block for long unless its source is declared `blocking`."""

    def start(self) -> None:
        """Called once before the first poll, and after restored splits were added.

        Readers without splits usually request one here.
        """
        return None

    @abstractmethod
    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return up to `max_rows` rows; None = the end: no split is left and none will come.

        When it returns, the positions that `snapshot_state` would give lie just behind the rows returned. What the
        chain has not run of them at a checkpoint is kept in it by the engine.

        `max_rows` is 256 or more, and always the most where the source is `blocking`: a poll may cost something by
        itself, a request for example. A reader whose rows cost much each returns fewer, so that its polls stay short.
        """

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Take splits that the enumerator has assigned, or that were restored."""

    def notify_no_more_splits(self) -> None:
        """Hear that the enumerator will assign no further split."""
        return None

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the splits held, each with its present position."""

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        """Stop reading the splits of the first ids, and read those of the second again.

        The alignment of watermarks calls it: a paused split is ahead of its group. `poll` gives no further rows of
        it until it is resumed, and those of other splits meanwhile. Where all splits are ahead, `poll` is not called
        at all, without a call of this method. A reader that cannot pause single splits leaves this method out.
        """
        raise TypeError(f"{type(self).__name__} cannot pause single splits: it has no pause_or_resume_splits")

    def unreachable_splits(self) -> Collection[str]:
        """Return the ids of splits whose place cannot be reached now, such as partitions of a broker that is down.

        Called after `poll`. Such a split does not become idle, though no rows of it come.
        """
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Hear that the checkpoint is complete: positions up to it may be committed outside."""
        return None

    def handle_source_event(self, event: Any) -> None:
        """Take an event that the enumerator has sent."""
        return None

    def pending_records(self) -> int | None:
        """Records of the reader's splits that it has not read yet: the metric pendingRecords. None = not known now.

        Called about once a second by a thread of the engine, beside `poll`: it looks and changes nothing.
        """
        return None

    def pending_bytes(self) -> int | None:
        """Return the bytes of the reader's splits that it has not read yet: the metric pendingBytes."""
        return None

    def own_metrics(self) -> Mapping[str, float]:
        """Return further metrics by their name below the operator, for example `KafkaSourceReader.commitsFailed`.

        Called about once a second by a thread of the engine, beside `poll`: it looks and changes nothing. A name that
        is left out has no value now.
        """
        return {}

    def bytes_read(self) -> int:
        """Return the bytes of all raw records of which `poll` has returned the rows, or of those since the first call.

        The reader of a source that declares `counts_bytes` must have this method. A rate limit in bytes asks it
        before and after each poll.
        """
        raise TypeError(f"{type(self).__name__} does not count bytes: it has no bytes_read")

    def close(self) -> None:
        """Releases what the reader holds; called once, also after a failure."""
        return None


class SplitEnumeratorContext(Protocol[SplitT_contra]):
    """The engine as a split enumerator sees it."""

    @property
    def parallelism(self) -> int: ...

    @property
    def registered_readers(self) -> Mapping[int, str]:
        """Subtask -> host name of readers that have started."""
        ...

    def assign_split(self, split: SplitT_contra, subtask: int) -> None: ...

    def signal_no_more_splits(self, subtask: int) -> None: ...

    def send_event_to_reader(self, subtask: int, event: Any) -> None: ...

    def call_later(self, seconds: float, action: Any) -> None:
        """Runs `action()` once after the delay, between other calls: for discovery at intervals."""
        ...


class SplitEnumerator(ABC, Generic[SplitT]):
    """Finds splits and assigns them to readers; runs once a job, apart from the readers."""

    def start(self) -> None:
        """Called once before anything else."""
        return None

    @abstractmethod
    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Answer the request of a reader: assign a split, or signal that there are no more, now or later."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask: int) -> None:
        """Take back the splits of a reader that failed before a checkpoint covered them."""

    def add_reader(self, subtask: int) -> None:
        """Hear that a reader has started."""
        return None

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> Any:
        """Return the state for `create_enumerator`: usually the splits not assigned yet; picklable."""

    def handle_source_event(self, subtask: int, event: Any) -> None:
        """Take an event that a reader has sent."""
        return None

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Hear that the checkpoint is complete."""
        return None

    def close(self) -> None:
        """Releases what the enumerator holds."""
        return None


class Source(ABC, Generic[T, SplitT]):
    """A source of records: picklable description that makes enumerator and readers."""

    #: True when `poll` may block: the source task then has a thread of its own.
    blocking: bool = False
    #: What the source gives again when the job has failed. A class or an instance may set another value.
    replay: Replay = Replay.EXACT_POSITIONS
    #: The treatment that readers give to a record that they cannot read, and how many such records may pass.
    errors: ErrorHandling = FAILING
    #: True where each row is a new object, all through, that readers neither keep nor change: no copy is needed.
    makes_new_rows: bool = False
    #: True where each record is a Row with field names of its own: the engine need not look for Rows without names.
    makes_named_rows: bool = False
    #: True when records may have fields that the schema of the program lacks: sinks are asked whether they take them.
    adds_columns: bool = False
    #: True when readers count the bytes of raw records by `bytes_read`: a rate limit in bytes is possible.
    counts_bytes: bool = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Read the older declaration `replayable`, a bool of the class, as `replay`."""
        super().__init_subclass__(**arguments)
        declared = vars(cls).get("replayable")
        if declared is not None and "replay" not in vars(cls):
            cls.replay = _replay_of(cls.__qualname__, declared)

    @property
    def replayable(self) -> bool:
        """The older form of `replay`: False where a record that was read never comes again. Deprecated."""
        return self.replay is not Replay.NONE

    @replayable.setter
    def replayable(self, declared: bool) -> None:
        self.replay = _replay_of(type(self).__qualname__, declared)

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether the source ends by itself."""

    @abstractmethod
    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], checkpoint: Any = None
    ) -> SplitEnumerator[SplitT]:
        """Return the enumerator, fresh or from the result of `snapshot_state`."""

    @abstractmethod
    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """A reader for one subtask."""

    def history(self) -> Source[T, SplitT] | None:
        """Return the bounded source of what there is now, behind which this source goes on; None = there is none.

        A savepoint of history takes its positions from the bounded source, and this source continues there. So both
        have splits and states of the same form:

        - A reader of the bounded source has come to the end of a split. Its `snapshot_state` then holds the split, if
          more may come there, at the position of the next record. A split that is complete is not in it.
        - The bounded source's enumerator has assigned all splits. Its `snapshot_state` then is the state with which
          this source's enumerator goes on. It names what was found, so that nothing is found twice.

        A bounded source is its own history, up to the first record that is left to the stream.
        """
        return self if self.boundedness is Boundedness.BOUNDED else None

    def letter_reader(self) -> Callable[[DeadLetter], SourceRecords] | None:
        """Return what reads the raw bytes of a dead letter of this source again; None = nothing can.

        The result has the rows of one letter. A record that cannot be read again fails the call, or becomes a dead
        letter in `side`, as the source treats errors. That letter has the position of the former one.
        """
        return None

    def letter_refusal(self, letter: DeadLetter) -> str | None:
        """Return why what `letter_reader` returns cannot read this letter, without a full stop; None = it can."""
        return None

    def with_default_scheme(self, default: str) -> Source[T, SplitT]:
        """The source with its plain paths in the file system `default`, the job's fs.default-scheme.

        Called on the client. A source that reads no files returns itself.
        """
        return self

    def produced_type(self) -> TypeInformation | None:
        """The declared type of rows; None = undeclared."""
        return None

    def produced_schema(self) -> pa.Schema | None:
        """An Arrow schema makes the source columnar: its readers return record batches."""
        return None

    def kept_schemas(self) -> Mapping[str, KeptSchema]:
        """Return the schemas that the program asked for when it was built, by their place in the source.

        A place stays the same in each version of the program. A source with one schema has it at the place "". The
        engine stores the schemas with the splits. A job that goes on from a snapshot reads by those of its first start.
        """
        return {}

    def with_kept_schemas(self, kept: Mapping[str, KeptSchema]) -> Source[T, SplitT]:
        """Return the source that reads by the schemas which a snapshot has kept, at the places that it has."""
        raise TypeError(
            f"{type(self).__name__} keeps no schema: it has kept_schemas without with_kept_schemas"
        )

    @property
    def scanned_format(self) -> str | None:
        """`"parquet"` or `"csv"` if the source emits columns of such files, with no other change of rows.

        A bounded job may then read the files in another way. None = only the readers can read the input.
        """
        return None

    def scanned_bytes(self) -> int:
        """Bytes of the files of `scanned_format`, as far as they are known on the client."""
        return 0

    @property
    def can_narrow(self) -> bool:
        """Whether `narrowed` leaves something out; False by default."""
        return False

    def narrowed(self, wanted: WantedColumns) -> Source[T, SplitT]:
        """Return a source of record batches that may leave out columns and rows which nobody wants.

        Positions in its splits mean what they mean in this source. By default it is this source.
        """
        return self

    def estimated_bytes(self) -> int | None:
        """About how many bytes a bounded source reads, as far as that is known on the client; None = unknown.

        In AUTOMATIC mode the engine chooses by it who runs a bounded job.
        """
        return None

    def validate(self) -> None:
        """Called on the client while the graph is built; raises for a known mistake, such as a missing file."""
        return None


def _replay_of(source: str, replayable: object) -> Replay:
    """Return the declaration that stands for the older one. Raises TypeError for a `replayable` that is no bool."""
    if not isinstance(replayable, bool):
        raise TypeError(
            f"{source}: replayable is a bool, not {replayable!r}; declare `replay`, one of Replay's values, instead"
        )
    new = Replay.EXACT_POSITIONS if replayable else Replay.NONE
    warnings.warn(
        f"{source}: replayable = {replayable} is deprecated; write `replay = Replay.{new.name}`",
        DeprecationWarning,
        stacklevel=3,
    )
    return new


class SinkWriterContext(Protocol):
    """The engine as a sink writer sees it; the writer calls it on the task's thread."""

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def job_id(self) -> str:
        """32 hex digits: the same for all attempts of a job, another for each submission."""
        ...

    @property
    def sink_id(self) -> str:
        """Id of the sink's operator, 32 hex digits: tells the sinks of a job apart."""
        ...

    @property
    def attempt_number(self) -> int: ...

    @property
    def configuration(self) -> Mapping[str, str]: ...

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint or savepoint that the job was restored from; None = it begins anew.

        Ids rise over the whole life of a job, restarts included.
        """
        ...

    @property
    def delivery_guarantee(self) -> DeliveryGuarantee:
        """The guarantee that the writer has to keep: what the program asks for, or the strongest that holds."""
        ...

    @property
    def leaves_out_rows(self) -> bool:
        """Whether the program leaves out rows that the sink refuses: the writer should raise RefusedRowError."""
        ...

    @property
    def latest_savepoint_id(self) -> int | None:
        """The latest savepoint that was taken of the job before this attempt; None = none.

        It may be later than the restored checkpoint, because a job goes back to its own checkpoints alone.
        Its transactions must stay, since another job may begin from it.
        """
        ...

    def current_processing_time(self) -> int:
        """The machine's time, ms since 1970 UTC."""
        ...

    def register_timer(self, timestamp: int, action: Callable[[], None]) -> None:
        """Calls `action` once when the processing time reaches `timestamp` (ms), between two slices of rows."""
        ...


class SinkWriter(ABC, Generic[T]):
    """Writes rows on the task's thread.

    At a checkpoint the engine calls `flush(False)`, `prepare_commit` and `snapshot_state`, in this order and
    without a row between them. At the end of input it calls `flush(True)` and `prepare_commit`. The engine
    keeps the result of `prepare_commit` in the checkpoint, and passes it to the committer when the checkpoint
    is complete.
    """

    @abstractmethod
    def write(self, rows: Sequence[T], timestamps: Sequence[int | None] | None) -> None:
        """Takes a slice of rows; errors raised here fail the task."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Takes columns; the default refuses them.

        The plan puts a conversion before a sink whose `accepts_columns` is False.
        """
        raise TypeError(
            f"{type(self).__name__} takes rows only; set accepts_columns on its Sink to take columns"
        )

    def flush(self, end_of_input: bool) -> None:
        """Hand all rows taken so far to the outside; called before a checkpoint and at the end.

        A sink without a committer gives at-least-once by this call alone: rows flushed before a checkpoint
        are not sent again after its restore.
        """
        return None

    def prepare_commit(self) -> list[Any]:
        """Return what the committer makes visible for the rows since the last call, in the order of commits.

        Committables are kept in checkpoints: plain values or dataclasses of them; see Sink.
        """
        return []

    def own_metrics(self) -> Mapping[str, float]:
        """Return further metrics by their name below the operator, for example `KafkaProducer.request-total`.

        Called about once a second by a thread of the engine, beside `write`: it looks and changes nothing. A name
        that is left out has no value now.
        """
        return {}

    def bytes_sent(self) -> int | None:
        """Bytes that the writer has handed outside since it was made: the metric numBytesSend. None = not known.

        Called about once a second by a thread of the engine, beside `write`: it looks and changes nothing.
        """
        return None

    def bytes_taken(self) -> int:
        """Return the bytes of all rows that `write` has taken, also of those that wait in the writer.

        A rate limit in bytes asks after each call. A writer that holds rows back may estimate and correct itself later.
        """
        return self.bytes_sent() or 0

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Return the state of restored writers: a list whose elements are distributed among the subtasks."""
        return []

    def close(self) -> None:
        """Releases what the writer holds; called once, also after a failure."""
        return None


class RefusedRowError(Exception):
    """Raised by `SinkWriter.write` and `write_batch`: one row cannot be written.

    Rows before it were taken, rows behind it were not.

    With `on_error` the engine leaves the row out and hands over the rows behind it. Else the job fails.
    """

    def __init__(self, index: int, cause: Exception) -> None:
        """`index`: position of the row in the call. `cause`: why it cannot be written; letters hold its traceback."""
        super().__init__(f"row {index} cannot be written: {type(cause).__name__}: {cause}")
        self.index = index
        self.cause = cause


class CommitRejectedError(Exception):
    """A commit that cannot succeed however often it is tried.

    The job fails at once and does not restart. Its last checkpoint stays, whatever the retention is.
    """


class Committer(ABC):
    """Makes prepared results visible, on the task's thread; must be idempotent: a commit may be repeated.

    A commit is repeated if the job fails between the completion of a checkpoint and the end of its commits.
    It is also repeated if the job is restored from that checkpoint again.
    """

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> None:
        """Commits all, in order; the engine hands over one at a time.

        An exception means that it is tried again with growing delays, `sink.committer.retries` times, before the task
        fails; CommitRejectedError fails it at once.
        """

    def abort(self, committables: Sequence[Any]) -> None:
        """Remove a prepared result that will never be committed."""
        return None

    def close(self) -> None:
        """Releases what the committer holds."""
        return None


class Sink(ABC, Generic[T]):
    """A destination of records: picklable description that makes writers and, if it has one, a committer.

    Checkpoints and savepoints hold committables and the state of writers as data. That is None, bool, int,
    float, str, bytes, lists, tuples and dicts of them, and dataclasses, which are stored by their fields.
    """

    #: True when the writer takes record batches by `write_batch`.
    accepts_columns: bool = False
    #: True when `write`, `flush` or a commit may block for long: the task then has a thread of its own.
    blocking: bool = False
    #: True when writers raise RefusedRowError for a row that they cannot write: the sink then has `on_error`.
    tells_refused_rows: bool = False
    #: True when writers write whatever fields a record has; False = the sink has fields of its own.
    takes_added_columns: bool = False
    #: True when a bounded job has to commit its other sinks first: the commit says that all is done, or removes input.
    commits_last: bool = False
    #: True when `bytes_taken` counts the bytes of rows as soon as `write` returns: a rate limit in bytes is possible.
    counts_bytes: bool = False
    #: The guarantee that the program asks for; None = the strongest that holds in the job. Writers ask their context.
    delivery_guarantee: DeliveryGuarantee | None = None

    def guarantees(self) -> Mapping[DeliveryGuarantee, KeptBy]:
        """Return how the sink keeps each guarantee; it does not keep a guarantee that is missing.

        Without a declaration, a committer makes transactions of what the writer prepares, and a writer alone flushes.
        """
        if type(self).create_committer is Sink.create_committer:
            return {DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.FLUSH}
        return {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.TRANSACTION}

    def upsert_key(self) -> Sequence[str]:
        """Return the names of the fields by which rows replace each other; empty = the sink knows no key.

        A sink that keeps a guarantee by KeptBy.IDEMPOTENT_KEY needs a key.
        """
        return ()

    def with_default_scheme(self, default: str) -> Sink[T]:
        """As for a Source."""
        return self

    @abstractmethod
    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[T]:
        """Return a writer for one subtask, after the committables of the restored checkpoint have been committed.

        `restored` is this subtask's share of what writers gave in `snapshot_state`, perhaps of other subtasks.
        """

    def create_committer(self) -> Committer | None:
        """Return the committer, or None where the writer alone is enough. Called before `create_writer`."""
        return None

    def validate(self) -> None:
        """Called on the client while the graph is built: raises for what can be known then."""
        return None


class StandsForSource(ABC):
    """An older form of a source, for `add_source`: a Source reads in its place."""

    #: The strategy of the source; None = no watermarks.
    watermark_strategy: WatermarkStrategy | None = None

    @abstractmethod
    def source(self) -> Source[Any, Any]:
        """Return the source. Raises InvalidProgramError for what is missing or wrong."""


class StandsForSink(ABC):
    """An older form of a sink, for `add_sink`: a Sink writes in its place."""

    @abstractmethod
    def sink(self) -> Sink[Any]:
        """Return the sink. Raises InvalidProgramError for what is missing or wrong."""


def delivery_of(sink: Sink[Any]) -> SinkDelivery:
    """Return what a sink declares. Raises TypeError, naming the sink's class, for declarations of other types."""
    name, asked, kept = type(sink).__name__, sink.delivery_guarantee, dict(sink.guarantees())
    if asked is not None and not isinstance(asked, DeliveryGuarantee):
        raise TypeError(f"{name}: delivery_guarantee is a DeliveryGuarantee or None, not {asked!r}")
    for guarantee, means in kept.items():
        if not isinstance(guarantee, DeliveryGuarantee) or not isinstance(means, KeptBy):
            raise TypeError(
                f"{name}: guarantees() maps DeliveryGuarantee to KeptBy, and has {guarantee!r}: {means!r}"
            )
    key = sink.upsert_key()
    if isinstance(key, str):
        raise TypeError(f"{name}: upsert_key() returns a sequence of names, not {key!r}")
    return SinkDelivery(connector=name, asked=asked, kept_by=kept, upsert_key=tuple(key))
