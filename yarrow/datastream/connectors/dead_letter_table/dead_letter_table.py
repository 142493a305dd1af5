"""DeadLetterTable: the sink of dead letters that makes a table of them, with a partition for each day.

Owner: the client builds it; writer and committer belong to their threads, as those of any FileSink. Files become
visible with the job's checkpoints, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.datastream.connectors.dead_letter_table.letter_columns import (
    ADDED_COLUMNS,
    DAY,
    LETTER_COLUMNS,
    LetterWriterFactory,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import (
    BucketAssigner,
    BucketContext,
    FileSinkSettings,
    OutputFileConfig,
    RollingPolicy,
)
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.common.paths import is_hidden, with_default_scheme
from yarrow.runtime.fs.file_system import FileStatus, FileSystem, exists
from yarrow.runtime.fs.registry import file_system_for

_SUFFIX = ".parquet"


class DeadLetterTable(FileSink):
    """Writes dead letters into a folder that is a table in Hive's layout: `day=2026-11-30/` with Parquet files.

    The days are those of UTC at which records went aside. Each checkpoint makes the files visible that it covers, so
    that readers see each letter once. `sink_to` raises InvalidProgramError for a path that cannot be such a table.
    """

    def __init__(self, path: str) -> None:
        """Raises TypeError for a path that is no text."""
        if not isinstance(path, str) or not path:
            raise TypeError(f"DeadLetterTable: the path of a folder must be a non-empty str, not {path!r}")
        super().__init__(
            FileSinkSettings(
                path,
                None,
                LetterWriterFactory(),
                buckets=_Days(),
                rolling=RollingPolicy.on_checkpoint_rolling_policy(),
                files=OutputFileConfig("letters", _SUFFIX),
            )
        )
        self._path = path

    def with_default_scheme(self, default: str) -> DeadLetterTable:
        return DeadLetterTable(with_default_scheme(self._path, default))

    def validate(self) -> None:
        """Raise InvalidProgramError if the path is a file, or a folder that readers would take for another table."""
        super().validate()
        for part in self._path.split("/"):
            name, separator, _ = part.partition("=")
            if separator and name in (DAY, *LETTER_COLUMNS.names):
                raise InvalidProgramError(
                    f"DeadLetterTable: {self._path}: readers take the folder {part!r} for the column {name!r}, which"
                    " the table has itself. Give the folder of the whole table"
                )
        try:
            files = file_system_for(self._path)
            if exists(files, self._path):
                self._check_folders(files)
        except (OSError, FileSystemError) as error:
            raise InvalidProgramError(f"DeadLetterTable: {self._path} cannot be used: {error}") from error

    def _check_folders(self, files: FileSystem) -> None:
        days = [entry for entry in files.list(self._path) if not is_hidden(entry.name)]
        for entry in days:
            if not entry.is_dir or not _is_day(entry.name):
                raise InvalidProgramError(
                    f"DeadLetterTable: {self._path} has {entry.name!r}, which is no folder of a day, such as"
                    f" {DAY}=2026-11-30. Readers would take it for a part of the table: give a folder of its own"
                )
        for day in reversed(days):
            for file in _files_of(files, day):
                _check_columns(files, file.path)
                return


class _Days(BucketAssigner):
    """The partition of a letter."""

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """Return the folder of the day. Raises TypeError for anything but a letter."""
        if not isinstance(element, DeadLetter):
            raise TypeError(
                f"DeadLetterTable takes DeadLetter rows, not {type(element).__name__}: put it behind dead_letters(),"
                " or behind the side output OutputTag(DEAD_LETTERS) of a source"
            )
        # A program may make letters of its own, which do not know the time.
        at_ms = context.current_processing_time if element.failed_at is None else element.failed_at
        return f"{DAY}={datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"


def _is_day(folder: str) -> bool:
    name, _, value = folder.partition("=")
    try:
        return name == DAY and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _files_of(files: FileSystem, day: FileStatus) -> Iterator[FileStatus]:
    return (file for file in files.list(day.path) if not file.is_dir and not is_hidden(file.name))


def _check_columns(files: FileSystem, path: str) -> None:
    """Raise InvalidProgramError for a file whose columns are not those of letters."""
    with files.open(path) as stream:
        try:
            found = pq.read_schema(stream)
        except pa.ArrowException as error:
            raise InvalidProgramError(f"DeadLetterTable: {path} is no Parquet file: {error}") from error
    for field in LETTER_COLUMNS:
        there = found.field(field.name).type if field.name in found.names else None
        if there is None and field.name in ADDED_COLUMNS:
            continue
        if there is None or not _is_like(there, field.type):
            raise InvalidProgramError(
                f"DeadLetterTable: {path} has {'no column' if there is None else f'the type {there} in column'}"
                f" {field.name!r}, where letters have {field.type}. Give the table a folder of its own"
            )


def _is_like(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a reader of one table takes both; other writers choose other units of time and names of elements."""
    if pa.types.is_timestamp(wanted) or pa.types.is_list(wanted):
        return bool(found.id == wanted.id)
    return bool(found == wanted)
