"""LetterTableFormat: reads the Parquet files of a table of dead letters as letters.

Owner: the task's thread. Positions are those of Parquet's row groups.
"""

from __future__ import annotations

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.connectors.dead_letter_table.letter_columns import (
    ADDED_COLUMNS,
    LETTER_COLUMNS,
    letters_of_batch,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.formats.columnar_files import names_in
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat


class LetterTableFormat(ParquetColumnarRowInputFormat):
    """Letters of files with the columns of a table of dead letters, whoever has written them."""

    def __init__(self) -> None:
        # A table that others have written anew may have timestamps without a zone.
        super().__init__(LETTER_COLUMNS, is_utc_timestamp=True)

    def produced_type(self) -> TypeInformation | None:
        """Letters have no declared type."""
        return None

    def produced_schema(self, first_file: str | None) -> pa.Schema | None:
        """Letters are rows."""
        return None

    def columns_in(self, path: str, found: pa.Schema) -> list[str]:
        """Return the columns of letters in a file. Raises FileFormatError for columns that each file has."""
        wanted = [name for name in LETTER_COLUMNS.names if name in found.names or name not in ADDED_COLUMNS]
        return names_in(path, found, wanted, self._is_case_sensitive)

    def records_of(self, path: str, batch: pa.RecordBatch) -> list[DeadLetter]:
        """Return the letters of a batch. Raises FileFormatError for a column of another type."""
        absent = [field for field in LETTER_COLUMNS if field.name not in batch.schema.names]
        if absent:
            columns = [*batch.columns, *(pa.nulls(batch.num_rows, field.type) for field in absent)]
            names = [*batch.schema.names, *(field.name for field in absent)]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
        return letters_of_batch(super().records_of(path, batch))
