"""Sources and sinks: the interfaces, and one module for each place that records come from or go to.

Owner: none. Exports the interfaces alone; connectors are imported from their own modules, so that a program
loads only what it uses.
"""

from yarrow.datastream.connectors.base import (
    Boundedness,
    Committer,
    DeliveryGuarantee,
    NothingAvailable,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)

__all__ = [
    "Boundedness",
    "Committer",
    "DeliveryGuarantee",
    "NothingAvailable",
    "Sink",
    "SinkWriter",
    "SinkWriterContext",
    "Source",
    "SourceReader",
    "SourceReaderContext",
    "SourceRecords",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
]
