"""The writer and the committer of a FileSink.

Owner: the task's thread for the writer, the engine for the committer. A part file is written under a hidden
name, `.<part>.inprogress.<id>`; when it is closed it becomes a committable, and the committer renames it.
What is never committed stays hidden from readers, and a writer removes what it alone knows of when it
closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from yarrow.common.serialization import BulkWriter
from yarrow.datastream.connectors.base import Committer, SinkWriter
from yarrow.datastream.connectors.file_sink_policies import BucketContext, FileSinkSettings
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.fs.file_system import exists, file_system_for, join

_COPY_CHUNK = 1 << 20


class FileSinkError(YarrowError):
    """A file cannot be written or committed."""


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


class _PartFile:
    """One file being written."""

    def __init__(self, settings: FileSinkSettings, path: str, target: str, now: int) -> None:
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

    def abandon(self, keep: bool) -> None:
        """Closes it as it is, and removes it unless a checkpoint names it."""
        try:
            self._stream.close()
        finally:
            if not keep:
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
        settings: FileSinkSettings,
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
                f"FileSink: {type(assigner).__name__} chooses a bucket by record, not by columns; use "
                "the base path or date assigner, or write rows"
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
            part.abandon(keep=part.path in self._checkpointed)
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
                        f"{file.source} cannot be committed as {file.target}: neither is there; was "
                        "the folder cleaned?"
                    ) from None
            if file.leftover is not None:
                file_system.delete(file.leftover)

    def abort(self, committables: Sequence[PendingFile]) -> None:
        """Removes files that will not be committed."""
        for file in committables:
            file_system_for(file.source).delete(file.source)
