"""Ends of a stream: print it, give it to a sink, or collect it in the running program.

Owner: the thread that builds the program. Nothing is written before `execute`; `execute_and_collect` executes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarrow.datastream.connectors.base import Sink, StandsForSink, delivery_of
from yarrow.datastream.data_stream_sink import DataStreamSink
from yarrow.datastream.functions import SinkFunction
from yarrow.datastream.program.added_columns import refuse_added_columns
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.datastream.program_stream import ProgramStream, S
from yarrow.runtime.graph.connector_spec import (
    CollectOperator,
    PrintOperator,
    SinkFunctionOperator,
    SinkWriterOperator,
)

if TYPE_CHECKING:
    from yarrow.datastream.program.closeable_iterator import CloseableIterator


class StreamEnds(ProgramStream[S]):
    """The methods behind which nothing follows."""

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Write each record as a line to the TaskExecutor's output, embedded to the client's stdout."""
        spec = PrintOperator(identifier=sink_identifier or "")
        return self._sink("Print to Std. Out", spec, self._builder.as_rows(self.transformation), False)

    def add_sink(self, sink_func: SinkFunction[Any] | StandsForSink) -> DataStreamSink:
        """Hand each record to a SinkFunction.

        A StreamingFileSink is the FileSink that it stands for, a FlinkKafkaProducer the KafkaSink.
        """
        if isinstance(sink_func, StandsForSink):
            return self.sink_to(sink_func.sink())
        require_function(sink_func, SinkFunction, "add_sink", callables=False)
        spec = SinkFunctionOperator(function=self._builder.pickle(sink_func, "add_sink", "sink"))
        read = self._builder.as_rows(self.transformation)
        return self._sink("Unnamed", spec, read, declares_blocking(sink_func))

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Hand the records to a Sink; a Sink that does not take columns gets rows."""
        if not isinstance(sink, Sink):
            raise TypeError(
                f"sink_to takes a Sink, not {type(sink).__name__}: a FileSink, a KafkaSink, a DeadLetterTable for dead"
                " letters, or one of your own. A SinkFunction goes to add_sink"
            )
        sink = self._program.in_default_file_system(sink)
        sink.validate()
        refuse_added_columns(self.transformation, sink)
        spec = SinkWriterOperator(
            sink=self._builder.pickle(sink, "sink_to", "sink"),
            commits_last=sink.commits_last,
            declared=delivery_of(sink),
            tells_rows=sink.tells_refused_rows,
            knows_bytes=sink.counts_bytes,
        )
        read = self.transformation if sink.accepts_columns else self._builder.as_rows(self.transformation)
        return self._sink("Sink: Writer", spec, read, declares_blocking(sink))

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator:
        """Execute the program and return its records as an iterator; closing it cancels the job.

        With a limit the iterator ends, and the job is cancelled, after so many records.
        With exactly-once checkpoints a record is returned once a checkpoint that covers it is complete, or the job has
        finished. Without, it is returned at once, and perhaps again after a restart.
        A job that is stopped with a savepoint has records left to return: read on to the end. No job that begins
        from the savepoint returns them again. Raises the job's error from `next`.
        """
        from yarrow.datastream.program.closeable_iterator import CloseableIterator

        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative: {limit}")
        collect_id = self._program.new_collect_id()
        spec = CollectOperator(collect_id=collect_id)
        sink = self._sink("Collect", spec, self._builder.as_rows(self.transformation), False)
        sink.set_parallelism(1)
        client = self._program.execute_async(job_execution_name or "Collect")
        return CloseableIterator(client, collect_id, limit)
