"""Reading sections with on_error: a section that is damaged costs its rest, and a row that does not fit costs itself.

Owner: the task's thread. Positions are those of SectionReader. A row that was left out counts in them as one that was
handed out, so that its letter does not come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.file_format import FilePosition, FileReader, FileSourceSplit, RecordParser
from yarrow.datastream.formats.blocks.left_out import (
    BlockRows,
    LeavesOut,
    LeftOut,
    WatchedStream,
    divided,
    letter_parser,
    places_of,
    records_of,
    tolerant_reader,
)
from yarrow.datastream.formats.blocks.sections import SectionDecoder, SectionReader


def section_reader(split: FileSourceSplit, decoder: SectionDecoder, policy: ErrorPolicy) -> FileReader:
    """Return the reader of a split that treats damage by the policy."""
    if policy is ErrorPolicy.FAIL:
        return SectionReader(split, decoder)
    leaves_out = LeavesOut(policy, split.path)
    return tolerant_reader(
        split, leaves_out, lambda stream: _TolerantReader(split, decoder, stream, leaves_out)
    )


class _TolerantReader(SectionReader):
    """Reads the sections of a split, and leaves out what cannot be read."""

    def __init__(
        self, split: FileSourceSplit, decoder: SectionDecoder, stream: BinaryIO, leaves_out: LeavesOut
    ) -> None:
        super().__init__(split, decoder, stream)
        assert isinstance(stream, WatchedStream)
        self._watched: WatchedStream = stream
        self._leaves_out = leaves_out
        #: The rows of the present batch; None = the next one has to be decoded.
        self._part: BlockRows | None = None
        #: Rows of the section before the present batch.
        self._before = 0
        # A column that no value could be cast to makes the file one of another kind, and not each row a bad one.
        names = self._names
        schema = self._file.schema
        # An empty table of the schema would be shorter, and would import pandas.
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        decoder.records_of(split.path, nothing if names is None else nothing.select(names))

    def read(self, max_rows: int) -> SourceRecords | None:
        """Return rows with the letters between them, or the letter of the rest of a section."""
        while self._part is None or self._part.is_read:
            lost = self._next_part()
            if lost is not None:
                return records_of((), [lost], self._split.id)
            if self._part is None and self._done >= len(self._sections):
                return None
        records = self._part.take(max_rows, self._split.id)
        self._returned = len(records.rows)
        return records

    def position(self) -> FilePosition:
        passed = 0 if self._part is None else self._part.passed
        return FilePosition(self._done, self._before + passed + self._skip)

    def bytes_of_rows(self) -> float:
        # A section that was left out has no rows.
        return super().bytes_of_rows() if self._part is not None else 0.0

    def _next_part(self) -> LeftOut | None:
        """Decode the next batch. Returns the rest of a section that cannot be decoded."""
        if self._part is not None:
            self._before += self._part.passed
            self._part = None
        if self._done >= len(self._sections):
            return None
        section = self._sections[self._done]
        try:
            if self._batches is None:
                self._batches = self._file.batches(section, self._names, self._decoder.batch_size)
            batch = next(self._batches, None)
        except Exception as error:  # a library of files raises anything where data is damaged
            self._watched.require_damage(error)
            lost = self._rest(error, section)
            self._end_section()
            return lost
        if batch is None:
            self._end_section()
            return None
        self._part = self._rows_of(section, batch if self._names is None else batch.select(self._names))
        passed = min(self._skip, batch.num_rows)
        self._part.skip(passed)
        self._skip -= passed
        return None

    def _end_section(self) -> None:
        super()._end_section()
        self._before = 0

    def _rest(self, error: Exception, section: int) -> LeftOut:
        """The rows of a section behind those that have passed."""
        passed, known = self._before + self._skip, self._file.section_rows(section)
        name = f"{self._file.section_name} {section}"
        if known is None:
            rest = f"behind row {passed}" if passed else "all rows"
            return self._leaves_out.rows(error, f"{name}, {rest}", section + 1)
        before, number = known
        first, last = before + passed + 1, before + number
        place = f"{name}, rows {first} to {last} of the file"
        return self._leaves_out.rows(error, place, first, number=max(1, number - passed))

    def _rows_of(self, section: int, batch: pa.RecordBatch) -> BlockRows:
        """The records of a batch: all, or those that fit."""
        path, decoder = self._split.path, self._decoder

        def read(begin: int, end: int) -> Any:
            return decoder.records_of(path, batch.slice(begin, end - begin))

        def failed(row: int, error: Exception) -> LeftOut:
            return self._row(error, section, row, batch)

        parts, left_out = divided(batch.num_rows, read, failed)
        if len(parts) == 1 and not left_out:
            return BlockRows(batch.num_rows, parts[0][2])
        rows = _joined([records for _, _, records in parts])
        return BlockRows(batch.num_rows, rows, list(places_of(parts)), left_out)

    def _row(self, error: Exception, section: int, row: int, batch: pa.RecordBatch) -> LeftOut:
        known, in_section = self._file.section_rows(section), self._before + row + 1
        if known is None:
            place, position = f"row {in_section} of the section", section + 1
        else:
            position = known[0] + in_section
            place = f"row {position} of the file"
        place = f"{self._file.section_name} {section}, {place}"
        raw = _stream_of(batch.take([row])) if self._leaves_out.makes_letters else None
        return self._leaves_out.rows(error, place, position, row=row, raw=raw)


def _joined(parts: list[Any]) -> Any:
    """The records of several parts: a list, or one batch."""
    if not parts or isinstance(parts[0], list):
        return [record for part in parts for record in part]
    return pa.concat_batches(parts)


def _stream_of(row: pa.RecordBatch) -> bytes:
    """A row in Arrow's stream format: its values and their types."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return bytes(sink.getvalue())


def section_letter_parser(path: str, decoder: SectionDecoder, policy: ErrorPolicy) -> RecordParser:
    """Return what reads rows of letters again, as the format reads those of its files."""

    def read(raw: bytes) -> Any:
        rows: Iterator[pa.RecordBatch] = iter(pa.ipc.open_stream(raw))
        batch = next(rows)
        names = decoder.columns_in(path, batch.schema)
        return decoder.records_of(path, batch if names is None else batch.select(names))

    return letter_parser(policy, read)
