"""DataSources: where the data sets of a program come from.

Owner: the thread that builds the program. Each source is bounded: it ends by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from yarrow.batch.dataset.data_set_ends import DataSetEnds
from yarrow.batch.dataset.program_environment import ProgramEnvironment
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import Boundedness, Source
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.transformations import Transformation

D = TypeVar("D", bound=DataSetEnds)


class DataSources(ProgramEnvironment, ABC, Generic[D]):
    """The environment of a program, with methods that give data sets of the class D."""

    def from_collection(self, data: Iterable[Any], type_info: TypeInformation | None = None) -> D:
        """Return the elements of a collection, read in order by one task."""
        return self._data_set(self.program.from_collection(data, type_info).transformation)

    def from_elements(self, *data: Any) -> D:
        """Return these elements. Raises InvalidProgramError if there are none."""
        if not data:
            raise InvalidProgramError("from_elements() needs an element; use from_collection([]) for no rows")
        return self.from_collection(data)

    def generate_sequence(self, start: int, end: int) -> D:
        """Return the whole numbers from `start` to `end`, both included, read in parallel."""
        return self._data_set(self.program.from_sequence(start, end).transformation)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> D:
        """Return the lines of a file, or of the files in a folder, local or hdfs://."""
        return self._data_set(self.program.read_text_file(file_path, charset_name).transformation)

    def read_json_file(self, file_path: str, row_type: RowTypeInfo | None = None) -> D:
        """Return the values of files with one JSON value a line: Rows of a declared type, otherwise any value."""
        from yarrow.datastream.connectors.file_source import FileSource
        from yarrow.datastream.formats.json import JsonLinesFormat

        source = FileSource.for_record_stream_format(JsonLinesFormat(row_type), file_path).build()
        return self.create_input(source, name=f"JSON {file_path}")

    def read_parquet_file(self, file_path: str, row_type: RowTypeInfo | None = None) -> D:
        """Return the Rows of Parquet files: all columns, or those of a Types.ROW_NAMED by their names."""
        from yarrow.datastream.connectors.file_source import FileSource
        from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat

        source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), file_path).build()
        data = self.create_input(source, name=f"Parquet {file_path}")
        if row_type is None:
            return data
        rows = data._rows()
        rows.output_type = row_type
        return self._data_set(rows)

    def create_input(
        self,
        source: Source[Any, Any],
        type_info: TypeInformation | None = None,
        name: str = "Data Source",
    ) -> D:
        """Return the rows of a bounded Source. Raises InvalidProgramError for one that does not end."""
        if not isinstance(source, Source):
            raise TypeError(
                f"create_input takes a bounded Source, such as a FileSource, not {type(source).__name__}"
            )
        if source.boundedness is not Boundedness.BOUNDED:
            raise InvalidProgramError(
                f"create_input: {type(source).__name__} does not end by itself, so no DataSet program reads it. Give "
                "it an end, or write a DataStream program."
            )
        stream = self.program.from_source(source, WatermarkStrategy.no_watermarks(), name, type_info)
        return self._data_set(stream.transformation)

    @abstractmethod
    def _data_set(self, transformation: Transformation) -> D:
        """The data set that a transformation of this program puts out."""
