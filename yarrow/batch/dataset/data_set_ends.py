"""Ends of a data set: sinks, which wait for `execute`, and collect, count and print, which execute the program.

Owner: the thread that builds the program. DataSetEnds is the base of all data sets, with the facts and settings of the
operation behind them. Must not make data sets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self

from yarrow.batch.dataset.output.file_output import FileOutput, WriteMode
from yarrow.batch.dataset.program_environment import ProgramEnvironment
from yarrow.common.serialization import BulkWriterFactory, Encoder
from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.datastream.program.closeable_iterator import CloseableIterator
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.graph.connector_spec import CollectOperator, PrintOperator, SinkWriterOperator
from yarrow.runtime.graph.data_set_spec import MapPartitionOperator
from yarrow.runtime.graph.operator_spec import OperatorSpec, RowFunctionOperator, RowShape
from yarrow.runtime.graph.transformations import SinkTransformation, Transformation

if TYPE_CHECKING:
    from yarrow.batch.dataset.bounded_program import BoundedProgram
    from yarrow.datastream.connectors.file_sink import FileSink


class DataSink:
    """A sink in a program."""

    def __init__(self, transformation: SinkTransformation) -> None:
        self._settings = OperatorSettings(transformation)

    def name(self, name: str) -> Self:
        """Set the name that plans, metrics and messages show."""
        self._settings.name(name)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks."""
        self._settings.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks."""
        return self._settings.operator("get_parallelism").effective_parallelism


class DataSetEnds:
    """The rows that an operation gives, as the ends of a program see them."""

    def __init__(self, environment: ProgramEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._program: BoundedProgram = environment.program
        self._builder = self._program.graph_builder
        self.transformation = transformation

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is part of the program that is being built and cannot be used inside a function. "
            "Hand its rows to the function: with_broadcast_set(data_set, name)."
        )

    # ------------------------------------------------------------------ facts and settings

    def get_type(self) -> TypeInformation:
        """Return the declared type; PICKLED_BYTE_ARRAY when none was declared."""
        return self.transformation.output_type or Types.PICKLED_BYTE_ARRAY()

    def get_parallelism(self) -> int:
        """Return the parallelism of the operation."""
        return self._settings().operator("get_parallelism").effective_parallelism

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks. Raises InvalidProgramError where the operation runs with one only."""
        self._settings().set_parallelism(parallelism)
        return self

    def name(self, name: str) -> Self:
        """Set the name that plans, metrics and messages show."""
        self._settings().name(name)
        return self

    def returns(self, type_info: TypeInformation) -> Self:
        """Declare the type of the rows, which are then checked and encoded as columns of it."""
        self._settings().operator("returns").output_type = declared(type_info)
        return self

    # ------------------------------------------------------------------ execute the program

    def collect(self) -> list[Any]:
        """Execute the program, with the sinks defined so far, and return the rows of this data set."""
        return list(self._collected(self.transformation, "collect"))

    def count(self) -> int:
        """Execute the program, with the sinks defined so far, and return the number of rows."""
        read = self._builder.as_rows(self.transformation)
        spec = MapPartitionOperator(function=self._builder.pickle(count_rows, "Count"))
        counted = self._builder.one_input(read, "Count", spec, output_type=Types.LONG())
        return sum(self._collected(counted, "count"))

    def print(self) -> None:
        """Execute the program, with the sinks defined so far, and print the rows of this data set on stdout."""
        for row in self._collected(self.transformation, "print"):
            print(row)

    def print_to_err(self) -> None:
        """Execute the program, with the sinks defined so far, and print the rows of this data set on stderr."""
        for row in self._collected(self.transformation, "print_to_err"):
            print(row, file=sys.stderr)

    def _collected(self, read: Transformation, call: str) -> Iterator[Any]:
        """The rows of a data set, from the job that the call executes."""
        collect_id = self._program.new_collect_id()
        spec = CollectOperator(collect_id=collect_id)
        sink = self._builder.sink(self._builder.as_rows(read), f"{call}()", spec, parallelism=1)
        try:
            client = self._environment.submit(None)
        except Exception:
            # The next job would be refused for it again.
            self._builder.remove(sink)
            raise
        with CloseableIterator(client, collect_id) as rows:
            try:
                yield from rows
            except (YarrowError, ConfigError) as error:
                raise error.with_traceback(None) from None
            self._environment.wait(client)

    # ------------------------------------------------------------------ sinks

    def output(self, sink: Sink[Any]) -> DataSink:
        """Hand the rows to a Sink; a Sink that does not take columns gets rows."""
        if not isinstance(sink, Sink):
            raise TypeError(
                f"output takes a Sink, such as FileSink or one of your own, not {type(sink).__name__}"
            )
        return self._output("Data Sink", sink)

    def print_on_task_manager(self, prefix: str = "") -> DataSink:
        """Write each row as a line to the output of the task, with a prefix."""
        return self._sink("Print to Std. Out", PrintOperator(identifier=prefix), self._rows())

    def write_as_text(self, file_path: str, write_mode: WriteMode = WriteMode.NO_OVERWRITE) -> DataSink:
        """Write the text of each row as a line, into files of a folder."""
        encoder: Encoder[Any] = Encoder.simple_string_encoder()
        return self._write("write_as_text", file_path, write_mode, encoder)

    def write_as_formatted_text(
        self,
        file_path: str,
        formatter: Callable[[Any], str],
        write_mode: WriteMode = WriteMode.NO_OVERWRITE,
    ) -> DataSink:
        """Write the text that `formatter` gives each row as a line, into files of a folder."""
        if not callable(formatter):
            raise TypeError(f"write_as_formatted_text takes a function that gives a text, not {formatter!r}")
        output = FileOutput("write_as_formatted_text", file_path, write_mode)
        spec = RowFunctionOperator(shape=RowShape.MAP, function=self._builder.pickle(formatter, "Format"))
        texts = self._builder.one_input(self._rows(), "Format", spec, output_type=Types.STRING())
        return self._write_files(output, Encoder.simple_string_encoder(), texts)

    def write_as_csv(
        self,
        file_path: str,
        row_delimiter: str = "\n",
        field_delimiter: str = ",",
        write_mode: WriteMode = WriteMode.NO_OVERWRITE,
    ) -> DataSink:
        """Write the fields of each tuple or Row as a line, into files of a folder; quotes stand where they must."""
        from yarrow.batch.dataset.csv_lines import CsvEncoder

        return self._write("write_as_csv", file_path, write_mode, CsvEncoder(row_delimiter, field_delimiter))

    def write_as_json(self, file_path: str, write_mode: WriteMode = WriteMode.NO_OVERWRITE) -> DataSink:
        """Write each row as one line of JSON, into files of a folder; named Rows and dicts become objects."""
        from yarrow.datastream.formats.json import JsonLinesEncoder

        return self._write("write_as_json", file_path, write_mode, JsonLinesEncoder())

    def write_as_parquet(
        self,
        file_path: str,
        row_type: TypeInformation | None = None,
        write_mode: WriteMode = WriteMode.NO_OVERWRITE,
    ) -> DataSink:
        """Write the rows as columns of Parquet files in a folder.

        The columns are those of `row_type`, a Types.ROW_NAMED, or of the declared type. Raises InvalidProgramError if
        neither names them.
        """
        from yarrow.datastream.formats.parquet import ParquetBulkWriters

        schema: Any = row_type or self.transformation.output_type
        if schema is None and self.transformation.output_schema is not None:
            import pyarrow as pa

            schema = pa.ipc.read_schema(pa.py_buffer(self.transformation.output_schema))
        elif not isinstance(schema, RowTypeInfo):
            raise InvalidProgramError(
                f"write_as_parquet needs the names and types of columns, but the records have {schema}: "
                "pass row_type=Types.ROW_NAMED(names, types)"
            )
        return self._write("write_as_parquet", file_path, write_mode, ParquetBulkWriters.for_row_type(schema))

    def _write(
        self, call: str, path: str, mode: WriteMode, fmt: Encoder[Any] | BulkWriterFactory[Any]
    ) -> DataSink:
        return self._write_files(FileOutput(call, path, mode), fmt, self.transformation)

    def _write_files(
        self, output: FileOutput, fmt: Encoder[Any] | BulkWriterFactory[Any], read: Transformation
    ) -> DataSink:
        from yarrow.batch.dataset.output.replacing_file_sink import ReplacingFileSink
        from yarrow.datastream.connectors.file_sink import FileSink
        from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, RollingPolicy

        builder: FileSink.BaseBuilder
        if isinstance(fmt, Encoder):
            builder = FileSink.for_row_format(output.path, fmt)
        else:
            builder = FileSink.for_bulk_format(output.path, fmt)
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        sink = self._program.in_default_file_system(builder.build())
        # A plain path may be one of HDFS.
        placed = output.at(sink.base_path)
        placed.check()
        self._program.file_outputs.append(placed)
        if placed.replaces:
            sink = ReplacingFileSink.of(sink)
        return self._output("Data Sink", sink, read)

    def _output(self, name: str, sink: Sink[Any], read: Transformation | None = None) -> DataSink:
        sink = self._program.in_default_file_system(sink)
        sink.validate()
        spec = SinkWriterOperator(sink=self._builder.pickle(sink, name, "sink"))
        given = read or self.transformation
        given = given if sink.accepts_columns else self._builder.as_rows(given)
        return self._sink(f"{name}: Writer", spec, given, blocking=declares_blocking(sink))

    def _sink(self, name: str, spec: OperatorSpec, read: Transformation, blocking: bool = False) -> DataSink:
        return DataSink(self._builder.sink(read, name, spec, blocking=blocking))

    # ------------------------------------------------------------------ shared with what reads the rows

    def _rows(self) -> Transformation:
        return self._builder.as_rows(self.transformation)

    def _same_program(self, data: object, method: str) -> Transformation:
        if not isinstance(data, DataSetEnds):
            raise TypeError(f"{method} takes a DataSet, not {type(data).__name__}")
        if data._environment is not self._environment:
            raise InvalidProgramError(
                f"{method}: the data sets belong to two execution environments, that is, to two programs"
            )
        return data.transformation

    def _settings(self) -> OperatorSettings:
        return OperatorSettings(self.transformation)


def count_rows(rows: Iterator[Any]) -> Iterator[int]:
    """The number of rows of a partition."""
    yield sum(1 for _ in rows)
