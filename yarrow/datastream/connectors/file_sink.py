"""FileSink: records into files of buckets, visible only when they are whole and committed.

Owner: the task's thread for the writer, the engine for the committer. A part file is written under a hidden
name, `.<part>.inprogress.<id>`; when it is closed it becomes a committable, and the committer renames it.
What is never committed stays hidden from readers, and a writer removes what it alone knows of when it
closes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, BinaryIO, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from yarrow.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from yarrow.datastream.connectors.base import Committer, Sink, SinkWriter, SinkWriterContext
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError, YarrowError
from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.fs.file_system import FileSystemError, exists, file_system_for, join, scheme_of

T = TypeVar("T")

_COPY_CHUNK = 1 << 20


class FileSinkError(YarrowError):
    """A file cannot be written or committed."""


@dataclass(frozen=True, slots=True)
class BucketContext:
    """What a bucket assigner may look at besides the record."""

    current_processing_time: int
    timestamp: int | None


class BucketAssigner(ABC):
    """Names the folder, below the base path, that a record goes to."""

    #: True when the bucket does not depend on the record: then it is asked once a slice.
    ignores_element: bool = False

    @abstractmethod
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """The folder, relative to the base path; empty = the base path itself."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Everything into the base path."""
        return _BasePathBuckets()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """A folder for each hour (or what the pattern says) of processing time; in the system's zone unless
        one is given.

        Raises ValueError for an unknown zone or a pattern with other letters than y, M, d, H, m and s.
        """
        return _DateTimeBuckets(format_str, timezone_id)


class _BasePathBuckets(BucketAssigner):
    ignores_element = True

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return ""


class _DateTimeBuckets(BucketAssigner):
    ignores_element = True

    _LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}

    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        self._format = re.sub(
            r"([A-Za-z])\1*|%", lambda found: self._directive(found.group(), pattern), pattern
        )
        try:
            self._zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"date_time_bucket_assigner: {timezone_id!r} is no time zone known here"
            ) from error

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        moment = datetime.fromtimestamp(context.current_processing_time / 1000, self._zone)
        return moment.strftime(self._format)

    def _directive(self, letters: str, pattern: str) -> str:
        if letters == "%":
            return "%%"
        if letters not in self._LETTERS:
            raise ValueError(
                f"date_time_bucket_assigner: {letters!r} in {pattern!r} is not known; use {', '.join(self._LETTERS)}"
            )
        return self._LETTERS[letters]


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """When a part file is closed and the next one begun; None = never for that reason. Times in milliseconds.

    Times are looked at when records come and before checkpoints. Bulk formats roll at every checkpoint, too.
    """

    part_size: int | None = None
    rollover_interval: int | None = None
    inactivity_interval: int | None = None
    on_checkpoint: bool = False

    @staticmethod
    def default_rolling_policy(
        part_size: int = 134217728, rollover_interval: int = 60000, inactivity_interval: int = 60000
    ) -> RollingPolicy:
        """By size in bytes, by age and by time without a record. Raises ValueError unless all are above 0."""
        if min(part_size, rollover_interval, inactivity_interval) < 1:
            raise ValueError("default_rolling_policy: size and intervals must be above 0")
        return RollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """At every checkpoint and only then."""
        return RollingPolicy(on_checkpoint=True)


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """What the names of part files begin and end with."""

    part_prefix: str = "part"
    part_suffix: str = ""

    class OutputFileConfigBuilder:
        """Collects prefix and suffix."""

        def __init__(self) -> None:
            self._config = OutputFileConfig()

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Names begin with this; raises ValueError where it would hide the file."""
            if prefix.startswith((".", "_")) or "/" in prefix:
                raise ValueError(f"a part prefix must not begin with . or _ nor hold a /: {prefix!r}")
            self._config = replace(self._config, part_prefix=prefix)
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Names end with this, for example `.csv`."""
            if "/" in suffix:
                raise ValueError(f"a part suffix must not hold a /: {suffix!r}")
            self._config = replace(self._config, part_suffix=suffix)
            return self

        def build(self) -> OutputFileConfig:
            """The configuration."""
            return self._config

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """A builder with `part` and no suffix."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """The prefix."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """The suffix."""
        return self.part_suffix


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A whole file under its hidden name, to be renamed; `leftover` is removed once that is done."""

    source: str
    target: str
    leftover: str | None = None


