"""StreamingFileSink: the older name of FileSink, for `add_sink`.

Owner: the client builds it; it is a FileSink from there on.
"""

from __future__ import annotations

from typing import Any, NoReturn

from yarrow.common.serialization import BulkWriterFactory, Encoder
from yarrow.datastream.connectors.base import StandsForSink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, OutputFileConfig, RollingPolicy
from yarrow.datastream.functions import SinkFunction
from yarrow.runtime.common.errors import UnsupportedFeatureError


class StreamingFileSink(SinkFunction[Any], StandsForSink):
    """Writes records to part files in buckets; `add_sink` hands the stream to its FileSink.

    Deprecated: use FileSink and `sink_to`.
    """

    def __init__(self, file_sink: FileSink) -> None:
        #: The FileSink that `add_sink` puts behind the stream.
        self.file_sink = file_sink

    def sink(self) -> FileSink:
        """Return the FileSink."""
        return self.file_sink

    class BaseBuilder:
        """Collects the settings of a StreamingFileSink."""

        def __init__(self, builder: FileSink.BaseBuilder) -> None:
            self._builder = builder

        def with_bucket_check_interval(self, interval: int) -> StreamingFileSink.BaseBuilder:
            """Accepted (ms, above 0): files are closed at the time their policy says, not at the next check."""
            self._builder.with_bucket_check_interval(interval)
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> StreamingFileSink.BaseBuilder:
            """Set the assigner, which names the folder of a record."""
            self._builder.with_bucket_assigner(bucket_assigner)
            return self

        def with_rolling_policy(self, policy: RollingPolicy) -> StreamingFileSink.BaseBuilder:
            """When files are closed. Raises ValueError for a bulk format unless it is at checkpoints."""
            self._builder.with_rolling_policy(policy)
            return self

        def with_output_file_config(
            self, output_file_config: OutputFileConfig
        ) -> StreamingFileSink.BaseBuilder:
            """Set how part files are named."""
            self._builder.with_output_file_config(output_file_config)
            return self

        def build(self) -> StreamingFileSink:
            """The sink."""
            return StreamingFileSink(self._builder.build())

    class DefaultRowFormatBuilder(BaseBuilder):
        """A builder of a sink that writes record by record."""

    class DefaultBulkFormatBuilder(BaseBuilder):
        """A builder of a sink whose format writes many records at once."""

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder[Any]) -> StreamingFileSink.DefaultRowFormatBuilder:
        """A builder of a sink that writes record by record."""
        return StreamingFileSink.DefaultRowFormatBuilder(FileSink.for_row_format(base_path, encoder))

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory[Any]
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        """A builder of a sink whose format sees many records at once; files roll at checkpoints."""
        return StreamingFileSink.DefaultBulkFormatBuilder(FileSink.for_bulk_format(base_path, writer_factory))

    def invoke(self, value: Any, context: SinkFunction.Context) -> NoReturn:
        """Refused: records reach the files by the FileSink alone."""
        raise UnsupportedFeatureError("StreamingFileSink.invoke is refused: pass the sink to add_sink.")
