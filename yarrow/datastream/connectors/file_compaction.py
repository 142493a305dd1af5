"""How small files of a FileSink are merged before they become visible: the settings that `enable_compact` takes.

Owner: the client makes these values, the writer's thread reads them. Must not touch files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from yarrow.datastream.connectors.file_format import FileFormat

__all__ = ["FileCompactStrategy", "FileCompactor"]


@dataclass(frozen=True, slots=True)
class FileCompactStrategy:
    """When files are compacted, and by how many threads; -1 is never for that reason."""

    num_checkpoints_before_compaction: int = -1
    size_threshold: int = -1
    num_compact_threads: int = 1

    class Builder:
        """Collects the settings."""

        def __init__(self) -> None:
            self._strategy = FileCompactStrategy()

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Compact after so many checkpoints. Raises ValueError below 1, and TypeError for no whole number."""
            number = _at_least_one("num_checkpoints_before_compaction", num_checkpoints_before_compaction)
            self._strategy = replace(self._strategy, num_checkpoints_before_compaction=number)
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Compact when the files have so many bytes together. Raises TypeError for no whole number."""
            size = _whole("size_threshold", size_threshold)
            self._strategy = replace(self._strategy, size_threshold=size)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Compact by so many threads. Raises ValueError below 1, and TypeError for no whole number."""
            number = _at_least_one("num_compact_threads", num_compact_threads)
            self._strategy = replace(self._strategy, num_compact_threads=number)
            return self

        def build(self) -> FileCompactStrategy:
            """The strategy. Raises ValueError where nothing says when to compact."""
            FileCompactStrategy.require_trigger(self._strategy)
            return self._strategy

    @staticmethod
    def require_trigger(strategy: FileCompactStrategy) -> None:
        """Raise ValueError for a strategy by which nothing is ever compacted."""
        if strategy.num_checkpoints_before_compaction < 0 and strategy.size_threshold < 0:
            raise ValueError(
                "FileCompactStrategy: nothing says when to compact; call enable_compaction_on_checkpoint or"
                " set_size_threshold"
            )

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """A builder of a strategy by which nothing is compacted yet."""
        return FileCompactStrategy.Builder()


@dataclass(frozen=True, slots=True)
class FileCompactor:
    """A way to merge files: by their bytes, by their records, or the only file as it is."""

    concatenates: bool
    file_delimiter: bytes | None = None
    record_format: FileFormat[Any] | None = None

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """The bytes of the files one after the other, with the delimiter between two of them.

        Raises TypeError for a delimiter that is not of bytes.
        """
        if file_delimiter is not None and not isinstance(file_delimiter, bytes):
            raise TypeError(
                f"concat_file_compactor: the delimiter must be bytes, such as b'\\n', not {file_delimiter!r}"
            )
        return FileCompactor(concatenates=True, file_delimiter=file_delimiter)

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """The only file as it is; the sink fails where there are more."""
        return FileCompactor(concatenates=False)

    @staticmethod
    def record_wise_file_compactor(file_format: FileFormat[Any]) -> FileCompactor:
        """The records of the files, read by this format and written as the sink writes records.

        Raises TypeError for anything but a format of a FileSource.
        """
        if not isinstance(file_format, FileFormat):
            raise TypeError(
                "record_wise_file_compactor: a StreamFormat or BulkFormat of a FileSource is expected, not"
                f" {file_format!r}"
            )
        return FileCompactor(concatenates=False, record_format=file_format)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} of a FileCompactStrategy must be a whole number, not {value!r}")
    return value


def _at_least_one(name: str, value: object) -> int:
    value = _whole(name, value)
    if value < 1:
        raise ValueError(f"{name} of a FileCompactStrategy must be at least 1, not {value}")
    return value