@dataclass(frozen=True, slots=True)
class InProgressFile:
    """A file that was being written at a checkpoint: its first `length` bytes count."""

    path: str
    target: str
    length: int


@dataclass(frozen=True, slots=True)
class _SinkSettings:
    base_path: str
    encoder: Encoder[Any] | None
    bulk_factory: BulkWriterFactory[Any] | None
    buckets: BucketAssigner = field(default_factory=BucketAssigner.date_time_bucket_assigner)
    rolling: RollingPolicy = field(default_factory=RollingPolicy.default_rolling_policy)
    files: OutputFileConfig = field(default_factory=OutputFileConfig)


class FileSink(Sink[Any]):
    """Writes records to part files in the buckets below a base path; made by a builder.

    Without another assigner a bucket is an hour of processing time. Files appear under their names when the
    engine commits: at checkpoints, and at the end of bounded input.
    """

    def __init__(self, settings: _SinkSettings) -> None:
        self._settings = settings
        self.accepts_columns = bool(getattr(settings.bulk_factory, "accepts_columns", False))
        self.blocking = scheme_of(settings.base_path) != "file"

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder[Any]) -> FileSinkBuilder:
        """A builder of a sink that writes record by record."""
        return FileSinkBuilder(_SinkSettings(base_path, encoder, None))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory[Any]) -> FileSinkBuilder:
        """A builder of a sink whose format sees many records at once; files roll at checkpoints."""
        rolling = RollingPolicy.on_checkpoint_rolling_policy()
        return FileSinkBuilder(_SinkSettings(base_path, None, writer_factory, rolling=rolling))

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> FileSinkWriter:
        """A writer for one subtask."""
        return FileSinkWriter(
            self._settings, context.subtask_index, restored, SystemClock(), RandomIdFactory()
        )

    def create_committer(self) -> Committer:
        """What renames whole files."""
        return FileCommitter()

    def validate(self) -> None:
        """Raises InvalidProgramError when the base path is a file or its file system cannot be used."""
        path = self._settings.base_path
        try:
            file_system = file_system_for(path)
            if exists(file_system, path) and not file_system.status(path).is_dir:
                raise InvalidProgramError(f"FileSink: {path} is a file; give the folder that files go into")
        except (OSError, FileSystemError) as error:
            raise InvalidProgramError(f"FileSink: {path} cannot be used: {error}") from error


class FileSinkBuilder:
    """Collects what a FileSink needs."""

    def __init__(self, settings: _SinkSettings) -> None:
        if not isinstance(settings.base_path, str) or not settings.base_path:
            raise TypeError(f"FileSink: the base path must be a non-empty str, not {settings.base_path!r}")
        self._settings = settings

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Which folder a record goes to."""
        self._settings = replace(self._settings, buckets=bucket_assigner)
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """When files are closed. Raises ValueError for a bulk format with another policy than on
        checkpoint.
        """
        if self._settings.bulk_factory is not None and not rolling_policy.on_checkpoint:
            raise ValueError("FileSink: bulk formats roll at checkpoints; use on_checkpoint_rolling_policy()")
        self._settings = replace(self._settings, rolling=rolling_policy)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """How files are named."""
        self._settings = replace(self._settings, files=output_file_config)
        return self

    def with_bucket_check_interval(self, interval: int) -> FileSinkBuilder:
        """Accepted: times are looked at whenever records come and before checkpoints, not at an interval
        (ms).
        """
        if interval < 1:
            raise ValueError(f"with_bucket_check_interval: the interval must be above 0, not {interval}")
        return self

    def enable_compact(self, strategy: object, compactor: object) -> FileSinkBuilder:
        """Refused: files are not compacted."""
        raise UnsupportedFeatureError(
            "FileSink.enable_compact: compaction of small files is missing; use a larger part size or a longer "
            "checkpoint interval"
        )

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(self._settings)


class _PartFile:
    """One file being written."""

    def __init__(self, settings: _SinkSettings, path: str, target: str, now: int) -> None:
        self.path = path
        self.target = target
        self.opened_at = now
        self.written_at = now
        self._encoder = settings.encoder
        self._stream = file_system_for(path).create(path)
        self._counted = _CountingStream(self._stream)
        factory = settings.bulk_factory
        self._bulk: BulkWriter[Any] | None = None if factory is None else factory.create(self._as_stream())

    @property
    def length(self) -> int:
        """Bytes handed to the file system."""
        return self._counted.length

    def write(self, rows: Sequence[Any], now: int) -> None:
        self.written_at = now
        if self._bulk is not None:
            add = self._bulk.add_element
            for row in rows:
                add(row)
        elif self._encoder is not None:
            encode, stream = self._encoder.encode, self._as_stream()
            for row in rows:
                encode(row, stream)

    def write_batch(self, batch: pa.RecordBatch, now: int) -> None:
        self.written_at = now
        if self._bulk is None or not hasattr(self._bulk, "add_batch"):
            raise TypeError("this format takes rows only")
        self._bulk.add_batch(batch)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Writes the end of the file; afterwards it is whole and on the disk."""
        if self._bulk is not None:
            self._bulk.finish()
        self._stream.close()

    def abandon(self) -> None:
        """Closes and removes it."""
        try:
            self._stream.close()
        finally:
            file_system_for(self.path).delete(self.path)

    def _as_stream(self) -> BinaryIO:
        return self._counted  # type: ignore[return-value]


