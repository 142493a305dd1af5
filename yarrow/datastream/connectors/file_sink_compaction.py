"""Compaction of a FileSink: which closed files wait to be merged, and how files are merged.

Owner: the task's thread; files of different buckets are merged by threads beside it, while it waits. Checkpoints hold
the two dataclasses: changing a field changes savepoints. A merged file replaces its parts when it is committed, and
the parts stay until then. Must not decide when a file is closed or committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from yarrow.datastream.connectors.file_compaction import FileCompactor, FileCompactStrategy
from yarrow.datastream.connectors.file_format import FileSourceSplit
from yarrow.datastream.connectors.file_sink_files import (
    FileSinkError,
    PartFile,
    PendingFile,
    StagingFolder,
    create,
    finish_file,
)
from yarrow.datastream.connectors.file_sink_policies import FileSinkSettings
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.fs.registry import file_system_for

_CHUNK_BYTES = 1 << 20
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A closed file that is not visible yet, because it waits to be merged with others of its bucket."""

    file: PendingFile
    bucket: str
    #: Checkpoints for which it has waited.
    checkpoints: int = 0


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """A merged file, to be renamed; its parts are removed once that is done."""

    file: PendingFile
    parts: tuple[PendingFile, ...]


def finish_compacted(compacted: CompactedFile) -> None:
    """Gives a merged file its name, and removes its parts. Raises as `finish_file`."""
    finish_file(compacted.file)
    for part in compacted.parts:
        file_system_for(part.source).delete(part.source)
        if part.leftover is not None:
            file_system_for(part.leftover).delete(part.leftover)


class WaitingFiles:
    """The closed files of one writer, until they are merged."""

    def __init__(self, strategy: FileCompactStrategy, waiting: Iterable[WaitingFile]) -> None:
        self._strategy = strategy
        self._by_bucket: dict[str, list[WaitingFile]] = {}
        for each in waiting:
            self._by_bucket.setdefault(each.bucket, []).append(each)

    def add(self, bucket: str, file: PendingFile) -> None:
        """Adds a closed file."""
        self._by_bucket.setdefault(bucket, []).append(WaitingFile(file, bucket))

    def all(self) -> list[PendingFile]:
        """Return the files that wait."""
        return [each.file for found in self._by_bucket.values() for each in found]

    def take_due(self, at_end: bool) -> list[list[PendingFile]]:
        """Counts a checkpoint; returns the files to be merged by bucket: at the end of the input all."""
        due = []
        for bucket, found in list(self._by_bucket.items()):
            waiting = [replace(each, checkpoints=each.checkpoints + 1) for each in found]
            if at_end or self._is_due(waiting):
                due.append([each.file for each in waiting])
                del self._by_bucket[bucket]
            else:
                self._by_bucket[bucket] = waiting
        return due

    def _is_due(self, waiting: Sequence[WaitingFile]) -> bool:
        most, threshold = self._strategy.num_checkpoints_before_compaction, self._strategy.size_threshold
        return (most > 0 and max(each.checkpoints for each in waiting) >= most) or (
            threshold >= 0 and sum(each.file.size for each in waiting) >= threshold
        )

    def snapshot(self) -> list[WaitingFile]:
        """Return the files that wait; from now on a checkpoint names them."""
        for bucket, found in self._by_bucket.items():
            self._by_bucket[bucket] = [
                replace(each, file=replace(each.file, begun_before=True)) for each in found
            ]
        return [each for found in self._by_bucket.values() for each in found]


class CompactService:
    """Merges files into new files of the staging folder."""

    def __init__(
        self,
        settings: FileSinkSettings,
        strategy: FileCompactStrategy,
        compactor: FileCompactor,
        staging: StagingFolder,
    ) -> None:
        self._settings = settings
        self._threads = strategy.num_compact_threads
        self._compactor = compactor
        self._staging = staging

    def merge_all(self, groups: Sequence[list[PendingFile]], now: int) -> list[PendingFile | CompactedFile]:
        """Return for each group its only file, or the merged one. Raises FileSinkError naming the files."""
        # The names are made here: the threads share no state.
        named = [(group, *self._names(group[0])) for group in groups]
        if len(named) < 2 or self._threads < 2:
            return [self._merge(group, hidden, target, now) for group, hidden, target in named]
        with ThreadPoolExecutor(self._threads, "file compaction") as threads:
            return list(threads.map(lambda each: self._merge(each[0], each[1], each[2], now), named))

    def _names(self, first: PendingFile) -> tuple[str, str]:
        folder, _, name = first.target.rpartition("/")
        merged = f"compacted-{name}"
        return self._staging.new_path(merged), join(folder, merged)

    def _merge(
        self, parts: list[PendingFile], hidden: str, target: str, now: int
    ) -> PendingFile | CompactedFile:
        if len(parts) == 1:
            return parts[0]
        if not (self._compactor.concatenates or self._compactor.record_format):
            raise FileSinkError(
                f"identical_file_compactor takes one file, and {len(parts)} files wait for {target}; use"
                " concat_file_compactor or record_wise_file_compactor"
            )
        if self._compactor.record_format is not None:
            merged = self._by_records(parts, hidden, target, now)
        else:
            merged = self._by_bytes(parts, hidden, target)
        return CompactedFile(merged, tuple(parts))

    def _by_bytes(self, parts: list[PendingFile], hidden: str, target: str) -> PendingFile:
        size = 0
        with create(hidden) as stream:
            for index, part in enumerate(parts):
                if index and self._compactor.file_delimiter:
                    size += stream.write(self._compactor.file_delimiter)
                with file_system_for(part.source).open(part.source) as source:
                    while chunk := source.read(_CHUNK_BYTES):
                        stream.write(chunk)
                        size += len(chunk)
        return PendingFile(hidden, target, size)

    def _by_records(self, parts: list[PendingFile], hidden: str, target: str, now: int) -> PendingFile:
        file_format = self._compactor.record_format
        assert file_format is not None
        merged = PartFile(self._settings, hidden, target, now)
        try:
            for part in parts:
                split = FileSourceSplit(f"{part.source}:0", part.source, 0, part.size, part.size)
                reader = file_format.create_reader(split)
                try:
                    while (records := reader.read(_ROWS)) is not None:
                        if isinstance(records.rows, Sequence):
                            merged.write(records.rows, now)
                        else:
                            merged.write_batch(records.rows, now)
                finally:
                    reader.close()
            return merged.close(begun_before=False)
        except BaseException:
            with suppress(OSError, FileSystemError):
                merged.abandon(keep=False)
            raise
