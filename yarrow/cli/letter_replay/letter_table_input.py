"""LetterTableInput: letters in a table, as `DeadLetterTable` writes it and Spark may have rewritten it.

Owner: the main thread. The job reads the same files that were checked here, and none that comes later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarrow.cli.letter_replay.letter_input import PlacedLetter, files_at
from yarrow.client.errors import CommandError
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.dead_letter_table.letter_table_format import LetterTableFormat
from yarrow.datastream.connectors.file_format import FileFormatError, FileSourceSplit
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_system import FileStatus

_ROWS_OF_READ = 1024


class LetterTableInput:
    """The letters of a table, of some of its folders, or of single files of it."""

    def __init__(self, path: str, config: Settings) -> None:
        """Raises CommandError for a path without files."""
        self._files = files_at(path, config)

    def letters(self) -> Iterator[PlacedLetter]:
        """Yield the letters of all files. Raises CommandError naming a file that is none of such a table."""
        for file in self._files:
            try:
                yield from _letters_in(file)
            except FileFormatError as error:
                raise CommandError(
                    f"{error}. Files of a DeadLetterTable are expected; lines of letters are read without table:."
                ) from None

    def source(self) -> Source[Any, Any]:
        """Return a bounded source of the letters of these files."""
        paths = [file.path for file in self._files]
        return FileSource.for_bulk_file_format(LetterTableFormat(), *paths).build()

    def size_bytes(self) -> int:
        """Return the bytes of the files."""
        return sum(file.size for file in self._files)


def _letters_in(file: FileStatus) -> Iterator[PlacedLetter]:
    split = FileSourceSplit(file.path, file.path, 0, file.size, file.size)
    reader = LetterTableFormat().create_reader(split)
    number = 0
    try:
        while (found := reader.read(_ROWS_OF_READ)) is not None:
            for letter in found.rows:
                number += 1
                yield PlacedLetter(f"{file.path}, row {number}", letter)
    finally:
        reader.close()