class _CountingStream:
    """Counts what is written; everything else is the stream's own."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.length = 0
        self.closed = False

    def write(self, data: Any) -> int:
        written = self._stream.write(data)
        self.length += written
        return written

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return self.length

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The part file closes the stream; formats only finish with it."""
        return None


class FileSinkWriter(SinkWriter[Any]):
    """Writes the part files of one subtask, one open file a bucket."""

    def __init__(
        self,
        settings: _SinkSettings,
        subtask: int,
        restored: Sequence[InProgressFile],
        clock: Clock,
        ids: IdFactory,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        #: New for every writer, so that no attempt ever writes under a name that another one used.
        self._unique = f"{ids.hex_id()[:16]}-{subtask}"
        self._counter = 0
        self._open: dict[str, _PartFile] = {}
        #: Files named in a checkpoint: they outlive this writer.
        self._checkpointed: set[str] = set()
        self._pending: list[PendingFile] = [
            pending for file in restored if (pending := self._recovered(file)) is not None
        ]

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        """Appends rows to the files of their buckets."""
        if not rows:
            return
        now = self._clock.epoch_ms()
        assigner = self._settings.buckets
        if assigner.ignores_element:
            first = timestamps[0] if timestamps else None
            self._write_to(assigner.get_bucket_id(rows[0], BucketContext(now, first)), rows, now)
            return
        by_bucket: dict[str, list[Any]] = {}
        for index, row in enumerate(rows):
            context = BucketContext(now, timestamps[index] if timestamps else None)
            by_bucket.setdefault(assigner.get_bucket_id(row, context), []).append(row)
        for bucket, part in by_bucket.items():
            self._write_to(bucket, part, now)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Appends a batch. Raises TypeError where the bucket depends on the record."""
        assigner = self._settings.buckets
        if not assigner.ignores_element:
            raise TypeError(
                f"FileSink: {type(assigner).__name__} chooses a bucket by record, which columns have none of; use the "
                "base path or date assigner, or write rows"
            )
        now = self._clock.epoch_ms()
        bucket = assigner.get_bucket_id(None, BucketContext(now, None))
        self._file_of(bucket, now).write_batch(batch, now)
        self._roll_if_due(bucket, now)

    def flush(self, end_of_input: bool) -> None:
        """Closes what the policy says is due; at the end of input everything."""
        now = self._clock.epoch_ms()
        roll_all = end_of_input or self._settings.rolling.on_checkpoint or self._settings.encoder is None
        for bucket in list(self._open):
            if roll_all:
                self._roll(bucket)
            else:
                self._roll_if_due(bucket, now)

    def prepare_commit(self) -> list[Any]:
        """The files closed since the last call."""
        pending, self._pending = self._pending, []
        return list(pending)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """The files that stay open, with their lengths."""
        state = []
        for part in self._open.values():
            part.flush()
            self._checkpointed.add(part.path)
            state.append(InProgressFile(part.path, part.target, part.length))
        return state

    def close(self) -> None:
        """Closes what is open; removes the files that no checkpoint and no committer knows of."""
        pending, self._pending = self._pending, []
        parts, self._open = self._open, {}
        for part in parts.values():
            if part.path not in self._checkpointed:
                part.abandon()
        for file in pending:
            if file.source not in self._checkpointed:
                file_system_for(file.source).delete(file.source)

    def _write_to(self, bucket: str, rows: Sequence[Any], now: int) -> None:
        self._roll_if_due(bucket, now)
        self._file_of(bucket, now).write(rows, now)
        self._roll_if_due(bucket, now)

    def _file_of(self, bucket: str, now: int) -> _PartFile:
        part = self._open.get(bucket)
        if part is None:
            folder, name = self._next_name(bucket)
            hidden = join(folder, f".{name}.inprogress.{self._ids.hex_id()}")
            part = self._open[bucket] = _PartFile(self._settings, hidden, join(folder, name), now)
        return part

    def _next_name(self, bucket: str) -> tuple[str, str]:
        if bucket.startswith("/") or ".." in bucket.split("/"):
            raise FileSinkError(f"the bucket {bucket!r} lies outside of {self._settings.base_path}")
        files = self._settings.files
        name = f"{files.part_prefix}-{self._unique}-{self._counter}{files.part_suffix}"
        self._counter += 1
        return join(self._settings.base_path, bucket), name

    def _roll_if_due(self, bucket: str, now: int) -> None:
        part, policy = self._open.get(bucket), self._settings.rolling
        if part is not None and (
            _reached(part.length, policy.part_size)
            or _reached(now - part.opened_at, policy.rollover_interval)
            or _reached(now - part.written_at, policy.inactivity_interval)
        ):
            self._roll(bucket)

    def _roll(self, bucket: str) -> None:
        part = self._open[bucket]
        part.close()
        del self._open[bucket]
        self._pending.append(PendingFile(part.path, part.target))

    def _recovered(self, file: InProgressFile) -> PendingFile | None:
        """What a checkpoint covers of a file, as a copy: the original serves a second recovery until the
        commit.
        """
        if not file.length:
            return None
        file_system = file_system_for(file.path)
        copy = f"{file.path.rpartition('.')[0]}.{self._ids.hex_id()}"
        try:
            with file_system.open(file.path) as source, file_system.create(copy) as target:
                left = file.length
                while left and (chunk := source.read(min(left, _COPY_CHUNK))):
                    target.write(chunk)
                    left -= len(chunk)
        except FileNotFoundError as error:
            raise FileSinkError(f"{file.path} has gone since the checkpoint that names it") from error
        if left:
            raise FileSinkError(f"{file.path} is {left} bytes shorter than the checkpoint says")
        return PendingFile(copy, file.target, leftover=file.path)


def _reached(value: int, limit: int | None) -> bool:
    return limit is not None and value >= limit


class FileCommitter(Committer):
    """Gives whole files their names; a commit done already is done."""

    def commit(self, committables: Sequence[PendingFile]) -> None:
        """Renames. Raises FileSinkError for a file that is neither there nor committed."""
        for file in committables:
            file_system = file_system_for(file.source)
            try:
                file_system.rename(file.source, file.target)
            except FileExistsError:
                # Committed before; a copy made by a repeated recovery may be left.
                file_system.delete(file.source)
            except FileNotFoundError:
                if not exists(file_system, file.target):
                    raise FileSinkError(
                        f"{file.source} cannot be committed as {file.target}: neither is there; was the folder cleaned?"
                    ) from None
            if file.leftover is not None:
                file_system.delete(file.leftover)

    def abort(self, committables: Sequence[PendingFile]) -> None:
        """Removes files that will not be committed."""
        for file in committables:
            file_system_for(file.source).delete(file.source)
