"""The writer and the committer of a FileSink: which rows go to which file, and when files are closed.

Owner: the task's thread. A file that the policy keeps open over a checkpoint is snapshotted with its length.
A restored writer copies that much into its own file, so that the original serves a second recovery. It also
never writes where an earlier attempt may still write. If a file's beginning cannot be made durable while it
is open (anything but local files), files roll at every checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from itertools import repeat
from typing import TYPE_CHECKING, Any

from yarrow.datastream.connectors.base import Committer, RefusedRowError, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.file_compaction import FileCompactStrategy
from yarrow.datastream.connectors.file_sink_compaction import (
    CompactedFile,
    CompactService,
    WaitingFile,
    WaitingFiles,
    finish_compacted,
)
from yarrow.datastream.connectors.file_sink_files import (
    FileSinkError,
    InProgressFile,
    PartFile,
    PendingFile,
    StagingFolder,
    copy_beginning,
    finish_file,
)
from yarrow.datastream.connectors.file_sink_policies import BucketContext, FileSinkSettings
from yarrow.datastream.connectors.transaction_names import TransactionNames
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.fs.registry import file_system_for

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows that tell how large rows are.
_SAMPLED_ROWS = 100
#: Most rows that a bulk format converts at once, if the program leaves out failing ones.
_MOST_CONVERTED = 1 << 16


class FileSinkWriter(SinkWriter[Any]):
    """Writes the part files of one subtask, one open file a bucket."""

    def __init__(
        self,
        settings: FileSinkSettings,
        context: SinkWriterContext,
        restored: Sequence[InProgressFile | WaitingFile],
        ids: IdFactory,
    ) -> None:
        self._settings = settings
        self._context = context
        self._leaves_out = context.leaves_out_rows
        bulk = settings.bulk_factory
        #: Converts rows of a bulk format; None = the program leaves out no rows, or an encoder writes them.
        self._convert = bulk.row_converter() if self._leaves_out and bulk is not None else None
        #: Rows that are converted at once: few behind a failing row, and twice as many after each success.
        self._converted_rows = _MOST_CONVERTED
        self._names = TransactionNames(context, ids)
        self._staging = StagingFolder(settings.base_path, self._names)
        self._rolls_at_checkpoint = (
            settings.rolling.on_checkpoint
            or settings.encoder is None
            or scheme_of(settings.base_path) != "file"
        )
        self._unique = f"{self._names.writer}-{context.subtask_index}"
        self._counter = 0
        #: Bytes in the files that this writer has closed.
        self._closed_bytes = 0
        self._closed_rows = 0
        #: A rate limit in bytes asks for `bytes_taken`.
        self._counts_bytes = False
        #: Bytes of a row in a format that holds rows back, 0 in others; None = not known yet.
        self._row_bytes: float | None = None
        self._open: dict[str, PartFile] = {}
        #: Earliest time for which a timer is registered.
        self._timer_at: int | None = None
        #: Files named in a checkpoint: they outlive this writer.
        self._checkpointed: set[str] = set()
        #: True when the input has ended: no file waits for others any more.
        self._ended = False
        opened = [file for file in restored if isinstance(file, InProgressFile)]
        waited = [file for file in restored if isinstance(file, WaitingFile)]
        self._staging.remove_leftovers([file.path for file in opened] + [file.file.source for file in waited])
        self._waiting = WaitingFiles(
            FileCompactStrategy() if settings.compaction is None else settings.compaction[0],
            [again for file in waited if (again := self._waiting_again(file)) is not None],
        )
        for file in opened:
            if (pending := self._recovered(file)) is not None:
                self._waiting.add(file.bucket, pending)

    # ------------------------------------------------------------------ rows

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        """Appends rows to the files of their buckets."""
        if not rows:
            return
        now = self._context.current_processing_time()
        assigner = self._settings.buckets
        if self._convert is not None:
            self._write_converted(rows, timestamps, now)
            return
        if self._leaves_out:
            self._write_single(rows, timestamps, now)
            return
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

    def _write_single(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None, now: int) -> None:
        """Append rows one by one. Raises RefusedRowError for a row that has no bucket or no bytes."""
        assigner, encoder = self._settings.buckets, self._settings.encoder
        assert encoder is not None, "bulk formats convert rows"
        for index, row in enumerate(rows):
            # A row that fails half-way must leave no byte in the file.
            encoded = BytesIO()
            try:
                stamp = timestamps[index] if timestamps else None
                bucket = assigner.get_bucket_id(row, BucketContext(now, stamp))
                self._require_inside(bucket)
                encoder.encode(row, encoded)
            except Exception as error:
                raise RefusedRowError(index, error) from error
            self._roll_if_due(bucket, now)
            self._file_of(bucket, now).write_encoded(encoded.getvalue(), now)
            self._roll_if_due(bucket, now)

    def _write_converted(
        self, rows: Sequence[Any] | pa.RecordBatch, timestamps: Sequence[int | None] | None, now: int
    ) -> None:
        """Append rows that the format converts together.

        A part at which the format or the assigner fails is halved until the failing row is alone. No file has got a row
        of the part by then. Raises RefusedRowError for that row.
        """
        assert self._convert is not None, "the program leaves out rows of a bulk format"
        start = 0
        while start < len(rows):
            part = rows[start : start + self._converted_rows]
            try:
                stamps = timestamps[start : start + len(part)] if timestamps else None
                parts = self._by_bucket(part, stamps, now)
                converted = {bucket: self._convert(of_bucket) for bucket, of_bucket in parts.items()}
            except Exception as error:
                self._converted_rows = max(1, len(part) // 2)
                if len(part) == 1:
                    raise RefusedRowError(start, error) from error
                continue
            for bucket, of_bucket in parts.items():
                self._roll_if_due(bucket, now)
                file = self._file_of(bucket, now)
                file.write_converted(converted[bucket], len(of_bucket), now)
                self._sample(file, of_bucket)
                self._roll_if_due(bucket, now)
            start += len(part)
            self._converted_rows = min(2 * self._converted_rows, _MOST_CONVERTED)

    def _by_bucket(
        self, rows: Sequence[Any] | pa.RecordBatch, timestamps: Sequence[int | None] | None, now: int
    ) -> dict[str, Any]:
        """The rows of each bucket. Raises FileSinkError for a bucket outside of the base path, and the assigner's."""
        assigner = self._settings.buckets
        found: dict[str, Any] = {}
        if assigner.ignores_element:
            first = timestamps[0] if timestamps else None
            found[assigner.get_bucket_id(None, BucketContext(now, first))] = rows
        else:
            for row, stamp in zip(rows, timestamps or repeat(None), strict=False):
                found.setdefault(assigner.get_bucket_id(row, BucketContext(now, stamp)), []).append(row)
        for bucket in found:
            self._require_inside(bucket)
        return found

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Appends a batch. Raises TypeError where the bucket depends on the record."""
        assigner = self._settings.buckets
        if not assigner.ignores_element:
            raise TypeError(
                f"FileSink: {type(assigner).__name__} chooses a bucket by record, not by columns; use "
                "the base path or date assigner, or write rows"
            )
        if not batch.num_rows:
            return
        now = self._context.current_processing_time()
        if self._convert is not None:
            self._write_converted(batch, None, now)
            return
        bucket = assigner.get_bucket_id(None, BucketContext(now, None))
        part = self._file_of(bucket, now)
        part.write_batch(batch, now)
        self._sample(part, batch)
        self._roll_if_due(bucket, now)

    # ------------------------------------------------------------------ checkpoints

    def flush(self, end_of_input: bool) -> None:
        """Close the files that are due by the policy; at the end of input all files."""
        now = self._context.current_processing_time()
        self._ended = end_of_input
        for bucket in list(self._open):
            if end_of_input or self._rolls_at_checkpoint:
                self._roll(bucket)
            else:
                self._roll_if_due(bucket, now)

    def prepare_commit(self) -> list[Any]:
        """The files closed since the last call; with compaction those whose turn it is, merged by bucket."""
        if self._settings.compaction is None:
            due = self._waiting.take_due(at_end=True)
            return [file for files in due for file in files]
        service = CompactService(self._settings, *self._settings.compaction, self._staging)
        return list(
            service.merge_all(self._waiting.take_due(self._ended), self._context.current_processing_time())
        )

    def bytes_sent(self) -> int:
        """Bytes written to files, closed and open."""
        return self._closed_bytes + sum(part.length for part in list(self._open.values()))

    def bytes_taken(self) -> int:
        """Return the bytes written, and about those that the formats of open files hold back.

        The bytes of a closed file are exact, so that each one corrects what was taken for it before.
        """
        self._counts_bytes = True
        row_bytes = self._row_bytes or 0.0
        return self._closed_bytes + sum(part.bytes_taken(row_bytes) for part in self._open.values())

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """The files that stay open, with their lengths, and those that wait to be merged."""
        self._names.checkpoint_taken(checkpoint_id)
        state: list[Any] = [] if self._settings.compaction is None else [*self._waiting.snapshot()]
        for bucket, part in self._open.items():
            part.sync()
            self._checkpointed.add(part.path)
            state.append(InProgressFile(part.path, bucket, part.target, part.length))
        return state

    def close(self) -> None:
        """Close the open files; remove files that no checkpoint and no committer knows of."""
        parts, self._open = self._open, {}
        # Every part is discarded, also if the disk is full and one of them cannot write its end.
        with ExitStack() as left:
            left.callback(self._staging.remove_if_empty)
            for file in self._waiting.all():
                left.callback(_give_up, file)
            for part in parts.values():
                left.callback(part.abandon, keep=part.path in self._checkpointed)

    # ------------------------------------------------------------------ files

    def _write_to(self, bucket: str, rows: Sequence[Any], now: int) -> None:
        self._roll_if_due(bucket, now)
        part = self._file_of(bucket, now)
        part.write(rows, now)
        self._sample(part, rows)
        self._roll_if_due(bucket, now)

    def _sample(self, part: PartFile, rows: Sequence[Any] | pa.RecordBatch) -> None:
        """Learn how large rows are before the first file is closed."""
        if self._counts_bytes and self._row_bytes is None:
            self._row_bytes = part.held_row_bytes(rows[:_SAMPLED_ROWS])

    def _file_of(self, bucket: str, now: int) -> PartFile:
        part = self._open.get(bucket)
        if part is None:
            target = self._next_target(bucket)
            hidden = self._staging.new_path(target.rpartition("/")[2])
            part = self._open[bucket] = PartFile(self._settings, hidden, target, now)
            self._set_timer()
        return part

    def _require_inside(self, bucket: str) -> None:
        if bucket.startswith("/") or ".." in bucket.split("/"):
            raise FileSinkError(f"the bucket {bucket!r} lies outside of {self._settings.base_path}")

    def _next_target(self, bucket: str) -> str:
        self._require_inside(bucket)
        files = self._settings.files
        name = f"{files.part_prefix}-{self._unique}-{self._counter}{files.part_suffix}"
        self._counter += 1
        return join(self._settings.base_path, bucket, name)

    def _roll_if_due(self, bucket: str, now: int) -> None:
        part, policy = self._open.get(bucket), self._settings.rolling
        if part is not None and (
            (policy.part_size is not None and part.length >= policy.part_size)
            or ((due := self._due_at(part)) is not None and due <= now)
        ):
            self._roll(bucket)

    def _due_at(self, part: PartFile) -> int | None:
        """Return the time at which the part must be closed for its age or for lack of rows."""
        policy = self._settings.rolling
        ages = []
        if policy.rollover_interval is not None:
            ages.append(part.opened_at + policy.rollover_interval)
        if policy.inactivity_interval is not None:
            ages.append(part.written_at + policy.inactivity_interval)
        return min(ages, default=None)

    def _set_timer(self) -> None:
        due = min(
            (at for part in self._open.values() if (at := self._due_at(part)) is not None), default=None
        )
        if due is not None and (self._timer_at is None or due < self._timer_at):
            self._timer_at = due
            self._context.register_timer(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at = None
        now = self._context.current_processing_time()
        for bucket in list(self._open):
            self._roll_if_due(bucket, now)
        self._set_timer()

    def _roll(self, bucket: str) -> None:
        part = self._open[bucket]
        self._waiting.add(bucket, part.close(part.path in self._checkpointed))
        self._closed_bytes += part.length
        self._closed_rows += part.rows
        if self._row_bytes and self._closed_rows:
            self._row_bytes = self._closed_bytes / self._closed_rows
        del self._open[bucket]

    def _recovered(self, file: InProgressFile) -> PendingFile | None:
        """Return a file of its own with the beginning of a file that a checkpoint covers."""
        if not file.length:
            return None
        own = self._staging.is_own(file.path)
        # The job of the savepoint may continue its file: neither that file nor its target is touched.
        target = file.target if own else self._next_target(file.bucket)
        copy = self._staging.new_path(target.rpartition("/")[2])
        if not copy_beginning(file, copy):
            return None
        return PendingFile(copy, target, file.length, leftover=file.path if own else None)

    def _waiting_again(self, waiting: WaitingFile) -> WaitingFile | None:
        """Return a file that a checkpoint names as waiting; of a file of another job a copy of its own."""
        file = waiting.file
        if self._staging.is_own(file.source):
            return waiting
        # The job of the savepoint may merge its file: neither that file nor its target is touched.
        target = self._next_target(waiting.bucket)
        copy = self._staging.new_path(target.rpartition("/")[2])
        beginning = InProgressFile(file.source, waiting.bucket, file.target, file.size)
        if not copy_beginning(beginning, copy):
            return None
        return WaitingFile(PendingFile(copy, target, file.size), waiting.bucket, waiting.checkpoints)


class FileCommitter(Committer):
    """Gives whole files their names; a commit done already is done."""

    def commit(self, committables: Sequence[PendingFile | CompactedFile]) -> None:
        """Renames. Raises FileSinkError for a file that is neither there nor committed."""
        for file in committables:
            if isinstance(file, CompactedFile):
                finish_compacted(file)
            else:
                finish_file(file)

    def abort(self, committables: Sequence[PendingFile | CompactedFile]) -> None:
        """Removes files that will not be committed, and that no checkpoint may need."""
        for file in committables:
            if isinstance(file, CompactedFile):
                for part in file.parts:
                    _give_up(part)
                _give_up(file.file)
            else:
                _give_up(file)


def _give_up(file: PendingFile) -> None:
    if not file.begun_before:
        file_system_for(file.source).delete(file.source)
