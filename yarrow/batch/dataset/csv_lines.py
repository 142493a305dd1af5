"""CsvEncoder: writes tuples and Rows as lines of CSV. Owner: the task's thread."""

from __future__ import annotations

import csv
import io
from typing import Any, BinaryIO

from yarrow.common.serialization import Encoder
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError


class CsvEncoder(Encoder[Any]):
    """Writes each record as one line; a field has quotes where it holds a delimiter, a quote or a line end."""

    def __init__(self, row_delimiter: str = "\n", field_delimiter: str = ",") -> None:
        if not isinstance(field_delimiter, str) or len(field_delimiter) != 1:
            raise ValueError(f"the field delimiter must be one character, not {field_delimiter!r}")
        if row_delimiter not in ("\n", "\r\n"):
            raise ValueError(f"the row delimiter must be \\n or \\r\\n, not {row_delimiter!r}")
        self._row_delimiter = row_delimiter
        self._field_delimiter = field_delimiter

    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Writes one line. Raises FileFormatError for a record without fields."""
        if not isinstance(element, tuple | list | Row):
            raise FileFormatError(
                f"write_as_csv takes tuples and Rows; this record has no fields: {element!r}"
            )
        text = io.StringIO()
        csv.writer(text, delimiter=self._field_delimiter, lineterminator=self._row_delimiter).writerow(
            element
        )
        stream.write(text.getvalue().encode())
